# SPDX-License-Identifier: Apache-2.0
"""Files of MPI: opened, sized, synchronized and closed by all ranks of a communicator."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import index
from typing import Any, Final, NoReturn, Self

from shmnd.common.interruption import pass_on
from shmnd.mpi import constants
from shmnd.mpi.communicators.comm import Comm
from shmnd.mpi.communicators.group import Group
from shmnd.mpi.files.access import AccessCalls
from shmnd.mpi.files.file_state import FileState, class_of, path_of
from shmnd.mpi.files.pointers import PointerCalls
from shmnd.mpi.files.split import SplitCalls, require_no_split
from shmnd.mpi.objects import errhandler as handlers
from shmnd.mpi.objects.errhandler import Errhandler, raise_error
from shmnd.mpi.objects.error_handling import Handling
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.handle import Handle, State, constant
from shmnd.mpi.objects.info import INFO_NULL, Info, InfoCalls, require_info
from shmnd.mpi.transport.outer_call import OuterCall


def _close(state: FileState) -> None:
    require_no_split(state, "Close")
    state.pointer.free()
    state.close()
    if state.amode & constants.MODE_DELETE_ON_CLOSE and state.rank == 0:
        os.unlink(state.path)  # noqa: PTH108


def _resize(state: FileState, size: int, call: str) -> None:
    """Have the first rank cut or extend the file, and all wait for that."""
    wanted = state.agree(call, lambda: index(size))
    if not 0 <= wanted < 1 << 63:
        state.fail(constants.ERR_ARG, call, f"a size of {wanted} bytes; expected 0 to 2**63 - 1")
    if state.amode & constants.MODE_RDONLY:
        state.fail(constants.ERR_READ_ONLY, call, "the file is open for reading (MODE_RDONLY)")
    if call == "Set_size":
        state.once(call, lambda: os.ftruncate(state.descriptor, wanted))
    elif wanted:
        state.once(call, lambda: os.posix_fallocate(state.descriptor, 0, wanted))


def _set_atomicity(state: FileState, flag: bool) -> None:
    state.atomic = state.agree("Set_atomicity", lambda: bool(flag))


def _sync(state: FileState) -> None:
    require_no_split(state, "Sync")
    if not state.amode & constants.MODE_RDONLY:
        os.fsync(state.descriptor)


_default: Final = State()
"""What the error handler of the null file is kept in."""


class File(AccessCalls, SplitCalls, PointerCalls, Handle, Handling, InfoCalls):
    """File I/O context."""

    __slots__ = ()  # shorter than in mpi4py: see extension_modules.py

    _family = "File"
    _null_error = constants.ERR_FILE

    def __new__(cls, file: File | None = None) -> Self:
        """Return another handle to the same file."""
        return super().__new__(cls, file)

    # -- opening and closing --

    @classmethod
    def Open(
        cls,
        comm: Any,
        filename: os.PathLike[str] | str | bytes,
        amode: int = constants.MODE_RDONLY,
        info: Info = INFO_NULL,
    ) -> Self:
        """Open a file, together with all ranks of an intracommunicator.

        The name may begin with that of a file system, as `ufs:` or `lustre:`; it has no effect.
        The first rank opens it before the others, as it may create the file. Where it fails at one
        rank, all ranks raise its error.
        """
        if not isinstance(comm, Comm):
            raise TypeError(f"File.Open: comm {comm!r} is not a communicator")
        if comm.ob is None or comm.Is_inter():
            why = "is null" if comm.ob is None else "is an inter-communicator"
            raise_error(None, constants.ERR_COMM, f"File.Open: the communicator {why}")
        self = cls()
        try:
            with OuterCall("File.Open", repr(filename), comm.ob.context):
                self.ob = FileState(comm, filename, amode, info)
        except MPIException as error:
            handlers.handle_by(_default.errhandler, FILE_NULL, error.error_code, error.detail)
            raise
        self.ob.errhandler = handlers.for_new(_default.errhandler)
        return self

    def Close(self) -> None:
        """Close a file, together with all its ranks.

        Every process of the host finds in the file what its ranks have written. After `Sync` the
        storage device has it, too.
        """
        self._run("Close", _close)
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
        require_info(info, "File.Delete")
        try:
            os.unlink(path_of(filename))  # noqa: PTH108
        except OSError as error:
            pass_on(error)
            _cannot_delete(filename, class_of(error), error.strerror, error)
        except ValueError as error:  # a zero byte, or letters that names of files cannot have
            pass_on(error)
            _cannot_delete(filename, constants.ERR_BAD_FILE, error, error)

    # -- the file --

    def Set_size(self, size: int) -> None:
        """Set the file size in bytes, together with all ranks."""
        self._run("Set_size", _resize, size, "Set_size")

    def Preallocate(self, size: int) -> None:
        """Allocate the first bytes of the file on the device, together with all ranks."""
        self._run("Preallocate", _resize, size, "Preallocate")

    def Get_size(self) -> int:
        """Return the file size in bytes."""
        return self._state("Get_size").size()

    @property
    def size(self) -> int:
        """Size (in bytes)."""
        return self.Get_size()

    def Get_amode(self) -> int:
        """Return the file access mode."""
        return self._state("Get_amode").amode

    @property
    def amode(self) -> int:
        """Access mode."""
        return self.Get_amode()

    def Get_group(self) -> Group:
        """Return the group of processes that opened the file."""
        return self._state("Get_group").group()

    @property
    def group(self) -> Group:
        """Group of the processes that opened the file."""
        return self.Get_group()

    @property
    def group_size(self) -> int:
        """Number of the processes that opened the file."""
        return self.Get_group().Get_size()

    @property
    def group_rank(self) -> int:
        """Rank of the calling process in the group of the file."""
        return self.Get_group().Get_rank()

    # -- consistency --

    def Set_atomicity(self, flag: bool) -> None:
        """Set whether no rank sees, or writes into, a part of another one's call.

        All ranks call it together. Calls of atomic files lock the part of the file that they use.
        """
        self._run("Set_atomicity", _set_atomicity, flag)

    def Get_atomicity(self) -> bool:
        """Return whether the calls of the file are atomic."""
        return self._state("Get_atomicity").atomic

    @property
    def atomicity(self) -> bool:
        """Atomicity mode."""
        return self.Get_atomicity()

    @atomicity.setter
    def atomicity(self, value: bool) -> None:
        self.Set_atomicity(value)

    def Sync(self) -> None:
        """Have the storage device take what this rank has written.

        Other ranks see it without that: they share the kernel's memory of the file.
        """
        self._run("Sync", _sync)

    # -- errors --

    def Get_errhandler(self) -> Errhandler:
        """Return the error handler of the file; that of FILE_NULL is for new ones, Open, Delete."""
        return handlers.refer((_default if self.ob is None else self.ob).errhandler)

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        """Set the error handler of the file; that of FILE_NULL is for new ones, Open, Delete."""
        if self.ob is not None:
            super().Set_errhandler(errhandler)
        elif errhandler.ob is None:
            raise_error(None, constants.ERR_ERRHANDLER, "File.Set_errhandler: the handler is null")
        else:
            _default.errhandler = errhandler.ob

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[[Any, int], None]) -> Errhandler:
        """Create a new error handler for files.

        It is called with the file and the error code.
        """
        return super().Create_errhandler(errhandler_fn)


def _cannot_delete(filename: Any, code: int, why: object, cause: Exception) -> NoReturn:
    text = f"File.Delete({filename!r}): {why}"
    handlers.handle_by(_default.errhandler, FILE_NULL, code, text)
    raise MPIException(code, text) from cause


FILE_NULL: Final = constant(File(), "FILE_NULL")
