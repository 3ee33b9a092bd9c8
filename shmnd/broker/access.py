# SPDX-License-Identifier: Apache-2.0
"""Access to a broker: for this user alone or, with a group, for its members too.

Access is checked three times. Only the permitted users can enter the directory of the socket; the
mode of the socket admits only them; and each end of a connection asks the kernel which process has
the other end.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import re
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from shmnd.common.arguments import integer, shown
from shmnd.common.interruption import Ignoring, pass_on
from shmnd.common.shortages import remedy
from shmnd.common.steps import step
from shmnd.common.streams import clear_of_streams
from shmnd.status import NdError, Status, error

__all__ = [
    "Access",
    "Caller",
    "access_of",
    "caller_at",
    "is_one_user",
    "process_of",
    "unusable",
]

_CALL: Final = "open_adapter"  # what the user called when any of this goes wrong
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_SO_PEERGROUPS: Final = 59  # Python has no name for it
_UID_MAP: Final = Path("/proc/self/uid_map")
_ROOT: Final = 0
_ALL_USERS: Final = 0xFFFFFFFF
_OVERFLOW_UID: Final = 65534
_GROUPS_BYTES: Final = 1024  # the most that Python asks for: 256 groups

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


class Caller(NamedTuple):
    """The process at the other end of a socket, as the kernel knew it at the connection."""

    pid: int
    """In this process's PID namespace; 0 when it is not visible there."""
    uid: int
    gids: frozenset[int]


def caller_at(sock: socket.socket) -> Caller:
    """Return the process and the user at the other end, as the kernel names them."""
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(packed)
    more = array.array("I")
    try:
        more.frombytes(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES))
    except (OSError, ValueError) as exc:
        pass_on(exc)  # not reported by the kernel, or too many groups: the main one counts
    return Caller(pid, uid, frozenset([gid, *more]))


def is_one_user(uid: int) -> bool:
    """Return whether a user id belongs to one user.

    The kernel reports the overflow id for every user without an id in this user namespace.
    """
    if uid != _OVERFLOW_UID:
        return True
    try:
        first, _, count = map(int, _UID_MAP.read_text(encoding="ascii").split())
    except (OSError, ValueError) as exc:
        pass_on(exc)
        return False
    return first == 0 and count >= _ALL_USERS


def process_of(pidfd: int) -> int:
    """Return the process that a pidfd stands for, in this PID namespace.

    -1 when it is dead, 0 when it is not visible here or /proc does not show it. OSError when no
    descriptor is free to ask.
    """
    try:
        text = Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii")
    except OSError as exc:
        if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return 0
    found = re.search(r"^Pid:\s*(-?\d+)$", text, re.MULTILINE)
    return 0 if found is None else int(found[1])


def access_of(group: int | str | None = None) -> Access:
    """Return the access for a group, by name or number.

    Without the argument, SHMND_GROUP names the group; without both, only this user has access.
    """
    given = group if group is not None else os.environ.get("SHMND_GROUP") or None
    if given is None:
        return Access()
    gid = _gid_of(given)
    if os.geteuid() != _ROOT and gid not in (os.getegid(), *os.getgroups()):
        raise error(
            Status.ACCESS_VIOLATION,
            _CALL,
            f"group {given!r}: this process is not in it (it is in"
            f" {sorted({os.getegid(), *os.getgroups()})})",
        )
    return Access(gid)


def _gid_of(given: int | str) -> int:
    if isinstance(given, str):
        text, number = given, int(given) if given.isdecimal() and len(given) <= 10 else None
    else:
        text, number = "", integer(given)
    if number is not None:
        if isinstance(given, bool) or not 0 <= number < 2**32 - 1:
            raise error(Status.INVALID_PARAMETER, _CALL, f"group {shown(given)} is not a group id")
        return number
    if not isinstance(given, str):
        raise error(
            Status.INVALID_PARAMETER,
            _CALL,
            f"group {shown(given)} is a {type(given).__name__}; pass the name or the number of a"
            " group",
        )
    import grp  # rarely needed

    try:
        return grp.getgrnam(text).gr_gid
    except (KeyError, ValueError) as exc:
        pass_on(exc)
        raise error(
            Status.INVALID_PARAMETER, _CALL, f"group {text[:80]!r} does not exist on this host"
        ) from None


