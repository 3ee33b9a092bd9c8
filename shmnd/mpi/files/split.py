# SPDX-License-Identifier: Apache-2.0
"""Split collectives: reads and writes with a begin and an end; a file has one at a time."""

from __future__ import annotations

from typing import Any

from shmnd.mpi import constants
from shmnd.mpi.files.access import Failing, Step, at_offset, at_pointer, ordered
from shmnd.mpi.files.file_state import FileState
from shmnd.mpi.files.transfer import fill
from shmnd.mpi.point_to_point.status import Status


def require_no_split(state: FileState, call: str) -> None:
    """Raise Exception(ERR_OTHER) while a split collective of the file is not ended."""
    if state.split is not None:
        state.fail(constants.ERR_OTHER, call, f"call {state.split[0]}_end first")


def _begin(state: FileState, name: str, step: Step, buf: Any, writes: bool, *offset: int) -> None:
    call = f"{name}_begin"
    require_no_split(state, call)
    state.split = name, step(state, buf, writes, call, *offset)


def _end(state: FileState, name: str) -> int:
    if state.split is None or state.split[0] != name:
        state.fail(constants.ERR_OTHER, f"{name}_end", f"call {name}_begin first")
    (_, moved), state.split = state.split, None
    return moved


class SplitCalls(Failing):
    """The calls that begin and end split collectives."""

    __slots__ = ()

    def _begin(self, name: str, step: Step, buf: Any, writes: bool, *offset: int) -> None:
        self._run(f"{name}_begin", _begin, name, step, buf, writes, *offset)

    def _end(self, name: str, status: Status | None) -> None:
        fill(status, self._run(f"{name}_end", _end, name))

    def Read_at_all_begin(self, offset: int, buf: Any) -> None:
        """Start a split collective read using explicit offset."""
        self._begin("Read_at_all", at_offset, buf, False, offset)

    def Read_at_all_end(self, buf: Any, status: Status | None = None) -> None:
        """Complete a split collective read using explicit offset."""
        self._end("Read_at_all", status)

    def Write_at_all_begin(self, offset: int, buf: Any) -> None:
        """Start a split collective write using explicit offset."""
        self._begin("Write_at_all", at_offset, buf, True, offset)

    def Write_at_all_end(self, buf: Any, status: Status | None = None) -> None:
        """Complete a split collective write using explicit offset."""
        self._end("Write_at_all", status)

    def Read_all_begin(self, buf: Any) -> None:
        """Start a split collective read using individual file pointer."""
        self._begin("Read_all", at_pointer, buf, False)

    def Read_all_end(self, buf: Any, status: Status | None = None) -> None:
        """Complete a split collective read using individual file pointer."""
        self._end("Read_all", status)

    def Write_all_begin(self, buf: Any) -> None:
        """Start a split collective write using individual file pointer."""
        self._begin("Write_all", at_pointer, buf, True)

    def Write_all_end(self, buf: Any, status: Status | None = None) -> None:
        """Complete a split collective write using individual file pointer."""
        self._end("Write_all", status)

    def Read_ordered_begin(self, buf: Any) -> None:
        """Start a split collective read using shared file pointer."""
        self._begin("Read_ordered", ordered, buf, False)

    def Read_ordered_end(self, buf: Any, status: Status | None = None) -> None:
        """Complete a split collective read using shared file pointer."""
        self._end("Read_ordered", status)

    def Write_ordered_begin(self, buf: Any) -> None:
        """Start a split collective write using shared file pointer."""
        self._begin("Write_ordered", ordered, buf, True)

    def Write_ordered_end(self, buf: Any, status: Status | None = None) -> None:
        """Complete a split collective write using shared file pointer."""
        self._end("Write_ordered", status)
