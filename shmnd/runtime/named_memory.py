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

from shmnd.broker.leftovers import RECORD, unlink_own
from shmnd.common.arguments import shown
from shmnd.common.closing import Ending, surely
from shmnd.common.descriptors import Descriptor
from shmnd.common.exits import AtExit
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.common.shortages import remedy
from shmnd.common.weak import Living
from shmnd.ring.shared_memory.bounds import require_room
from shmnd.ring.shared_memory.committing import commit
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from typing import Any

__all__ = ["NamedMemory", "forget_all", "open_segment"]

_SHM: Final = "/dev/shm"
_MOST: Final = 255
_BOUNDED: Final = (
    f"memory with a name is bounded by the size of {_SHM} (mount -o remount,size=..., docker "
    "--shm-size), memory without one is not"
)
_NEEDED: Final = f"memory with a name needs {_SHM}, memory without one does not"


# -- memory of others --


def open_segment(segment: Any, writable: bool, call: str) -> Descriptor:
    """Return a new descriptor of the shared memory that a caller names."""
    name = segment
    try:
        descriptor = _descriptor_of(segment)
        if descriptor is not None:
            _require_mode(descriptor, segment, writable, call)
            return Descriptor.of(fcntl.fcntl, descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
        name = getattr(segment, "name", segment)
        if isinstance(name, os.PathLike):
            name = os.fspath(name)
        if isinstance(name, str):
            flags = os.O_RDWR if writable else os.O_RDONLY
            flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            return Descriptor.of(os.open, _path_of(name), flags)
    except (OSError, ValueError, OverflowError) as exc:
        pass_on(exc)
        if isinstance(exc, NdError):
            raise  # it says why
        if isinstance(exc, PermissionError):
            raise _forbidden(call, name, exc.strerror) from exc
        if isinstance(exc, FileNotFoundError) and not _is_path(name):
            raise error(
                Status.INVALID_PARAMETER_1, call, f"no shared memory is named {name!r}"
            ) from exc
        why = getattr(exc, "strerror", None) or exc
        raise error(
            Status.INVALID_PARAMETER_1, call, f"{shown(segment)} cannot be opened: {why}"
        ) from exc
    raise error(
        Status.INVALID_PARAMETER_1,
        call,
        f"{type(segment).__name__} object is not shared memory: pass a posix_ipc.SharedMemory, a "
        "multiprocessing.shared_memory.SharedMemory, a name, a path or a descriptor",
    )


def _is_path(name: str) -> bool:
    return "/" in name.lstrip("/")


def _path_of(name: str) -> str:
    """Return the path that shm_open opens. That call itself returns a number without an owner."""
    return name if _is_path(name) else f"{_SHM}/{name.lstrip('/')}"


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
    return error(Status.ACCESS_VIOLATION, call, f"{shown(segment)} cannot be opened: {why}")


# -- memory with a name of its own --


class NamedMemory(Ending):
    """A file in /dev/shm that this process made, until `forget`, or until it is dropped.

    The descriptors belong to objects from the start: a handler of a signal may raise anywhere.
    """

    _record: Path | None = None

    def __init__(self, name: str, nbytes: int, records: Path, call: str) -> None:
        self.name = _checked(name, call)
        self._pid = os.getpid()
        self._lock = Descriptor(-1)  # of the record; a child that is forked off closes its copy
        self.file = _make(nbytes, call)
        _all.add(self)
        _exit.register()
        try:
            self._write_record(records, call)
            self._appear(call)
        except BaseException:
            self.file.close()
            self.forget()
            raise

    def _write_record(self, records: Path, call: str) -> None:
        self._record = records / f"{RECORD}{uuid.uuid4().hex}"
        found = os.fstat(self.file.fileno())
        text = json.dumps({"name": self.name, "dev": found.st_dev, "ino": found.st_ino})
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._lock = Descriptor.of(os.open, self._record, flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.write(self._lock.fileno(), text.encode())
        except OSError as exc:
            pass_on(exc)
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"no record of name {self.name!r} in {records}: {exc.strerror}",
            ) from exc

    def _appear(self, call: str) -> None:
        try:
            folder = Descriptor.of(os.open, _SHM, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # A directory descriptor makes it linkat, which follows the link in /proc.
                source = f"/proc/self/fd/{self.file.fileno()}"
                os.link(source, self.name[1:], dst_dir_fd=folder.fileno())
            finally:
                folder.close()
        except FileExistsError as exc:
            raise error(
                Status.ADDRESS_ALREADY_EXISTS,
                call,
                f"shared memory named {self.name!r} exists; take another name, open that one "
                "(Adapter.attach), or remove it: shmnd clean, if a crash left it, or "
                "posix_ipc.unlink_shared_memory",
            ) from exc
        except OSError as exc:
            pass_on(exc)
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"name {self.name!r}: {exc.strerror}; "
                + remedy(exc, "it is given through /proc/self/fd, which must be mounted"),
            ) from exc

    def forget(self) -> None:
        """Remove the name; the memory stays until its last mapping is gone. Harmless twice."""
        if self._record is None or self._pid != os.getpid():
            return
        if self._lock.fileno() >= 0:
            unlink_own(os.pread(self._lock.fileno(), 4096, 0))
        self._record.unlink(missing_ok=True)
        self._record = None  # last: what a handler has interrupted is called again
        self._lock.close()

    _end_of_life = forget


_all: Final[Living[NamedMemory]] = Living()


def forget_all(memories: list[NamedMemory]) -> None:
    """Remove the names, all of them; then raise what the last signal handler has raised."""
    raised = None
    for each in memories:
        try:
            surely(each.forget)
        except BaseException as exc:
            if raised is None or is_interruption(exc):
                raised = exc
    if raised is not None:
        raise raised


def _forget_at_exit() -> None:
    forget_all(_all.snapshot())


_exit: Final = AtExit(_forget_at_exit)


def _make(nbytes: int, call: str) -> Descriptor:
    """Return a file of memory that has no name yet."""
    require_room(nbytes, 0, call)
    file = Descriptor(-1)
    try:
        file = Descriptor.of(os.open, _SHM, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.fchmod(file.fileno(), 0o600)
        commit(file.fileno(), nbytes)
    except OSError as exc:
        file.close()
        pass_on(exc)
        raise error(
            Status.INSUFFICIENT_RESOURCES,
            call,
            f"{nbytes} bytes of named shared memory wanted in {_SHM}: {exc.strerror}; "
            + remedy(exc, _BOUNDED if exc.errno == errno.ENOSPC else _NEEDED),
        ) from exc
    return file


def _checked(name: object, call: str) -> str:
    if not isinstance(name, str) or not _is_plain(name):
        raise error(
            Status.INVALID_PARAMETER_3,
            call,
            f"name {shown(name)} is not a POSIX name: a slash, then up to {_MOST - 1} bytes without"
            " one",
        )
    return str(name)


def _is_plain(name: str) -> bool:
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    single = name.startswith("/") and "/" not in name[1:] and "\0" not in name
    return single and name[1:] not in ("", ".", "..") and length <= _MOST
