# SPDX-License-Identifier: Apache-2.0
"""The errors of `shmnd.ipc`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from shmnd.common.interruption import is_interruption

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = [
    "Closed",
    "LoanLimit",
    "NoPublisher",
    "PeerLost",
    "RemoteError",
    "TypeMismatch",
    "in_process",
    "parents_call",
    "require_caller",
    "require_process",
    "unusable",
]


_T = TypeVar("_T")


class Closed(RuntimeError):
    """The object was closed, or belongs to the parent of a process that was forked."""


def unusable(call: str, what: str, *, closed: bool) -> Closed:
    """Return the error of a call to an object that is closed, or else that is the parent's."""
    why = "is closed" if closed else "belongs to the parent of this process"
    return Closed(f"{call}: the {what} {why}; make a new one")


def require_process(pid: int, call: str, what: str, exc: BaseException | None = None) -> None:
    """Raise Closed in a child that the handler of a signal has forked within a call of its parent.

    `exc` is what the call ends with there: that of the handler itself is the program's.
    """
    if pid != os.getpid() and not (exc is not None and is_interruption(exc)):
        raise unusable(call, what, closed=False) from exc


async def in_process(
    pid: int, call: str, what: str, wait: Callable[..., Awaitable[_T]], *args: Any
) -> _T:
    """Return what `wait(*args)` returns; in another process raise as `require_process` does."""
    try:
        found = await wait(*args)
        require_process(pid, call, what)
    except BaseException as exc:
        require_process(pid, call, what, exc)
        raise
    return found


def parents_call(call: str) -> Closed:
    """Return the error of a call in which the handler of a signal has forked, in the child."""
    return Closed(
        f"{call}: this process was forked within the call, which is its parent's; call it again"
    )


def require_caller(pid: int, call: str, exc: BaseException | None = None) -> None:
    """Raise as `require_process` does, for an object that children may also use."""
    if pid != os.getpid() and not (exc is not None and is_interruption(exc)):
        raise parents_call(call) from exc


class NoPublisher(ConnectionError):
    """No publisher of the topic is there."""


class LoanLimit(RuntimeError):
    """A bound of memory or of held samples is reached."""


class TypeMismatch(TypeError):
    """Two ends of one name disagree about the type of what they exchange."""


class PeerLost(ConnectionError):
    """The process at the other end has died, or let go of this end."""


class RemoteError(RuntimeError):
    """A request failed with an error that this process does not know."""
