# SPDX-License-Identifier: Apache-2.0
"""Types of the objects that the rooms above pass to the data plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy.typing as npt
    from typing_extensions import Buffer

    # numpy declares its buffers to type checkers only from Python 3.12 on.
    AnyBuffer: TypeAlias = Buffer | npt.NDArray[Any]

__all__ = ["Context", "PlainInt", "ReadinessLike", "RegionLike", "WindowLike"]


class Context(Protocol):
    """Any object except the flags of requests and memory, which a type checker rejects here.

    Every object has this method. The flag types declare it as None, for type checkers alone.
    """

    def __sizeof__(self) -> int:
        """Return the bytes that the object takes."""


class PlainInt(Context, Protocol):
    """An int, or an integer of another library, that is not a flag of shmnd."""

    def __index__(self) -> int:
        """Return the value as an int."""


class ReadinessLike(Protocol):
    """A descriptor that can be made readable."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def set(self) -> None:
        """Make it readable."""

    def clear(self) -> None:
        """Make it unreadable again."""

    def close(self) -> None:
        """Close it."""


class RegionLike(Protocol):
    """A memory region that a window is bound to."""

    @property
    def local_token(self) -> int:
        """The token of its registration."""


class WindowLike(Protocol):
    """A memory window: the queue pair posts Bind and Invalidate, the window executes them."""

    @property
    def remote_token(self) -> int:
        """The token by which the peer names it."""

    def _check_bind(self, qp: Any, region: Any, address: int, length: int, flags: int) -> None:
        """Raise the error of an invalid Bind."""

    def _bind(self, qp: Any, region: Any, address: int, length: int, flags: int) -> tuple[int, int]:
        """Bind; return the status with which the request completes, and the token."""

    def _drop(self) -> int:
        """Undo `_bind` and return its token, or 0 if there is none."""

    def _check_invalidate(self, qp: Any) -> None:
        """Raise the error of an invalid Invalidate."""

    def _invalidate(self, qp: Any) -> tuple[int, int]:
        """Revoke access; return the status with which the request completes, and the token."""
