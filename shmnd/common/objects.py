# SPDX-License-Identifier: Apache-2.0
"""Buffers of Python objects: their bytes are references, which must not be written or sent."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

__all__ = ["REMEDY", "holds_objects"]

REMEDY: Final = (
    "Python objects, which are not bytes that can be copied; convert them, as by "
    "array.astype(float), or pickle them"
)
_NAMES: Final = re.compile(":[^:]*:")


def holds_objects(layout: str, exporter: object = None) -> bool:
    """Return whether a buffer has references to Python objects in it.

    `layout` is its format, which may have an O in the name of a field; `exporter` is the object
    that it belongs to. A byte written over such a reference crashes the interpreter.
    """
    if "O" in layout and "O" in _NAMES.sub("", layout):
        return True
    # ctypes describes a union, also one within a structure, as bytes.
    exporter = _origin(exporter)
    if getattr(getattr(exporter, "dtype", None), "hasobject", False):
        return True
    kind = type(exporter)
    if type(kind) is type:
        return False  # the types of ctypes have metaclasses of their own
    ctypes: Any = sys.modules.get("ctypes")
    return ctypes is not None and _has_references(ctypes, kind)


def _origin(exporter: Any) -> Any:
    """Return what the memory of a view belongs to, as far as the view says it."""
    none: Any = ()  # of a module that is not imported there are no objects
    numpy, pickle = sys.modules.get("numpy"), sys.modules.get("pickle")
    arrays = getattr(numpy, "ndarray", none)
    wrapped = getattr(pickle, "PickleBuffer", none)
    while True:
        if isinstance(exporter, arrays):
            base = arrays.base.__get__(exporter)  # a subclass may say something else
            if base is None:
                return exporter
            exporter = base
        elif isinstance(exporter, memoryview):
            exporter = exporter.obj
        elif isinstance(exporter, wrapped):
            exporter = memoryview(exporter).obj
        else:
            return exporter


def _has_references(ctypes: Any, kind: type) -> bool:
    """Return whether a type of ctypes has a py_object in it."""
    if issubclass(kind, ctypes.Array):
        return _has_references(ctypes, kind._type_)  # type: ignore[attr-defined]
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        declared = (field for base in kind.__mro__ for field in vars(base).get("_fields_", ()))
        return any(_has_references(ctypes, field[1]) for field in declared)
    return issubclass(kind, ctypes.py_object)
