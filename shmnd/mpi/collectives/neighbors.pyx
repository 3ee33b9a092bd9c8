# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature.format=python
# cython: annotation_typing=False
"""Collectives among neighbours, with buffers and with objects.

Edges between the same two ranks are matched in the order in which both list them. In a grid the
step forward is sent first, so that it meets the receive from behind, which is listed first there.
"""

from typing import Any

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.transport.engine cimport shmpi_sched_receive, shmpi_sched_round, shmpi_sched_send
from shmnd.mpi.collectives.plan cimport (
    Plan, Side, new_plan, prepared, receiving, run, sending, started,
)
from shmnd.mpi.point_to_point.persistent cimport Prequest
from shmnd.mpi.point_to_point.request cimport Request
from shmnd.mpi.buffers.spec cimport NO_BLOCK, Spec, spec_simple, spec_vector, spec_vector_w

from shmnd.mpi import constants
from shmnd.mpi.point_to_point.exchange import exchange, next_tag
from shmnd.mpi.objects.info import INFO_NULL
from shmnd.mpi.collectives.outcomes import Outgoing, dump_parts, load

cdef int PROC_NULL = constants.PROC_NULL


def _order(CommState c, int count) -> list[int]:
    """Return the order in which the edges are sent."""
    if c.topology.kind != constants.CART:
        return list(range(count))
    return [i ^ 1 for i in range(count)]


cdef Spec _spec(object given, str kind, bint readonly, int blocks, str call):
    if kind == "w":
        return spec_vector_w(given, readonly, 0, blocks, call)
    if kind == "v":
        return spec_vector(given, readonly, 0, blocks, call)
    return spec_simple(given, readonly, 0, blocks or NO_BLOCK, call)


cdef Plan _plan(CommBase comm, str sends, str receives, sendbuf, recvbuf, str call):
    """`sends` is "one" where all neighbours get the same, else the form of the blocks."""
    cdef CommState c = comm.state(call)
    cdef Plan plan = new_plan(comm, c, call)
    cdef Side out, into
    cdef int i
    ins, outs = c.topology.around(c.rank)
    plan.s.pairwise = True
    if sends == "one":
        out = sending(plan, spec_simple(sendbuf, True, 0, 0, call), 1)
        into = receiving(plan, _spec(recvbuf, receives, False, len(ins), call), len(ins))
    else:
        out = sending(plan, _spec(sendbuf, sends, True, len(outs), call), len(outs))
        into = receiving(plan, _spec(recvbuf, receives, False, len(ins), call), len(ins))
    for i in range(len(ins)):
        if ins[i] == PROC_NULL:
            into.sizes[i] = 0
        else:
            shmpi_sched_receive(plan.s, c.to_job[<int>ins[i]], into.at[i], into.sizes[i])
    for i in _order(c, len(outs)):
        if outs[i] != PROC_NULL:
            at = 0 if sends == "one" else i
            shmpi_sched_send(plan.s, c.to_job[<int>outs[i]], out.at[<int>at], out.sizes[<int>at])
    shmpi_sched_round(plan.s)
    return plan


class NeighborCalls:
    """The neighbourhood collectives that take buffers."""

    __slots__ = ()

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor gather to all."""
        run(_plan(self, "one", "", sendbuf, recvbuf, "Neighbor_allgather"))

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor gather to all vector."""
        run(_plan(self, "one", "v", sendbuf, recvbuf, "Neighbor_allgatherv"))

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor all to all."""
        run(_plan(self, "", "", sendbuf, recvbuf, "Neighbor_alltoall"))

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor all to all vector."""
        run(_plan(self, "v", "v", sendbuf, recvbuf, "Neighbor_alltoallv"))

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor all to all general."""
        run(_plan(self, "w", "w", sendbuf, recvbuf, "Neighbor_alltoallw"))

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking neighbor gather to all."""
        return started(_plan(self, "one", "", sendbuf, recvbuf, "Ineighbor_allgather"))

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking neighbor gather to all vector."""
        return started(_plan(self, "one", "v", sendbuf, recvbuf, "Ineighbor_allgatherv"))

    def Ineighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking neighbor all to all."""
        return started(_plan(self, "", "", sendbuf, recvbuf, "Ineighbor_alltoall"))

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking neighbor all to all vector."""
        return started(_plan(self, "v", "v", sendbuf, recvbuf, "Ineighbor_alltoallv"))

    def Ineighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking neighbor all to all general."""
        return started(_plan(self, "w", "w", sendbuf, recvbuf, "Ineighbor_alltoallw"))

    def Neighbor_allgather_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent neighbor gather to all."""
        call = "Neighbor_allgather_init"
        return prepared(_plan(self, "one", "", sendbuf, recvbuf, call), info)

    def Neighbor_allgatherv_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent neighbor gather to all vector."""
        call = "Neighbor_allgatherv_init"
        return prepared(_plan(self, "one", "v", sendbuf, recvbuf, call), info)

    def Neighbor_alltoall_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent neighbor all to all."""
        call = "Neighbor_alltoall_init"
        return prepared(_plan(self, "", "", sendbuf, recvbuf, call), info)

    def Neighbor_alltoallv_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent neighbor all to all vector."""
        call = "Neighbor_alltoallv_init"
        return prepared(_plan(self, "v", "v", sendbuf, recvbuf, call), info)

    def Neighbor_alltoallw_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent neighbor all to all general."""
        call = "Neighbor_alltoallw_init"
        return prepared(_plan(self, "w", "w", sendbuf, recvbuf, call), info)


class NeighborObjects:
    """The neighbourhood collectives of objects."""

    __slots__ = ()

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        """Neighbor gather to all."""
        outs = self._topology("neighbor_allgather").around(self.Get_rank())[1]
        return _objects(self, [sendobj] * len(outs), "neighbor_allgather")

    def neighbor_alltoall(self, sendobj: list[Any]) -> list[Any]:
        """Neighbor all to all."""
        return _objects(self, sendobj, "neighbor_alltoall")


cdef list _objects(CommBase comm, given, str call):
    cdef CommState c = comm.state(call)
    ins, outs = c.topology.around(c.rank)
    tag = next_tag(comm, call)
    mine = Outgoing(c.rank, lambda: dump_parts(given, len(outs), call))
    sends = [
        (c.to_job[<int>outs[i]], mine.data(i))
        for i in _order(c, len(outs))
        if outs[i] != PROC_NULL
    ]
    sources = [c.to_job[<int>place] for place in ins if place != PROC_NULL]
    came = iter(exchange(comm, c.context + 1, tag, sends, sources))
    mine.check()
    return [None if place == PROC_NULL else load(comm, next(came), call) for place in ins]
