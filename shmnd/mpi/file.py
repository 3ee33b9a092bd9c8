# SPDX-License-Identifier: Apache-2.0
"""Files: opened, closed and deleted; reading and writing them is left to Python and numpy.

The ranks of a job share one host and its file system, so that a program that reads and writes
through MPI works as well with `open`, `numpy.memmap` or `os.pwrite`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NoReturn, Self

from shmnd.mpi import constants
from shmnd.mpi.communicators.group import Group
from shmnd.mpi.objects.errhandler import Errhandler, raise_error
from shmnd.mpi.objects.error_handling import Handling
from shmnd.mpi.objects.handle import Handle, State, constant
from shmnd.mpi.objects.info import INFO_NULL, Info

_ERRORS: Final[dict[type[OSError], int]] = {
    FileNotFoundError: constants.ERR_NO_SUCH_FILE,
    FileExistsError: constants.ERR_FILE_EXISTS,
    PermissionError: constants.ERR_ACCESS,
    IsADirectoryError: constants.ERR_BAD_FILE,
}
_ACCESS: Final = {
    constants.MODE_RDONLY: os.O_RDONLY,
    constants.MODE_WRONLY: os.O_WRONLY,
    constants.MODE_RDWR: os.O_RDWR,
}


class FileState(State):
    """An open file."""

    def __init__(self, group: Group, path: str, amode: int, descriptor: int, info: Info) -> None:
        """Keep the descriptor, and what the file was opened with."""
        super().__init__()
        self.group = group
        self.path = path
        self.amode = amode
        self.descriptor = descriptor
        self.info = Info.Create(info if info else None)


def _class_of(error: OSError) -> int:
    return _ERRORS.get(type(error), constants.ERR_IO)


class File(Handle, Handling):
    """File I/O context."""

    _family = "File"
    _null_error = constants.ERR_FILE

    def __new__(cls, file: File | None = None) -> Self:
        """Return another handle to the same file."""
        return super().__new__(cls, file)

    def _state(self, call: str) -> FileState:
        if self.ob is None:
            raise_error(self, constants.ERR_FILE, f"File.{call}: the file is null")
        state: FileState = self.ob
        return state

    @classmethod
    def Open(
        cls,
        comm: Any,
        filename: os.PathLike[str] | str | bytes,
        amode: int = constants.MODE_RDONLY,
        info: Info = INFO_NULL,
    ) -> Self:
        """Open a file.

        All ranks of the communicator open it, the first one first, as it may create the file.
        """
        path = os.fsdecode(filename)
        access = [flags for mode, flags in _ACCESS.items() if amode & mode]
        if len(access) != 1:
            raise_error(
                None,
                constants.ERR_AMODE,
                f"File.Open({path!r}, {amode}): expected MODE_RDONLY, MODE_WRONLY or MODE_RDWR",
            )
        flags = access[0] | os.O_CLOEXEC
        flags |= os.O_APPEND if amode & constants.MODE_APPEND else 0
        create = os.O_CREAT if amode & constants.MODE_CREATE else 0
        create |= os.O_EXCL if create and amode & constants.MODE_EXCL else 0
        self = cls()
        outcome: tuple[int, str] = (constants.SUCCESS, "")
        for first in (True, False):
            if (comm.Get_rank() == 0) == first:
                try:
                    opened = os.open(path, flags | (create if first else 0), 0o666)
                    self.ob = FileState(comm.Get_group(), path, amode, opened, info)
                except OSError as error:
                    outcome = (_class_of(error), f"File.Open({path!r}): {error.strerror}")
            if first and comm.Get_size() > 1:
                outcome = max(outcome, comm.bcast(outcome, 0))
                if outcome[0]:
                    break
        if outcome[0]:
            if self.ob is not None:
                os.close(self.ob.descriptor)
            raise_error(None, *outcome)
        return self

    def Close(self) -> None:
        """Close a file."""
        state = self._state("Close")
        os.close(state.descriptor)
        if state.amode & constants.MODE_DELETE_ON_CLOSE and state.group.Get_rank() == 0:
            os.unlink(state.path)  # noqa: PTH108
        self._release()

    def free(self) -> None:
        """Call `Close` unless the file is null."""
        if self.ob is not None:
            self.Close()

    @classmethod
    def Delete(cls, filename: os.PathLike[str] | str | bytes, info: Info = INFO_NULL) -> None:
        """Delete a file.

        Raise Exception(ERR_NO_SUCH_FILE) where there is none.
        """
        try:
            os.unlink(filename)  # noqa: PTH108
        except OSError as error:
            raise_error(None, _class_of(error), f"File.Delete({filename!r}): {error.strerror}")

    def Get_group(self) -> Group:
        """Return the group of processes that opened the file."""
        return Group(self._state("Get_group").group)

    @property
    def group(self) -> Group:
        """Group of the processes that opened the file."""
        return self.Get_group()

    def Get_amode(self) -> int:
        """Return the file access mode."""
        return self._state("Get_amode").amode

    @property
    def amode(self) -> int:
        """Access mode."""
        return self.Get_amode()

    def Get_info(self) -> Info:
        """Return the current hints for a file."""
        return Info.Create(self._state("Get_info").info)

    def Get_size(self) -> int:
        """Return the file size."""
        return os.fstat(self._state("Get_size").descriptor).st_size

    @property
    def size(self) -> int:
        """Size (in bytes)."""
        return self.Get_size()

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[[Any, int], None]) -> Errhandler:
        """Create a new error handler for files.

        It is called with the file and the error code.
        """
        return super().Create_errhandler(errhandler_fn)

    def __getattr__(self, name: str) -> NoReturn:
        if name[:1].isupper() and name.split("_")[0] in _LEFT_OUT:
            raise NotImplementedError(
                f"File.{name} is not part of shmnd.mpi: read and write with open, os.pwrite or "
                "numpy.memmap, or run the program with a real MPI; docs/mpi.md has the list"
            )
        raise AttributeError(f"File has no {name}")


_LEFT_OUT: Final = frozenset(
    {
        "Iread", "Iwrite", "Preallocate", "Read", "Seek", "Set", "Sync", "Write", "Get",
    }
)  # fmt: skip
FILE_NULL: Final = constant(File(), "FILE_NULL")
