# SPDX-License-Identifier: Apache-2.0
"""Bound methods that do not keep their objects alive."""

from __future__ import annotations

import types
import weakref
from typing import Any

__all__ = ["without_owner"]


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
