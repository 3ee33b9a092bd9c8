# SPDX-License-Identifier: Apache-2.0
"""Shared memory that has a name: opened for `Adapter.attach`, made for `Adapter.allocate(name=)`.

A name in /dev/shm outlives its process. Therefore each name that is made here has a record in the
runtime directory, locked for as long as its maker lives: `shmnd clean` removes a name whose record
no process locks. The record is written before the name appears, so that a crash at any step leaves
either no name, or one with a record.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import posix_ipc

from shmnd.broker.leftovers import RECORD, unlink_own
from shmnd.common.shortages import remedy
from shmnd.common.streams import clear_of_streams, duplicate
from shmnd.ring.shared_memory.bounds import require_room
from shmnd.ring.shared_memory.committing import commit
from shmnd.status import Status, error

if TYPE_CHECKING:
    from typing import Any

__all__ = ["NamedMemory", "open_segment"]

_SHM: Final = "/dev/shm"
_MOST: Final = 255
_BOUNDED: Final = (
    f"memory with a name is bounded by the size of {_SHM} (mount -o remount,size=..., docker "
    "--shm-size), memory without one is not"
)
_NEEDED: Final = f"memory with a name needs {_SHM}, memory without one does not"


# -- memory of others --


def open_segment(segment: Any, writable: bool, call: str) -> int:
    """Return a descriptor of one's own of what a caller names as shared memory."""
    try:
        descriptor = _descriptor_of(segment)
        if descriptor is not None:
            _require_mode(descriptor, segment, writable, call)
            return duplicate(descriptor)
        name = getattr(segment, "name", segment)
        if isinstance(name, os.PathLike):
            name = os.fspath(name)
        if isinstance(name, str) and "/" in name.lstrip("/"):
            flags = os.O_RDWR if writable else os.O_RDONLY
            flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            return clear_of_streams(os.open(name, flags))
        if isinstance(name, str):
            if b"\0" in os.fsencode(name):  # posix_ipc crashes where this is true, or raises
                raise ValueError("the name has a NUL character")
            made = posix_ipc.SharedMemory("/" + name.lstrip("/"), read_only=not writable)
            os.set_inheritable(made.fd, False)
            return clear_of_streams(int(made.fd))
    except posix_ipc.ExistentialError as exc:
        raise error(
            Status.INVALID_PARAMETER_1, call, f"no shared memory is named {name!r}"
        ) from exc
    except posix_ipc.PermissionsError as exc:
        raise _forbidden(call, name, str(exc)) from exc
    except (OSError, ValueError, OverflowError, posix_ipc.Error) as exc:
        if isinstance(exc, PermissionError):
            raise _forbidden(call, segment, exc.strerror) from exc
        why = getattr(exc, "strerror", None) or exc
        raise error(
            Status.INVALID_PARAMETER_1, call, f"{segment!r} cannot be opened: {why}"
        ) from exc
    raise error(
        Status.INVALID_PARAMETER_1,
        call,
        f"{type(segment).__name__} object is not shared memory: pass a posix_ipc.SharedMemory, a "
        "multiprocessing.shared_memory.SharedMemory, a name, a path or a descriptor",
    )


def _descriptor_of(segment: Any) -> int | None:
    """Return the descriptor that an object of either library has open, or that was passed."""
    if isinstance(segment, int) and not isinstance(segment, bool):
        return int(segment)
    for attribute in ("fd", "_fd"):
        found = getattr(segment, attribute, None)
        if isinstance(found, int) and found >= 0:
            return found
    return None


def _require_mode(descriptor: int, segment: Any, writable: bool, call: str) -> None:
    """Raise ACCESS_VIOLATION unless the kernel will map an open descriptor as it is wanted."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    mode = flags & os.O_ACCMODE
    if flags & os.O_PATH or mode == os.O_WRONLY:
        raise _forbidden(call, segment, "it is not open for reading")
    if writable and mode != os.O_RDWR:
        raise _forbidden(call, segment, "it is open for reading only; pass writable=False")


def _forbidden(call: str, segment: object, why: str | None) -> Exception:
    return error(Status.ACCESS_VIOLATION, call, f"{segment!r} cannot be opened: {why}")


# -- memory with a name of its own --

_locks: Final[set[int]] = set()
"""The descriptors of the records of this process; a child that is forked off closes its copies."""


def _after_fork_in_child() -> None:
    for lock in _locks:
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


class NamedMemory:
    """A file in /dev/shm that this process made, by its descriptor, until `forget`."""

    def __init__(self, name: str, nbytes: int, records: Path, call: str) -> None:
        self.name = _checked(name, call)
        self._pid = os.getpid()
        self._record: Path | None = None
        self._lock = -1
        self.fd = self._make(nbytes, call)
        try:
            self._write_record(records, call)
            self._appear(call)
        except BaseException:
            os.close(self.fd)
            self.forget()
            raise

    def _make(self, nbytes: int, call: str) -> int:
        require_room(nbytes, 0, call)
        fd = -1
        try:
            fd = os.open(_SHM, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fd = clear_of_streams(fd)
            os.fchmod(fd, 0o600)
            commit(fd, nbytes)
        except OSError as exc:
            if fd >= 0:
                os.close(fd)
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"{nbytes} bytes of named shared memory wanted in {_SHM}: {exc.strerror}; "
                + remedy(exc, _BOUNDED if exc.errno == errno.ENOSPC else _NEEDED),
            ) from exc
        return fd

    def _write_record(self, records: Path, call: str) -> None:
        self._record = records / f"{RECORD}{uuid.uuid4().hex}"
        found = os.fstat(self.fd)
        text = json.dumps({"name": self.name, "dev": found.st_dev, "ino": found.st_ino})
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._lock = clear_of_streams(os.open(self._record, flags, 0o600))
            _locks.add(self._lock)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.write(self._lock, text.encode())
        except OSError as exc:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"no record of name {self.name!r} in {records}: {exc.strerror}",
            ) from exc

    def _appear(self, call: str) -> None:
        try:
            folder = os.open(_SHM, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # A directory descriptor makes it linkat, which follows the link in /proc.
                os.link(f"/proc/self/fd/{self.fd}", self.name[1:], dst_dir_fd=folder)
            finally:
                os.close(folder)
        except FileExistsError as exc:
            raise error(
                Status.ADDRESS_ALREADY_EXISTS,
                call,
                f"shared memory named {self.name!r} exists; take another name, open that one "
                "(Adapter.attach), or remove it: shmnd clean, if a crash left it, or "
                "posix_ipc.unlink_shared_memory",
            ) from exc
        except OSError as exc:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"name {self.name!r}: {exc.strerror}; "
                + remedy(exc, "it is given through /proc/self/fd, which must be mounted"),
            ) from exc

    def forget(self) -> None:
        """Remove the name; the memory stays until its last mapping is gone. Harmless twice."""
        if self._lock < 0 or self._pid != os.getpid():
            return
        lock, self._lock = self._lock, -1
        assert self._record is not None
        unlink_own(os.pread(lock, 4096, 0))
        self._record.unlink(missing_ok=True)
        _locks.discard(lock)
        os.close(lock)


def _checked(name: object, call: str) -> str:
    if not isinstance(name, str) or not _is_plain(name):
        raise error(
            Status.INVALID_PARAMETER_3,
            call,
            f"name {name!r} is not a POSIX name: a slash, then up to {_MOST - 1} bytes without one",
        )
    return str(name)


def _is_plain(name: str) -> bool:
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    single = name.startswith("/") and "/" not in name[1:] and "\0" not in name
    return single and name[1:] not in ("", ".", "..") and length <= _MOST
