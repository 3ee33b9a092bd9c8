# SPDX-License-Identifier: Apache-2.0
"""Buffers of Python objects: their bytes are references, which must not be written or sent."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["REMEDY", "holds_objects"]

REMEDY: Final = (
    "Python objects, which are not bytes that can be copied; convert them, as by "
    "array.astype(float), or pickle them"
)
_NAMES: Final = re.compile(":[^:]*:")


def holds_objects(layout: str) -> bool:
    """Return whether a format of the buffer protocol has references to Python objects in it.

    A byte written over such a reference crashes the interpreter.
    """
    return "O" in layout and "O" in _NAMES.sub("", layout)  # fields may have an O in their names
