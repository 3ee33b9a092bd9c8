# SPDX-License-Identifier: Apache-2.0
"""The base class of the loops over objects of this library."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

__all__ = ["Loop"]

_S = TypeVar("_S")


class Loop(Generic[_S]):
    """Base of the loops over an object, for `for` and `async for`; each says how it takes the next.

    No generator: that would hold each thing until the next one comes, also one that the program has
    dropped, and what a handler of a signal raises would end it for good.
    """

    def __init__(self, source: _S) -> None:
        self._source: _S | None = source
        """The object; None once the loop is at its end."""

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def close(self) -> None:
        """End the loop and let go of its object, which stays open. Harmless when repeated.

        A call that waits meanwhile, in another thread or task, still returns the next thing.
        """
        self._source = None

    async def aclose(self) -> None:
        """End the loop as `close` does."""
        self.close()
