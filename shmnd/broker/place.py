# SPDX-License-Identifier: Apache-2.0
"""Where a broker lives: a private directory with its lock and its socket.

The lock decides who is the broker: it is held for the whole life of one, and by nobody else. A
process id proves nothing. The lock file is never removed; the socket is removed and made only by
who holds the lock, so a stale one is always replaced and a live one never.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmnd.status import NdError, Status, error

__all__ = ["DEFAULT_NAMESPACE", "Place", "namespace_name", "place_of", "root_of", "runtime_dir"]

DEFAULT_NAMESPACE: Final = "default"
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CALL: Final = "open_adapter"  # what the user called when any of this goes wrong
_SUN_PATH: Final = 107  # bytes of a socket's path, without the closing NUL
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

_ERRNO_STATUS: Final = {
    errno.EACCES: Status.ACCESS_VIOLATION,
    errno.EPERM: Status.ACCESS_VIOLATION,
    errno.EROFS: Status.ACCESS_VIOLATION,
    errno.ENOSPC: Status.INSUFFICIENT_RESOURCES,
    errno.EDQUOT: Status.INSUFFICIENT_RESOURCES,
    errno.EMFILE: Status.INSUFFICIENT_RESOURCES,
    errno.ENFILE: Status.INSUFFICIENT_RESOURCES,
    errno.ENOMEM: Status.INSUFFICIENT_RESOURCES,
}


def namespace_name(namespace: str | None) -> str:
    """Give the namespace to use: the argument, SHMND_NAMESPACE, or the default."""
    name = namespace if namespace is not None else os.environ.get("SHMND_NAMESPACE", "")
    if namespace is None and not name:
        return DEFAULT_NAMESPACE
    if not _NAMESPACE.fullmatch(name) or name in (".", ".."):
        raise error(
            Status.INVALID_PARAMETER,
            _CALL,
            f"namespace {name[:80]!r}: 1 to 64 letters, digits, dots, hyphens or underscores are"
            " allowed",
        )
    return name


def place_of(namespace: str | None = None, base: str | None = None) -> Place:
    """Find the place of a namespace and make its directories.

    The base is the argument, SHMND_RUNTIME_DIR, $XDG_RUNTIME_DIR/shmnd, or shmnd-<uid> in the
    directory for temporary files. NdError names the directory that cannot be used, and why.
    """
    name = namespace_name(namespace)
    root = root_of(base)
    _make(root)
    if _given(base):
        _require_sheltered(root)
    else:
        _require_private(root)
    directory = root / name
    _make(directory)
    _require_private(directory)
    return Place(directory)


def root_of(base: str | None = None) -> Path:
    """Find the folder of all namespaces; it need not exist."""
    given = _given(base)
    return Path(given).absolute() if given else _default_root()


def _given(base: str | None) -> str:
    return base or os.environ.get("SHMND_RUNTIME_DIR", "")


def runtime_dir(namespace: str | None = None, base: str | None = None) -> Path:
    """Give the directory of a namespace, made and checked."""
    return place_of(namespace, base).directory


def _default_root() -> Path:
    xdg = os.environ.get("XDG_RUNTIME_DIR", "")
    # A variable that leads nowhere (containers inherit such) is as good as none: every process
    # of this environment comes to the same conclusion.
    if xdg.startswith("/") and Path(xdg).is_dir():
        _require_sheltered(Path(xdg))
        return Path(xdg) / "shmnd"
    import tempfile  # slow to load, and a broker that is told its place never needs it

    root = Path(tempfile.gettempdir()).absolute()
    _require_sheltered(root)
    return root / f"shmnd-{os.geteuid()}"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
        directory.chmod(0o700)  # the umask may have taken bits that we need
    except FileExistsError:
        return
    except OSError as exc:
        raise _unusable(directory, f"cannot be made: {exc.strerror}", exc) from exc


def _require_private(directory: Path) -> None:
    """Nobody but this user may come in."""
    found = _lstat(directory)
    if found.st_uid != os.geteuid():
        raise _refused(directory, f"belongs to uid {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & _OTHERS:
        raise _refused(
            directory, f"has mode {stat.S_IMODE(found.st_mode):04o}; chmod it to 0700 first"
        )


def _require_sheltered(directory: Path) -> None:
    """Nobody else may put another directory in the place of one that we make inside."""
    directory = directory.resolve()
    found = _lstat(directory)
    if found.st_uid not in (0, os.geteuid()):
        raise _refused(
            directory,
            f"belongs to uid {found.st_uid}, not to {os.geteuid()} (was XDG_RUNTIME_DIR or"
            " SHMND_RUNTIME_DIR inherited from another user?)",
        )
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        raise _refused(
            directory,
            f"may be written by others (mode {stat.S_IMODE(found.st_mode):04o}, not sticky)",
        )


def _lstat(directory: Path) -> os.stat_result:
    try:
        found = directory.lstat()
    except OSError as exc:
        raise _unusable(directory, f"cannot be looked at: {exc.strerror}", exc) from exc
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(directory, "is not a directory")
    return found


def _refused(directory: Path, why: str) -> NdError:
    return error(
        Status.ACCESS_VIOLATION,
        _CALL,
        f"the runtime directory {directory} is not safe to use: it {why}. SHMND_RUNTIME_DIR names"
        " another",
    )


def _unusable(path: Path, why: str, exc: OSError) -> NdError:
    status = _ERRNO_STATUS.get(exc.errno or 0, Status.DEVICE_NOT_READY)
    return error(status, _CALL, f"{path} {why}. SHMND_RUNTIME_DIR names another directory")


class Place:
    """The directory of one namespace, and what lies in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "lock"
        self.socket = directory / "broker.sock"

    def try_lock(self) -> int | None:
        """Become the broker, or whoever starts it: give the locked descriptor, None if taken."""
        while True:
            fd = self._open_lock()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            except OSError as exc:
                os.close(fd)
                raise _unusable(self.lock, f"cannot be locked: {exc.strerror}", exc) from exc
            if self.holds(fd):
                return fd
            os.close(fd)  # somebody removed the file meanwhile; lock the one that is there now

    def adopt(self, fd: int) -> int:
        """Take over a lock that was inherited; OSError when it is none."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not self.holds(fd):
            raise OSError(errno.EBADF, f"descriptor {fd} is not the lock", str(self.lock))
        os.set_inheritable(fd, False)
        return fd

    def holds(self, fd: int) -> bool:
        """Tell whether a descriptor is still the lock file that everybody else finds."""
        try:
            return os.path.samestat(os.fstat(fd), self.lock.lstat())
        except OSError:
            return False

    def _open_lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.lock, flags, 0o600)
        except OSError as exc:
            raise _unusable(self.lock, f"cannot be opened: {exc.strerror}", exc) from exc

    def listen(self) -> socket.socket:
        """Make the socket; only for who holds the lock. What lies there is stale by that."""
        self.socket.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with self._short(self.socket) as path:
                sock.bind(path)
            self.socket.chmod(0o600)
            sock.listen(4096)  # the kernel takes what net.core.somaxconn allows
        except BaseException:
            sock.close()
            raise
        return sock

    def connect(self) -> socket.socket | None:
        """Connect to the broker; None when nobody is there or it takes nobody now."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with self._short(self.socket) as path:
                sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            sock.close()
            return None
        except OSError as exc:
            sock.close()
            raise _unusable(self.socket, f"cannot be reached: {exc.strerror}", exc) from exc
        except BaseException:
            sock.close()
            raise
        return sock

    @contextlib.contextmanager
    def _short(self, path: Path) -> Iterator[str]:
        """Give a spelling of the path that fits into a socket address."""
        if len(os.fsencode(path)) <= _SUN_PATH:
            yield str(path)
            return
        fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{fd}/{path.name}"
        finally:
            os.close(fd)
