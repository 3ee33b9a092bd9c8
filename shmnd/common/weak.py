# SPDX-License-Identifier: Apache-2.0
"""Bound methods that do not keep their objects alive, and objects that are kept by others."""

from __future__ import annotations

import types
import weakref
from typing import Any, Generic, TypeVar

__all__ = ["Living", "without_owner"]

_T = TypeVar("_T")


def without_owner(hook: Any) -> Any:
    """Return a bound method that does not keep its object alive, and does nothing after its end.

    Anything else is returned as it is.
    """
    if isinstance(hook, types.MethodType):
        return _WithoutOwner(hook.__self__, hook.__func__)
    if isinstance(hook, types.BuiltinMethodType) and hook.__self__ is not None:
        function = _compiled_method(type(hook.__self__), hook.__name__)
        if function is not None:
            return _WithoutOwner(hook.__self__, function)
    return hook


def _compiled_method(owner: type, name: str) -> Any:
    """Return a method that shmnd has compiled; None for one of another library.

    What a program passes, as `list.append`, may be all that keeps its object.
    """
    for cls in owner.__mro__:
        found = vars(cls).get(name)
        if isinstance(found, types.MethodDescriptorType) and cls.__module__.startswith("shmnd."):
            return found
    return None


class _WithoutOwner:
    """A bound method that holds its object weakly.

    One object, where a closure is several: each connection keeps some, and every collection of
    garbage visits them.
    """

    __slots__ = ("_function", "_ref")

    def __init__(self, owner: object, function: Any) -> None:
        self._ref = weakref.ref(owner)
        self._function = function

    def __call__(self, *args: object) -> object:
        owner = self._ref()
        return None if owner is None else self._function(owner, *args)


class Living(Generic[_T]):
    """A set of objects that does not keep them alive, for several threads.

    A loop over a WeakSet, and its copy, raise RuntimeError where another thread adds an object
    meanwhile, or takes one out.
    """

    def __init__(self) -> None:
        self._references: set[weakref.ref[_T]] = set()

    def add(self, one: _T) -> None:
        """Note an object. Harmless twice."""
        self._references.add(weakref.ref(one, self._references.discard))

    def discard(self, one: _T) -> None:
        """Forget an object. Harmless twice."""
        self._references.discard(weakref.ref(one))

    def snapshot(self) -> list[_T]:
        """Return the objects that live now, and keep those alive as long as the list."""
        references = list(self._references)  # in one step: no thread changes the set within it
        return [one for each in references if (one := each()) is not None]

    def clear(self) -> None:
        """Forget all."""
        self._references.clear()

    def __len__(self) -> int:
        return len(self._references)

    def __repr__(self) -> str:
        return f"<Living: {len(self)} objects>"
