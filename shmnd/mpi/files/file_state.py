# SPDX-License-Identifier: Apache-2.0
"""An open file: its descriptor, its view and pointers, and what its ranks do together."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from shmnd.common.interruption import is_interruption, pass_on
from shmnd.common.owned import Owned
from shmnd.common.shortages import remedy_of_call
from shmnd.mpi import constants
from shmnd.mpi.communicators.group import Group
from shmnd.mpi.datatypes.datatype import BYTE
from shmnd.mpi.files.shared_pointer import SharedPointer
from shmnd.mpi.files.view import View
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.handle import State
from shmnd.mpi.objects.info import Info, hints_of

_Value = TypeVar("_Value")

_ERRORS: Final = {
    errno.ENOENT: constants.ERR_NO_SUCH_FILE,
    errno.EEXIST: constants.ERR_FILE_EXISTS,
    errno.EACCES: constants.ERR_ACCESS,
    errno.EPERM: constants.ERR_ACCESS,
    errno.EISDIR: constants.ERR_BAD_FILE,
    errno.ENOTDIR: constants.ERR_BAD_FILE,
    errno.ENAMETOOLONG: constants.ERR_BAD_FILE,
    errno.ENOSPC: constants.ERR_NO_SPACE,
    errno.EDQUOT: constants.ERR_QUOTA,
    errno.EROFS: constants.ERR_READ_ONLY,
}
_ACCESS: Final = {
    constants.MODE_RDONLY: os.O_RDONLY,
    constants.MODE_WRONLY: os.O_WRONLY,
    constants.MODE_RDWR: os.O_RDWR,
}
_PREFIXES: Final = ("ufs:", "nfs:", "xfs:", "lustre:", "gpfs:", "panfs:")
"""Names of file systems that ROMIO, the file layer of MPICH, takes in front of a path."""


def path_of(filename: os.PathLike[str] | str | bytes) -> str:
    """Return the path of a file, without the name of a file system: the kernel knows it."""
    path = os.fsdecode(filename)
    found = next((prefix for prefix in _PREFIXES if path.startswith(prefix)), "")
    return path[len(found) :]


def class_of(error: OSError) -> int:
    """Return the error class of an error of the kernel."""
    return _ERRORS.get(error.errno or 0, constants.ERR_IO)


def _flags(path: str, amode: int) -> int:
    """Return how the kernel has to open the file, without creating it."""
    access = [flags for mode, flags in _ACCESS.items() if amode & mode]
    why = ""
    if len(access) != 1:
        why = "expected one of MODE_RDONLY, MODE_WRONLY and MODE_RDWR"
    elif amode & constants.MODE_RDONLY and amode & (constants.MODE_CREATE | constants.MODE_EXCL):
        why = "MODE_RDONLY cannot be combined with MODE_CREATE or MODE_EXCL"
    elif amode & constants.MODE_RDWR and amode & constants.MODE_SEQUENTIAL:
        why = "MODE_RDWR cannot be combined with MODE_SEQUENTIAL"
    if why:
        raise MPIException(constants.ERR_AMODE, f"File.Open({path!r}, {amode}): {why}")
    return access[0] | os.O_CLOEXEC


def _open(path: str, amode: int, creates: bool) -> Owned:
    """Open the file; raise the error of MPI for that of the kernel."""
    flags = _flags(path, amode)
    if creates and amode & constants.MODE_CREATE:
        flags |= os.O_CREAT | (os.O_EXCL if amode & constants.MODE_EXCL else 0)
    try:
        return Owned.of(os.open, path, flags, 0o666)
    except OSError as error:
        pass_on(error)
        raise _refusal(error, path, amode) from None
    except ValueError as error:  # a zero byte, or letters that names of files cannot have
        pass_on(error)
        why = f"File.Open({path!r}, {amode}): {error}"
        raise MPIException(constants.ERR_BAD_FILE, why) from None


def _refusal(error: OSError, path: str, amode: int) -> MPIException:
    """Return the error of MPI for that of the kernel."""
    why = f"File.Open({path!r}, {amode}): {error.strerror}{remedy_of_call(error)}"
    return MPIException(class_of(error), why)


def _difference(found: list[tuple[int, tuple[int, int] | None]]) -> str:
    """Return how the modes or the files of the ranks differ, an empty text where they do not."""
    modes, files = zip(*found, strict=True)
    if len(set(modes)) > 1:
        return f"the ranks have the modes {list(modes)}; expected one mode"
    for rank, each in enumerate(files):
        if each != files[0]:
            return f"ranks 0 and {rank} have opened different files; expected one file"
    return ""


class FileState(State):
    """An open file of one rank."""

    path: str
    info: dict[str, str]
    _found: os.stat_result
    """Of the file when it was opened."""

    def __init__(
        self, comm: Any, filename: os.PathLike[str] | str | bytes, amode: int, info: Info
    ) -> None:
        """Open the file together with all ranks of `comm`: the first one first, as it creates it.

        Where it fails at one rank, it fails at all of them.
        """
        super().__init__()
        self._file = Owned()
        self.amode = amode
        self.atomic = False
        self.split: tuple[str, int] | None = None
        self.lock = threading.Lock()  # of the individual pointer, between threads of the rank
        self.rank = comm.Get_rank()
        first = self.rank == 0
        own: list[BaseException] = []
        attempt = partial(self._attempt, filename, info, own)
        failure = attempt(creates=True) if first else None
        # Each rank waits for all here: one that is behind the others by a collective hears of it.
        failure = comm.allgather(failure)[0] or (None if first else attempt(creates=False))
        found = comm.allgather((failure, amode, None if failure else self._identity()))
        failure = failure or next((each for each, _, _ in found if each), None)
        if failure is None and (why := _difference([each[1:] for each in found])):
            failure = constants.ERR_NOT_SAME, f"File.Open({filename!r}, {amode}): {why}"
        if failure is not None:
            self.close()
            raise own.pop() if own else MPIException(*failure)
        self.pointer = SharedPointer(comm)
        self.comm = self.pointer.comm
        self.view = View(0, BYTE.ob, BYTE.ob, "native")
        self.position = 0
        if amode & constants.MODE_APPEND:
            self.position = self._found.st_size  # a call may fail at this rank alone
            if first:
                self.pointer.set(self.position)
            self.comm._barrier_as("File.Open", self)

    def _attempt(
        self, filename: Any, info: Info, own: list[BaseException], *, creates: bool
    ) -> tuple[int, str] | None:
        """Open the file; return an error as all ranks raise it, and keep one that is not of MPI."""
        try:
            self.path, self.info = path_of(filename), hints_of(info, "File.Open")
            self._file = _open(self.path, self.amode, creates)
            try:
                self._found = os.fstat(self.descriptor)
            except OSError as error:  # as on a network, where the file is gone meanwhile
                pass_on(error)
                raise _refusal(error, self.path, self.amode) from None
        except MPIException as error:
            return error.Get_error_class(), error.detail
        except BaseException as error:  # of a wrong argument, or of a handler of a signal
            own.append(error)
            place = f"File.Open({filename!r}): it failed at rank {self.rank}"
            return constants.ERR_OTHER, f"{place}: {type(error).__name__}: {error}"
        return None

    def _identity(self) -> tuple[int, int] | None:
        """Return what tells the file from others; None for a pipe or device, as /dev/stdout."""
        found = self._found
        return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None

    @property
    def descriptor(self) -> int:
        """The number of the open file; -1 when it is closed."""
        return self._file.fd

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()

    def title(self) -> str:
        """Return its name for a message."""
        return repr(self.path)

    def size(self) -> int:
        """Return how many bytes the file has."""
        return os.fstat(self.descriptor).st_size

    def group(self) -> Group:
        """Return the group of the ranks that have opened the file."""
        found: Group = self.comm.Get_group()
        return found

    def fail(self, error: int, call: str, why: str) -> NoReturn:
        """Raise an error of a call of this file."""
        raise MPIException(error, f"File.{call} of {self.path!r}: {why}")

    # -- what all ranks do together --

    def agree(self, call: str, make: Callable[[], _Value]) -> _Value:
        """Return the value of all ranks; raise Exception(ERR_NOT_SAME) at all where they differ.

        Where a rank has none, it raises its own error, and the others ERR_OTHER with the text.
        """
        found: list[_Value] = self.comm._allgather_of(make)
        own: _Value = found[self.rank]
        if any(each != own for each in found):
            self.fail(constants.ERR_NOT_SAME, call, f"the ranks name {found}; expected one value")
        return own

    def once(self, call: str, act: Callable[[], None]) -> None:
        """Have the first rank carry out a step; its error is raised at all ranks."""
        failure = None
        interruption: list[OSError] = []
        if self.rank == 0:
            try:
                act()
            except OSError as error:
                if is_interruption(error):
                    interruption.append(error)
                failure = class_of(error), f"{error.strerror or error}{remedy_of_call(error)}"
        failure = self.comm.bcast(failure, 0)
        if interruption:
            raise interruption.pop()  # the others know of it
        if failure is not None:
            self.fail(failure[0], call, failure[1])

    def show(self, make: Callable[[], View]) -> None:
        """Take another view, and set all pointers to its beginning."""
        view: View | None = None
        failures: list[Exception] = []
        try:
            view = make()
        except Exception as error:
            failures.append(error)
        found = self.comm.allgather(None if view is None else (view.etype.size, view.datarep))
        if failures:
            raise failures.pop()
        if None in found:
            self.fail(
                constants.ERR_OTHER, "Set_view", f"the call failed at rank {found.index(None)}"
            )
        if any(each != found[0] for each in found):
            self.fail(
                constants.ERR_NOT_SAME,
                "Set_view",
                f"the ranks name (size of etype, datarep) {found}; expected one pair",
            )
        assert view is not None
        self.view = view
        self.position = 0
        self.once("Set_view", lambda: self.pointer.set(0))
