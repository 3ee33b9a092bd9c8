# SPDX-License-Identifier: Apache-2.0
"""Signatures in front of docstrings, as compiled functions have them, for those of Python too."""

from types import FunctionType
from typing import Any


def _described(function: FunctionType) -> str:
    """Return a docstring that begins with the call."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return f"{function.__name__}({', '.join(names)})\n\n{function.__doc__}"


def embed(namespace: dict[str, Any]) -> None:
    """Put the call in front of the docstring of every public function and method."""
    seen: set[int] = set()
    for value in list(namespace.values()):
        found = [value]
        if isinstance(value, type):
            for base in value.__mro__:
                if base.__module__.startswith("shmnd.mpi."):
                    found.extend(vars(base).values())
        for item in found:
            function = item.__func__ if isinstance(item, classmethod | staticmethod) else item
            if isinstance(function, FunctionType) and id(function) not in seen:
                seen.add(id(function))
                if function.__doc__ and not function.__doc__.startswith(function.__name__ + "("):
                    function.__doc__ = _described(function)