@dataclass(frozen=True)
class Access:
    """Who may use a broker and its files."""

    gid: int | None = None
    """The group; None for this user alone."""

    def __str__(self) -> str:
        mine = f"uid {os.geteuid()}"
        return f"{mine} only" if self.gid is None else f"{mine}, group {self.gid} and root only"

    def admits(self, caller: Caller) -> bool:
        """Return whether a caller may connect, or may run the broker.

        Root counts as a member of each group, as in `access_of`: the broker that it happens to
        start serves all members, and a broker of a member serves it.
        """
        if caller.uid == os.geteuid():
            return True
        return self.gid is not None and (caller.uid == _ROOT or self.gid in caller.gids)

    def make(self, directory: Path) -> None:
        """Make a directory for the permitted users, unless there is one.

        They find it complete or not at all, also when this process dies in between.
        """
        if os.path.lexists(directory):
            return
        unfinished = _unfinished(directory)
        try:
            unfinished.mkdir(mode=0o700)
            step("directory-made")
            self._set_mode(unfinished, 0o700, 0o2770)  # the umask may have taken bits that we need
            unfinished.rename(directory)
        except OSError as exc:
            with Ignoring(OSError):
                unfinished.rmdir()
            pass_on(exc)
            if not os.path.lexists(directory):  # else another process was faster
                raise unusable(directory, f"cannot be made: {exc.strerror}", exc) from exc

    def _set_mode(self, path: Path, of_user: int, of_group: int) -> None:
        """Set the mode for this user alone or, with a group, the group and the mode for both."""
        if self.gid is not None:
            os.chown(path, -1, self.gid)
        path.chmod(of_user if self.gid is None else of_group)

    def give_socket(self, path: Path) -> None:
        """Let only the permitted users connect to a socket."""
        self._set_mode(path, 0o600, 0o660)

    def open_lock(self, path: Path) -> int:
        """Open the lock file, or make it, and return its descriptor.

        Raise FileNotFoundError when its directory does not exist.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            while True:
                try:
                    return clear_of_streams(os.open(path, flags))
                except FileNotFoundError:
                    self._make_lock(path)
        except FileNotFoundError:
            raise
        except OSError as exc:
            pass_on(exc)
            raise unusable(path, f"cannot be opened: {exc.strerror}", exc) from exc

    def _make_lock(self, path: Path) -> None:
        """Make the lock file under another name first, so that it never has a wrong mode."""
        unfinished = _unfinished(path)
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            step("lock-made")
            self._set_mode(unfinished, 0o600, 0o660)
            with contextlib.suppress(FileExistsError):  # another process was faster
                path.hardlink_to(unfinished)
        finally:
            unfinished.unlink()

    def require(self, directory: Path) -> None:
        """Require a directory that only the permitted users can enter."""
        if self.gid is None:
            _require_private(directory)
            return
        found = _lstat(directory)
        if found.st_gid != self.gid or found.st_mode & 0o2777 != 0o2770:
            raise _refused(
                directory,
                f"belongs to group {found.st_gid} with mode {stat.S_IMODE(found.st_mode):04o},"
                f" where group {self.gid} wants its own with 2770",
            )

    def require_sheltered(self, directory: Path) -> None:
        """Require parents in which no other user can replace a directory that we make."""
        directory = directory.resolve()
        found = _lstat(directory)
        if self.gid is not None and found.st_gid == self.gid and not found.st_mode & stat.S_IWOTH:
            return  # its members can, and are trusted with it
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


def _unfinished(path: Path) -> Path:
    """Return a temporary name next to a path, for a file that is renamed when it is complete."""
    return path.with_name(f".{path.name}-{os.urandom(4).hex()}")


def _require_private(directory: Path) -> None:
    found = _lstat(directory)
    if found.st_uid != os.geteuid():
        raise _refused(
            directory,
            f"belongs to uid {found.st_uid}, not to {os.geteuid()} (for several users there is"
            " group=)",
        )
    if found.st_mode & _OTHERS:
        raise _refused(
            directory, f"has mode {stat.S_IMODE(found.st_mode):04o}; chmod it to 0700 first"
        )


def _lstat(directory: Path) -> os.stat_result:
    try:
        found = directory.lstat()
    except OSError as exc:
        pass_on(exc)
        raise unusable(directory, f"cannot be inspected: {exc.strerror}", exc) from exc
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


def unusable(path: Path, why: str, exc: OSError) -> NdError:
    """Return the error of a file or directory that the system does not let this process use."""
    status = _ERRNO_STATUS.get(exc.errno or 0, Status.DEVICE_NOT_READY)
    help_ = remedy(exc, "SHMND_RUNTIME_DIR names another directory")
    return error(status, _CALL, f"{path} {why}; {help_}")
