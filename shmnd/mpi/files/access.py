# SPDX-License-Identifier: Apache-2.0
"""Reading and writing files: at an offset, at the pointer of the rank, at the shared pointer.

All data have been read or written when a call returns, also one that returns a request. Collective
forms need no other rank, except the ordered ones: those add up what the ranks before them move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shmnd.common.held import Held
from shmnd.common.interruption import pass_on
from shmnd.common.shortages import remedy_of_call
from shmnd.mpi import constants
from shmnd.mpi.collectives.names import KINDS
from shmnd.mpi.files.file_state import FileState, class_of
from shmnd.mpi.files.transfer import Transfer, fill, request_of_bytes
from shmnd.mpi.objects.errhandler import handle, raise_error
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.point_to_point.request import Request
from shmnd.mpi.point_to_point.status import Status
from shmnd.mpi.transport.outer_call import OuterCall

_TOGETHER: Final = frozenset(
    each[5:] for each in KINDS if each.startswith("File.") and each != "File.Open"
)
"""The calls in which a rank waits for others."""

Step = Callable[..., int]
"""Moves the bytes of a message: (state, buf, writes, call, and an offset where it takes one)."""


def _transfer(state: FileState, buf: Any, writes: bool, call: str) -> Transfer:
    """Return the checked transfer of a call."""
    if writes and state.amode & constants.MODE_RDONLY:
        state.fail(constants.ERR_READ_ONLY, call, "the file is open for reading (MODE_RDONLY)")
    if not writes and state.amode & constants.MODE_WRONLY:
        state.fail(constants.ERR_ACCESS, call, "the file is open for writing (MODE_WRONLY)")
    return Transfer(buf, state.view, writes, call)


def require_offsets(state: FileState, call: str) -> None:
    """Raise Exception(ERR_UNSUPPORTED_OPERATION) for a file of the shared pointer alone."""
    if state.amode & constants.MODE_SEQUENTIAL:
        state.fail(
            constants.ERR_UNSUPPORTED_OPERATION,
            call,
            "the file is open with MODE_SEQUENTIAL; use the calls of the shared pointer",
        )


def at_offset(state: FileState, buf: Any, writes: bool, call: str, offset: int) -> int:
    """Move bytes at an offset; return how many."""
    require_offsets(state, call)
    return _transfer(state, buf, writes, call).run(state.descriptor, offset, state.atomic)


def at_pointer(state: FileState, buf: Any, writes: bool, call: str) -> int:
    """Move bytes at the pointer of the rank, and the pointer behind them; return how many."""
    require_offsets(state, call)
    transfer = _transfer(state, buf, writes, call)
    with Held(state.lock):
        moved = transfer.run(state.descriptor, state.position, state.atomic)
        state.position += moved // state.view.etype.size
    return moved


def at_shared(state: FileState, buf: Any, writes: bool, call: str) -> int:
    """Move bytes at the shared pointer, which first moves behind them; return how many."""
    transfer = _transfer(state, buf, writes, call)
    offset = state.pointer.advance(transfer.etypes)
    return transfer.run(state.descriptor, offset, state.atomic)


def ordered(state: FileState, buf: Any, writes: bool, call: str) -> int:
    """Move bytes at the shared pointer in the order of the ranks; return how many."""
    failures: list[BaseException] = []
    transfer = None
    try:
        transfer = _transfer(state, buf, writes, call)
    except BaseException as error:
        failures.append(error)
    counts = state.comm.gather(0 if transfer is None else transfer.etypes, 0)
    offsets = None
    if counts is not None:
        offset = state.pointer.advance(sum(counts))
        offsets = [offset + sum(counts[:rank]) for rank in range(len(counts))]
    offset = state.comm.scatter(offsets, 0)
    if transfer is None:
        raise failures.pop()
    return transfer.run(state.descriptor, offset, state.atomic)


class Failing:
    """What calls of a file have in common: errors go to the handler of the file."""

    __slots__ = ()

    ob: Any

    def _state(self, call: str) -> FileState:
        if self.ob is None:
            raise_error(self, constants.ERR_FILE, f"File.{call}: the file is null")
        state: FileState = self.ob
        if state.descriptor < 0:  # through another handle
            raise_error(self, constants.ERR_FILE, f"File.{call}: {state.path!r} is closed")
        return state

    def _run(self, call: str, step: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a step returns."""
        state = self._state(call)
        try:
            if call not in _TOGETHER:
                return step(state, *arguments)
            with OuterCall(f"File.{call}", state, state.comm.ob.context):
                return step(state, *arguments)
        except MPIException as error:
            handle(self, error.Get_error_code(), error.detail)
            raise
        except OSError as error:
            pass_on(error)
            text = f"File.{call} of {state.path!r}: {error.strerror}{remedy_of_call(error)}"
            raise_error(self, class_of(error), text)


