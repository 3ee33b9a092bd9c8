# SPDX-License-Identifier: Apache-2.0
"""What a crash of everything leaves behind, and its removal.

Shared memory goes with the last process that has it, since it has no name. What can stay is small:
the place of a namespace whose broker was killed, with its lock file and socket; the name of memory
that `Adapter.allocate(name=)` made, with its record in the place; and, of releases that gave
segments names for an instant, such a name in /dev/shm. Only a lock is evidence that an owner lives:
the kernel drops a lock with the process that holds it, whatever became of its process id. A process
that was killed while it made the place itself leaves an empty directory or file with a name of its
own, which holds no other process up.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shmnd.broker.access import access_of
from shmnd.broker.place import Place, root_of
from shmnd.status import NdError

__all__ = ["RECORD", "Leftover", "find_leftovers", "remove_leftovers", "unlink_own"]

RECORD: Final = "name-"
"""The beginning of the file name of a record: of a name in /dev/shm, locked by its maker."""

_SHM: Final = Path("/dev/shm")
_OLD_ENOUGH: Final = 10.0
"""Seconds. A release that used names took them away again within the call that made them."""


@dataclass(frozen=True)
class Leftover:
    """A file where this library keeps its files."""

    path: Path
    kind: str
    """`socket` of a broker; `name`, the record of a name in /dev/shm; `segment`, a name that an
    earlier release made there; or `namespace`, the directory of one that no process uses."""
    stale: bool
    """Its owner is proven dead; else it is in use, or too young to decide."""
    nbytes: int = 0


def find_leftovers(base: str | None = None) -> list[Leftover]:
    """Return the leftovers of all namespaces of this user, and of /dev/shm. Changes nothing."""
    places = list(_places(base))
    records = [each for place in places for each in _records(place)]
    others = [each for place in places for each in _leftovers_of(place)]
    return [*records, *others, *_segments()]


def remove_leftovers(found: list[Leftover]) -> list[Leftover]:
    """Remove the stale ones, each while its lock proves it stale; return those that stay."""
    return [each for each in found if each.stale and not _REMOVE[each.kind](each.path)]


def _places(base: str | None) -> Iterator[Place]:
    root = root_of(base)
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink() and entry.lstat().st_uid == os.geteuid():
            yield Place(entry, access_of())


def _leftovers_of(place: Place) -> Iterator[Leftover]:
    sockets = [path for path in (place.socket, place.new_socket) if _is_socket(path)]
    stale = not os.path.lexists(place.lock)  # this check makes none
    if not stale and (lock := _lock_of(place)) is not None:
        os.close(lock)
        stale = True
    for path in sockets:
        yield Leftover(path, "socket", stale=stale)
    if stale and not sockets and _only_ours(place):
        yield Leftover(place.directory, "namespace", stale=True)


def _only_ours(place: Place) -> bool:
    """Return whether nothing is there but a lock file."""
    try:
        return {entry.name for entry in place.directory.iterdir()} <= {place.lock.name}
    except OSError:
        return False


def _remove_namespace(path: Path) -> bool:
    """Remove an unused place; return False if it stays, as when another process uses it."""
    place = Place(path, access_of())
    if not path.is_dir():
        return True
    lock = _lock_of(place)
    if lock is None:
        return False
    try:
        return place.remove(lock)
    except OSError:
        return False
    finally:
        os.close(lock)


def _remove_socket(path: Path) -> bool:
    place = Place(path.parent, access_of())
    if not os.path.lexists(path):
        return True  # it went with the place
    lock = _lock_of(place)
    if lock is None:
        return False
    try:
        path.unlink(missing_ok=True)  # as long as the lock is ours, no broker can make one
        place.remove(lock)  # stays where a newcomer has begun to use it
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _lock_of(place: Place) -> int | None:
    """Take the lock that a broker holds for its whole life, and return its descriptor.

    Return None when a broker holds it, or when it cannot be taken.
    """
    try:
        return place.try_lock()
    except NdError:
        return None


def _segments() -> Iterator[Leftover]:
    """Yield the names of segments that releases before this one made in /dev/shm."""
    ours = re.compile(rf"shmnd-{os.getuid()}-[a-z]+-[0-9a-f]{{32}}")
    try:
        entries = sorted(_SHM.iterdir())
    except OSError:
        return
    for entry in entries:
        if ours.fullmatch(entry.name):
            fd = _lock_segment(entry)
            if fd is None:
                yield Leftover(entry, "segment", stale=False)
                continue
            size = os.fstat(fd).st_size
            os.close(fd)
            yield Leftover(entry, "segment", stale=True, nbytes=size)


def _lock_segment(path: Path) -> int | None:
    """Lock a segment and return its descriptor; None unless it is certainly stale.

    A process that makes a segment locks it soon after, so a young file is not taken.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (
            stat.S_ISREG(found.st_mode)
            and found.st_uid == os.geteuid()
            and time.time() - found.st_mtime >= _OLD_ENOUGH
            and os.path.samestat(found, path.lstat())
        ):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _remove_segment(path: Path) -> bool:
    fd = _lock_segment(path)
    if fd is None:
        return False
    try:
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _records(place: Place) -> Iterator[Leftover]:
    """Yield the records of names in /dev/shm that processes of a namespace made."""
    for path in sorted(place.directory.glob(f"{RECORD}*")):
        fd = _lock_record(path)
        if fd is not None:
            os.close(fd)
        yield Leftover(path, "name", stale=fd is not None)


def _lock_record(path: Path) -> int | None:
    """Lock the record of a name and return its descriptor; None while its maker lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A record is written after it is locked; an empty one may be about to be.
        if os.fstat(fd).st_size or time.time() - os.fstat(fd).st_mtime >= _OLD_ENOUGH:
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _remove_record(path: Path) -> bool:
    fd = _lock_record(path)
    if fd is None:
        return False
    try:
        unlink_own(os.pread(fd, 4096, 0))
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(fd)
    if not os.path.lexists(path.parent / "broker.sock"):
        _remove_namespace(path.parent)  # it may have kept the place from going
    return True


def unlink_own(record: bytes) -> None:
    """Remove the name in /dev/shm of a record, if it is still that of the same file."""
    try:
        read = json.loads(record)
        path = _SHM / str(read["name"])[1:]
        found = path.lstat()
        if path.parent == _SHM and (found.st_dev, found.st_ino) == (read["dev"], read["ino"]):
            path.unlink()
    except (ValueError, TypeError, KeyError, OSError):
        pass  # it is gone, or another file has the name by now


_REMOVE: Final = {
    "socket": _remove_socket,
    "segment": _remove_segment,
    "name": _remove_record,
    "namespace": _remove_namespace,
}
