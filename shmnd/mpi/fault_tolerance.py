# SPDX-License-Identifier: Apache-2.0
"""The fault-tolerance calls, in a job that ends when one of its ranks dies.

No rank outlives another one's death, so that the group of failed ranks is empty wherever it is
asked for, agreements are those of all ranks, and a shrunk communicator has all of them.
"""

from __future__ import annotations

from array import array
from typing import Any

from shmnd.mpi.absent import left_out
from shmnd.mpi.group import Group, group_from
from shmnd.mpi.op import BAND
from shmnd.mpi.request import Request
from shmnd.mpi.sentinels import IN_PLACE


class FaultCalls:
    """The calls of every communicator that concern failed ranks."""

    __slots__ = ()

    def Revoke(self) -> None:
        """Revoke a communicator."""
        raise left_out("Comm.Revoke")

    def Is_revoked(self: Any) -> bool:
        """Indicate whether the communicator has been revoked."""
        return bool(self._state("Is_revoked").revoked)

    def Get_failed(self: Any) -> Group:
        """Extract the group of failed processes."""
        self._state("Get_failed")
        return group_from(())

    def Ack_failed(self: Any, num_to_ack: int | None = None) -> int:
        """Acknowledge failures on a communicator."""
        self._state("Ack_failed")
        return 0

    def Agree(self: Any, flag: int) -> int:
        """Blocking agreement."""
        state = self._state("Agree")
        agreed = int(self.allreduce(flag, BAND))
        return agreed & int(self._local().allreduce(flag, BAND)) if state.inter else agreed

    def Iagree(self: Any, flag: Any) -> Request:
        """Nonblocking agreement."""
        state = self._state("Iagree")
        view = memoryview(flag)
        if view.format != "i" or view.nbytes != view.itemsize:
            raise ValueError("flag: expecting int buffer of length one")
        request: Request
        if not state.inter:
            request = self._agreement(IN_PLACE, view, BAND, None)
            return request
        given, ours, theirs = array("i", view), array("i", [0]), array("i", [0])
        local = self._local()._agreement(given, ours, BAND, None)

        def both() -> None:
            local.Wait()
            view[0] = ours[0] & theirs[0]

        request = self._agreement(given, theirs, BAND, both)
        return request

    def Shrink(self: Any) -> Any:
        """Shrink a communicator to remove all failed processes."""
        self._state("Shrink")
        return self.Dup()

    def Ishrink(self: Any) -> tuple[Any, Request]:
        """Nonblocking shrink a communicator to remove all failed processes."""
        self._state("Ishrink")
        made: tuple[Any, Request] = self.Idup()
        return made