class AccessCalls(Failing):
    """The calls that read and write."""

    __slots__ = ()

    def _now(
        self, call: str, step: Step, buf: Any, writes: bool, status: Status | None, *offset: int
    ) -> None:
        fill(status, self._run(call, step, buf, writes, call, *offset))

    def _request(self, call: str, step: Step, buf: Any, writes: bool, *offset: int) -> Request:
        return request_of_bytes(self._run(call, step, buf, writes, call, *offset))

    # -- at an offset --

    def Read_at(self, offset: int, buf: Any, status: Status | None = None) -> None:
        """Read using explicit offset."""
        self._now("Read_at", at_offset, buf, False, status, offset)

    def Read_at_all(self, offset: int, buf: Any, status: Status | None = None) -> None:
        """Collective read using explicit offset."""
        self._now("Read_at_all", at_offset, buf, False, status, offset)

    def Write_at(self, offset: int, buf: Any, status: Status | None = None) -> None:
        """Write using explicit offset."""
        self._now("Write_at", at_offset, buf, True, status, offset)

    def Write_at_all(self, offset: int, buf: Any, status: Status | None = None) -> None:
        """Collective write using explicit offset."""
        self._now("Write_at_all", at_offset, buf, True, status, offset)

    def Iread_at(self, offset: int, buf: Any) -> Request:
        """Non-blocking read using explicit offset."""
        return self._request("Iread_at", at_offset, buf, False, offset)

    def Iread_at_all(self, offset: int, buf: Any) -> Request:
        """Non-blocking collective read using explicit offset."""
        return self._request("Iread_at_all", at_offset, buf, False, offset)

    def Iwrite_at(self, offset: int, buf: Any) -> Request:
        """Non-blocking write using explicit offset."""
        return self._request("Iwrite_at", at_offset, buf, True, offset)

    def Iwrite_at_all(self, offset: int, buf: Any) -> Request:
        """Non-blocking collective write using explicit offset."""
        return self._request("Iwrite_at_all", at_offset, buf, True, offset)

    # -- at the pointer of the rank --

    def Read(self, buf: Any, status: Status | None = None) -> None:
        """Read using individual file pointer."""
        self._now("Read", at_pointer, buf, False, status)

    def Read_all(self, buf: Any, status: Status | None = None) -> None:
        """Collective read using individual file pointer."""
        self._now("Read_all", at_pointer, buf, False, status)

    def Write(self, buf: Any, status: Status | None = None) -> None:
        """Write using individual file pointer."""
        self._now("Write", at_pointer, buf, True, status)

    def Write_all(self, buf: Any, status: Status | None = None) -> None:
        """Collective write using individual file pointer."""
        self._now("Write_all", at_pointer, buf, True, status)

    def Iread(self, buf: Any) -> Request:
        """Non-blocking read using individual file pointer."""
        return self._request("Iread", at_pointer, buf, False)

    def Iread_all(self, buf: Any) -> Request:
        """Non-blocking collective read using individual file pointer."""
        return self._request("Iread_all", at_pointer, buf, False)

    def Iwrite(self, buf: Any) -> Request:
        """Non-blocking write using individual file pointer."""
        return self._request("Iwrite", at_pointer, buf, True)

    def Iwrite_all(self, buf: Any) -> Request:
        """Non-blocking collective write using individual file pointer."""
        return self._request("Iwrite_all", at_pointer, buf, True)

    # -- at the shared pointer --

    def Read_shared(self, buf: Any, status: Status | None = None) -> None:
        """Read using shared file pointer."""
        self._now("Read_shared", at_shared, buf, False, status)

    def Write_shared(self, buf: Any, status: Status | None = None) -> None:
        """Write using shared file pointer."""
        self._now("Write_shared", at_shared, buf, True, status)

    def Iread_shared(self, buf: Any) -> Request:
        """Non-blocking read using shared file pointer."""
        return self._request("Iread_shared", at_shared, buf, False)

    def Iwrite_shared(self, buf: Any) -> Request:
        """Non-blocking write using shared file pointer."""
        return self._request("Iwrite_shared", at_shared, buf, True)

    def Read_ordered(self, buf: Any, status: Status | None = None) -> None:
        """Collective read using shared file pointer, in the order of the ranks."""
        self._now("Read_ordered", ordered, buf, False, status)

    def Write_ordered(self, buf: Any, status: Status | None = None) -> None:
        """Collective write using shared file pointer, in the order of the ranks."""
        self._now("Write_ordered", ordered, buf, True, status)
