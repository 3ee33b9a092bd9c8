# SPDX-License-Identifier: Apache-2.0
"""Bound methods that do not keep their objects alive, and objects that are kept by others."""

from __future__ import annotations

import types
import weakref
from typing import Any, Generic, TypeVar

__all__ = ["Living", "without_owner"]

_T = TypeVar("_T")


def without_owner(hook: Any) -> Any:
    """Hold a bound method without its object; without the object the call does nothing."""
    if not isinstance(hook, types.MethodType):
        return hook
    return _WithoutOwner(hook)


class _WithoutOwner:
    """A bound method that holds its object weakly.

    One object, where a closure is several: each connection keeps some, and every collection of
    garbage visits them.
    """

    __slots__ = ("_function", "_ref")

    def __init__(self, method: types.MethodType) -> None:
        self._ref = weakref.ref(method.__self__)
        self._function = method.__func__

    def __call__(self, *args: object) -> object:
        owner = self._ref()
        return None if owner is None else self._function(owner, *args)


class Living(Generic[_T]):
    """Objects that it does not keep alive, each once, for several threads.

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
