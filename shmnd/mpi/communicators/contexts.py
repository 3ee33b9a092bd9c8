# SPDX-License-Identifier: Apache-2.0
"""The numbers of the contexts of a new communicator, on which the ranks of another one agree."""

from array import array
from typing import Any

from shmnd.mpi.buffers.sentinels import IN_PLACE
from shmnd.mpi.collectives.op import MAX
from shmnd.mpi.communicators.comm_state import reserve_contexts

__all__ = ["agreed_contexts"]


def agreed_contexts(comm: Any, count: int = 1) -> int:
    """Return the first of so many that all ranks of a communicator agree on: all call it.

    In an intracommunicator each waits for all: else a rank that has missed a collective would
    leave with a communicator that the others do not have. By a schedule, whose messages name the
    outer call: an entry of a line could be that of an `Allreduce`.
    """
    state = comm.ob
    first = reserve_contexts(count) if state.rank == 0 else 0
    if not state.inter:
        agreed = array("q", [first])
        comm.Iallreduce(IN_PLACE, agreed, MAX).Wait()
        return agreed[0]
    # The group whose first rank is the smaller one decides.
    both = comm.allgather(first if state.rank == 0 else None)
    mine, theirs = state.group[0], state.remote[0]
    if mine > theirs:
        return int(both[0])
    return int(comm._local().bcast(first, 0))
