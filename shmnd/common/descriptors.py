# SPDX-License-Identifier: Apache-2.0
"""Kernel descriptors with one owner each: plain ones, counters and timers.

Each closes itself when its last reference is gone. Closing twice is harmless, and a call on a
closed one does nothing, so the order in which objects are released never matters.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Final

from shmnd.common.held import Held
from shmnd.common.interruption import pass_on
from shmnd.common.native import has_byte, send_byte, set_timerfd, timerfd
from shmnd.common.owned import Owned
from shmnd.common.shortages import reason_of_refusal, remedy
from shmnd.status import NdError, Status, error, limit_met_by_load

__all__ = [
    "Descriptor",
    "Doorbell",
    "EventCount",
    "Timer",
    "file_of",
    "is_still",
    "refuse_closed",
    "ring",
    "taking_from_the_system",
    "was_listened_at",
]

_RINGS: Final = 256
"""Bytes that are taken at once, one for each ring."""
_LIMITS: Final = {
    errno.ENOMEM: "the limits of address space and mappings are ulimit -v and vm.max_map_count",
    errno.ENOSPC: "the limit of watched descriptors of a user is fs.epoll.max_user_watches",
    errno.ENODEV: "the kernel has no file system to make it in",
}
"""For other errors of the system, the limit that was met and where it is set."""
_NOT_OURS: Final = (errno.EBADF, errno.EINVAL, errno.EPERM, errno.EEXIST, errno.ENOTSOCK)
"""Errors of a descriptor that is closed, or that refers to another file by now."""


@contextlib.contextmanager
def taking_from_the_system(call: str) -> Iterator[None]:
    """Raise the interface's error for a system that is out of descriptors or memory."""
    try:
        yield
    except NdError:
        raise
    except (ImportError, MemoryError) as exc:
        pass_on(exc)
        limit = limit_met_by_load(exc)
        if not limit:
            raise
        why = f"{str(exc) or 'no memory'}; {limit}"
        raise error(Status.INSUFFICIENT_RESOURCES, call, why) from exc
    except OSError as exc:
        pass_on(exc)
        refused = reason_of_refusal(exc)
        if refused:
            raise error(Status.NOT_SUPPORTED, call, refused) from exc
        limit = remedy(exc, _LIMITS.get(exc.errno or 0, ""))
        if not limit:
            raise
        raise error(
            Status.INSUFFICIENT_RESOURCES,
            call,
            f"{exc.strerror or exc} (errno {exc.errno}); {limit}",
        ) from exc


def refuse_closed(call: str, failure: BaseException) -> None:
    """Raise DEVICE_REMOVED for a failure of a descriptor that is open until its owner closes it."""
    if isinstance(failure, OSError) and failure.errno in _NOT_OURS:
        raise error(
            Status.DEVICE_REMOVED,
            call,
            f"{failure.strerror} (errno {failure.errno}): the program has closed descriptors that"
            " are not its own, as os.closerange does; open adapters after that, in a process where"
            " all earlier ones are closed",
        ) from failure


def file_of(fd: int) -> tuple[int, int]:
    """Return the device and inode of an open file, which no other file has while it is open."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def is_still(fd: int, file: tuple[int, int]) -> bool:
    """Return whether a descriptor still refers to a file, also in a child that inherits it.

    A program that becomes a daemon closes all descriptors, and then opens others.
    """
    try:
        return file_of(fd) == file
    except OSError as exc:
        pass_on(exc)
        return False


_open: weakref.WeakSet[Descriptor] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Close the copies of descriptors that fork() made, at once.

    Later their numbers may belong to other files: a program that becomes a daemon closes all
    descriptors and opens others, which the end of an object of its parent would close.
    """
    for descriptor in list(_open):
        descriptor.close()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Descriptor(Owned):
    """An open file descriptor that belongs to this object alone, and to no child of the process.

    It gets another number where its own is that of a standard stream, which the program has closed:
    output would ring it, and a program that opens its streams again would close it. A new file is
    opened by `of`: a number that is an argument here may be lost before.
    """

    __slots__ = ()

    def __init__(self, fd: int) -> None:
        if fd >= 0:
            self._take(int, fd)

    def _opened(self) -> None:
        _open.add(self)


class EventCount(Descriptor):
    """An eventfd: readable from `add` until `drain`."""

    __slots__ = ()

    def __init__(self) -> None:
        self._take(os.eventfd, 0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def add(self) -> None:
        """Make it readable."""
        try:
            os.eventfd_write(self._fd, 1)
        except (OSError, ValueError) as exc:
            pass_on(exc)  # full means readable already; closed means that no reader is left

    def drain(self) -> None:
        """Make it unreadable again."""
        try:
            os.eventfd_read(self._fd)
        except (OSError, ValueError) as exc:
            pass_on(exc)  # it was not readable


class Doorbell(Descriptor):
    """Where another process rings, a byte for each ring; readable until all of them are taken."""

    __slots__ = ("process",)
    process: str

    def begin(self, process: str) -> None:
        """Set the process that rings it from now on."""
        self.process = process
        os.set_blocking(self._fd, False)  # no other process holds it, so it stays so

    def answer(self) -> None:
        """Show the ringing process that this end is read (`was_listened_at`)."""
        ring(self)  # a byte the other way; it is never read

    def drain(self) -> bool:
        """Take the rings, or up to 256 of them; return False when no more will come."""
        try:
            return bool(os.read(self._fd, _RINGS))
        except BlockingIOError:
            return True
        except OSError as exc:
            pass_on(exc)
            return False


def ring(doorbell: Descriptor) -> None:
    """Ring another process, as the data plane does, by our end of its doorbell."""
    send_byte(doorbell.fileno())  # full: it was rung already; closed: no process reads it


def was_listened_at(doorbell: Descriptor) -> bool:
    """Return whether the other process has ever held its end of this doorbell."""
    return has_byte(doorbell.fileno())


_NEVER: Final = float("inf")


class Timer(Descriptor):
    """A timerfd: readable from a moment of `time.monotonic()` on."""

    __slots__ = ("_due", "_lock")

    def __init__(self) -> None:
        self._take(timerfd)
        self._due = _NEVER
        # Held while the deadline here and the one in the kernel change. Reentrant: a finaliser may
        # run in between.
        self._lock = threading.RLock()

    def set(self, when: float) -> None:
        """Become readable at `when`, unless an earlier moment is already set."""
        if when >= self._due or self._fd < 0:
            return
        with Held(self._lock):
            if when < self._due:
                self._due = when
                self._arm()

    def _arm(self) -> None:
        armed = _NEVER
        while armed != self._due:
            armed = self._due
            set_timerfd(self._fd, armed)

    def drain(self) -> None:
        """Make it unreadable again; the moment is over."""
        with Held(self._lock):
            self._due = _NEVER
            try:
                os.read(self._fd, 8)
            except (OSError, ValueError) as exc:
                pass_on(exc)  # it was not readable
            self._arm()  # if a finaliser has set it since, this may have taken its moment
