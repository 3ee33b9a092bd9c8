# SPDX-License-Identifier: Apache-2.0
"""The fault-tolerance calls: failed ranks, revoked communicators, agreements, smaller ones.

A job ends when one of its ranks dies, unless `shmnd mpiexec --enable-recovery` started it. Then a
death is an error in the calls that need the dead rank, and these calls work without it:
agreements are decided by the launcher. Otherwise they are collectives of a twin, whose contexts
are never revoked.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from typing import Any, Final

from shmnd.mpi import constants
from shmnd.mpi.buffers.sentinels import IN_PLACE
from shmnd.mpi.collectives.op import BAND
from shmnd.mpi.communicators.comm_state import CONTEXTS, TWIN, CommState, reserve_contexts
from shmnd.mpi.communicators.group import Group, group_from
from shmnd.mpi.communicators.integers import c_int
from shmnd.mpi.objects.errhandler import for_new, raise_error
from shmnd.mpi.point_to_point.generalized import watched
from shmnd.mpi.point_to_point.request import Request
from shmnd.mpi.transport import engine

_DECIDED: Final = "SHMND_MPI_AGREEMENT" in os.environ
"""Whether the launcher decides agreements, because ranks may die."""


def _question(context: int, members: list[int], value: int, known: list[int]) -> Any:
    from shmnd.mpi.communicators.agreement import (
        Question,  # costs a start something, and few jobs recover
    )

    return Question(context, members, value, known)


class FaultCalls:
    """The calls of every communicator that concern failed ranks."""

    __slots__ = ()

    def Revoke(self: Any) -> None:
        """Revoke a communicator."""
        self._state("Revoke").revoke()

    def Is_revoked(self: Any) -> bool:
        """Indicate whether the communicator has been revoked."""
        engine.progress()
        return bool(self._state("Is_revoked").revoked)

    def Get_failed(self: Any) -> Group:
        """Extract the group of failed processes."""
        engine.progress()
        return group_from(tuple(self._state("Get_failed").failed()))

    def Ack_failed(self: Any, num_to_ack: int | None = None) -> int:
        """Acknowledge failures on a communicator."""
        state = self._state("Ack_failed")
        engine.progress()
        failed = len(state.failed())
        wanted = failed if num_to_ack is None else min(num_to_ack, failed)
        state.acknowledged = max(state.acknowledged, wanted)
        return int(state.acknowledged)

    def Agree(self: Any, flag: int) -> int:
        """Blocking agreement."""
        flag = c_int(self, flag, "Agree", "flag")
        agreed: list[int] = []
        if _DECIDED:
            self._asked("Agree", flag, agreed.append).Wait()
            return agreed[0]
        twin = self._fault_twin("Agree")
        with self._calling("Agree"):
            value = int(twin.allreduce(flag, BAND))
            return value & int(twin._local().allreduce(flag, BAND)) if twin.ob.inter else value

    def Iagree(self: Any, flag: Any) -> Request:
        """Nonblocking agreement."""
        self._state("Iagree")
        view = memoryview(flag)
        if view.format != "i" or view.nbytes != view.itemsize:
            raise ValueError("flag: expecting int buffer of length one")
        request: Request
        if _DECIDED:

            def put(value: int) -> None:
                view[0] = value

            request = self._asked("Iagree", int(view[0]), put)
            return request
        twin = self._fault_twin("Iagree")
        if not twin.ob.inter:
            request = twin._agreement(IN_PLACE, view, BAND, None)
            return request
        given, ours, theirs = array("i", view), array("i", [0]), array("i", [0])
        local = twin._local()._agreement(given, ours, BAND, None)

        def both() -> None:
            local.Wait()
            view[0] = ours[0] & theirs[0]

        request = twin._agreement(given, theirs, BAND, both)
        return request

    def Shrink(self: Any) -> Any:
        """Shrink a communicator to remove all failed processes."""
        made, request = self._shrunk("Shrink")
        request.Wait()
        return made

    def Ishrink(self: Any) -> tuple[Any, Request]:
        """Nonblocking shrink a communicator to remove all failed processes."""
        made: tuple[Any, Request] = self._shrunk("Ishrink")
        return made

    # -- how --

    def _fault_twin(self: Any, call: str) -> Any:
        """Return the communicator of the same ranks that agrees where this one is revoked."""
        state = self._communicating(call)
        if state.twin is None:
            state.twin = CommState(state.context + TWIN, state.group, state.remote)
            if state.inter:
                state.twin.local = CommState(state.local.context + TWIN, state.group)
        state.twin.label = state.title()
        if state.inter:
            state.twin.local.label = state.title()
        return self._made(state.twin, "Intercomm" if state.inter else "Intracomm")

    def _members(self: Any) -> list[int]:
        return sorted(set(self.ob.group + (self.ob.remote or ())))

    def _asked(self: Any, call: str, flag: int, put: Callable[[int], None]) -> Request:
        """Return a request for a number that the launcher agrees on; `put` receives the number."""
        state = self._communicating(call)
        known = state.failed()[: state.acknowledged]
        question = _question(state.context, self._members(), flag, known)

        def then() -> None:
            answer = question.answer()
            put(answer["value"])
            if answer["unknown"]:
                raise_error(
                    self,
                    constants.ERR_PROC_FAILED,
                    f"Comm.{call} of {state.title()}: ranks {answer['unknown']} of the job "
                    "have died, and Ack_failed has not been called for all of them everywhere",
                )

        return watched(question.answered, then, call, state.title())

    def _shrunk(self: Any, call: str) -> tuple[Any, Request]:
        state = self._communicating(call)
        kind = "Intercomm" if state.inter else "Intracomm"
        new = self._made(None, kind)

        def make(context: int, failed: list[int]) -> None:
            group = tuple(rank for rank in state.group if rank not in failed)
            remote = None
            if state.inter:
                remote = tuple(rank for rank in state.remote if rank not in failed)
            new.ob = CommState(context, group, remote)
            if state.inter:
                new.ob.local = CommState(context + CONTEXTS, group)
            new.ob.errhandler = for_new(state.errhandler)

        if not _DECIDED:
            twin = self._fault_twin(call)
            with self._calling(call):
                found, request = twin.Idup()

            def arrived() -> None:
                request.Wait()
                make(found.ob.context, [])

            return new, watched(request.Get_status, arrived, call, state.title())
        context = state.context + TWIN
        question = _question(context, self._members(), reserve_contexts(2), [])

        def then() -> None:
            answer = question.answer()
            make(answer["first"], answer["failed"])

        return new, watched(question.answered, then, call, state.title())
