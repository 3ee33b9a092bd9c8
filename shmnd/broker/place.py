# SPDX-License-Identifier: Apache-2.0
"""Where a broker lives: a private directory with its lock and its socket.

The lock decides which process is the broker: it is held for the whole life of one, and by no other
process. A process id proves nothing. The socket is removed and made only by the holder of the lock,
so a stale one is always replaced and a live one never.

The holder removes the lock file and the directory too when it leaves, so that an unused namespace
leaves nothing (`remove`). A newcomer may be at any step meanwhile:

- it has opened the old lock file, and locks it after its removal: it finds that the locked file is
  not the one at the path, and begins anew (`try_lock`);
- it has made a new lock file: the directory is not empty, so it stays;
- it has found or made the directory, and makes its lock file in it after the removal: it makes the
  directory again (`try_lock`).

Only a holder removes a lock file, and it has checked that this is the one at the path; no other
process can replace that one meanwhile, since a lock file is made by a link, which replaces nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmnd.broker.access import Access, access_of, unusable
from shmnd.common.arguments import shown
from shmnd.common.interruption import pass_on
from shmnd.common.steps import step
from shmnd.common.streams import socket_clear_of_streams
from shmnd.status import NdError, Status, error

__all__ = [
    "DEFAULT_NAMESPACE",
    "Place",
    "namespace_name",
    "no_answer",
    "place_of",
    "root_of",
    "runtime_dir",
]

DEFAULT_NAMESPACE: Final = "default"
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CALL: Final = "open_adapter"  # what the user called when any of this goes wrong
_COMMON: Final = (Path("/tmp"), Path("/dev/shm"))
_SUN_PATH: Final = 107  # bytes of a socket's path, without the closing NUL


def namespace_name(namespace: str | None) -> str:
    """Return the namespace to use: the argument, SHMND_NAMESPACE, or the default."""
    name: object = namespace if namespace is not None else os.environ.get("SHMND_NAMESPACE", "")
    if namespace is None and not name:
        return DEFAULT_NAMESPACE
    if not isinstance(name, str) or not _NAMESPACE.fullmatch(name) or name in (".", ".."):
        raise error(
            Status.INVALID_PARAMETER,
            _CALL,
            f"namespace {shown(name):.82}: 1 to 64 letters, digits, dots, hyphens or underscores"
            " are allowed",
        )
    return name


def place_of(
    namespace: str | None = None,
    base: str | None = None,
    group: int | str | None = None,
    *,
    make: bool = True,
) -> Place:
    """Return the place of a namespace, with its directories made unless `make` is False.

    The base is the argument, SHMND_RUNTIME_DIR, $XDG_RUNTIME_DIR/shmnd, or /tmp/shmnd-<uid> (in
    /dev/shm where /tmp is read-only); of a group (the argument, or SHMND_GROUP) shmnd-group-<gid>
    there. NdError names the directory that cannot be used, and why.
    """
    name = namespace_name(namespace)
    access = access_of(group)
    root = root_of(base, access)
    place = Place(root / name, access)
    if not make and not _is_there(place.directory):
        return place
    access.make(root)
    if _given(base):
        access.require_sheltered(root)
    else:
        access.require(root)
    place.make()
    return place


def _is_there(directory: Path) -> bool:
    try:
        return stat.S_ISDIR(directory.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        pass_on(exc)
        raise unusable(directory, f"cannot be reached: {exc.strerror}", exc) from exc


def root_of(base: str | None = None, access: Access | None = None) -> Path:
    """Return the folder of all namespaces; it need not exist."""
    given = _given(base)
    if not given:
        return _default_root(access or access_of())
    try:
        return Path(given).absolute()
    except FileNotFoundError as exc:
        raise error(
            Status.DEVICE_NOT_READY,
            _CALL,
            f"the runtime directory {given!r:.200} is relative, and the working directory of this"
            " process was removed; SHMND_RUNTIME_DIR names another directory, best from / on",
        ) from exc


def _given(base: str | None) -> str:
    return base or os.environ.get("SHMND_RUNTIME_DIR", "")


def no_answer(call: str, path: str, pid: int, seconds: float) -> NdError:
    """Return the error of a broker that is there and does not answer."""
    return error(
        Status.IO_TIMEOUT,
        call,
        f"the broker at {path} (pid {pid or 'unknown'}) did not answer within {seconds:g} s; is it"
        " stopped? 'shmnd broker stop' ends it, the next call that needs one starts another",
    )


def runtime_dir(namespace: str | None = None, base: str | None = None) -> Path:
    """Return the directory of a namespace, made and checked."""
    return place_of(namespace, base).directory


def _default_root(access: Access) -> Path:
    xdg = os.environ.get("XDG_RUNTIME_DIR", "")
    # A variable that leads nowhere (containers inherit such) is as good as none: every process
    # of this environment comes to the same conclusion. No other user can enter that directory.
    if access.gid is None and xdg.startswith("/") and Path(xdg).is_dir():
        access.require_sheltered(Path(xdg))
        return Path(xdg) / "shmnd"
    root = _common_directory()
    access.require_sheltered(root)
    return root / (f"shmnd-{os.geteuid()}" if access.gid is None else f"shmnd-group-{access.gid}")


def _common_directory() -> Path:
    """Return a directory for all processes, whatever their TMPDIR; it may be full.

    The choice depends on how the file system is mounted alone: a container may have a read-only
    /tmp, and has a /dev/shm.
    """
    for path in _COMMON:
        try:
            if not os.statvfs(path).f_flag & os.ST_RDONLY:
                return path
        except OSError as exc:
            pass_on(exc)
            continue
    return _COMMON[0]


class Place:
    """The directory of one namespace, and the files in it."""

    def __init__(self, directory: Path, access: Access | None = None) -> None:
        self.directory = directory
        self.access = access or Access()
        self.lock = directory / "lock"
        self.socket = directory / "broker.sock"
        self.new_socket = directory / "broker.new"
        """The socket under the name that it has until the broker listens."""

    @property
    def mark(self) -> int:
        """A number that identifies the directory, where there is no room for a path."""
        return int.from_bytes(hashlib.sha256(os.fsencode(self.directory)).digest()[:8], "big")

    def make(self) -> None:
        """Make the directory, unless there is one; NdError when it is not safe to use."""
        self.access.make(self.directory)
        self.access.require(self.directory)

    def remove(self, lock: int) -> bool:
        """Remove the directory with its files, as the holder of the lock.

        Return False when it stays, because this process does not hold the lock or another file is
        in the directory.
        """
        if not self.holds(lock):
            return False
        for path in (self.new_socket, self.socket, self.lock):
            path.unlink(missing_ok=True)
            step("place-emptied")
        try:
            self.directory.rmdir()
        except OSError as exc:
            pass_on(exc)
            return False  # a newcomer is making its lock file
        return True

    def try_lock(self) -> int | None:
        """Lock the place for a broker, and return the descriptor; None if it is taken."""
        while True:
            try:
                fd = self.access.open_lock(self.lock)
            except FileNotFoundError:
                self.make()  # the last broker has removed it
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            except OSError as exc:
                os.close(fd)
                pass_on(exc)
                raise unusable(self.lock, f"cannot be locked: {exc.strerror}", exc) from exc
            if self.holds(fd):
                return fd
            os.close(fd)  # the file was removed meanwhile; lock the present one

    def adopt(self, fd: int) -> int:
        """Take over an inherited descriptor and return it; OSError if it is not the lock."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not self.holds(fd):
            raise OSError(errno.EBADF, f"descriptor {fd} is not the lock", str(self.lock))
        os.set_inheritable(fd, False)
        return fd

    def holds(self, fd: int) -> bool:
        """Return whether a descriptor is still the lock file that all other processes find."""
        try:
            return os.path.samestat(os.fstat(fd), self.lock.lstat())
        except OSError as exc:
            pass_on(exc)
            return False

    def listen(self) -> socket.socket:
        """Make the socket; only for the holder of the lock, so any existing file is stale.

        A process that finds it can connect, also when this process dies during the call.
        """
        self.new_socket.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with self._short(self.new_socket) as path:
                sock.bind(path)
            step("broker-socket-bound")
            self.access.give_socket(self.new_socket)
            sock.listen(4096)  # the kernel takes what net.core.somaxconn allows
            self.new_socket.rename(self.socket)
            step("broker-socket-shown")
        except BaseException:
            sock.close()
            raise
        return sock

    def connect(self) -> socket.socket | None:
        """Return a connection to the broker; None when none runs or it accepts no client now."""
        try:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            sock = socket_clear_of_streams(made)
        except OSError as exc:
            pass_on(exc)
            raise unusable(self.socket, f"cannot be reached: {exc.strerror}", exc) from exc
        try:
            with self._short(self.socket) as path:
                sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            sock.close()
            return None
        except OSError as exc:
            sock.close()
            pass_on(exc)
            raise unusable(self.socket, f"cannot be reached: {exc.strerror}", exc) from exc
        except BaseException:
            sock.close()
            raise
        return sock

    @contextlib.contextmanager
    def _short(self, path: Path) -> Iterator[str]:
        """Yield a spelling of the path that fits into a socket address."""
        if len(os.fsencode(path)) <= _SUN_PATH:
            yield str(path)
            return
        fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{fd}/{path.name}"
        finally:
            os.close(fd)
