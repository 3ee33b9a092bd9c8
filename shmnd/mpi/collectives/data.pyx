# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature.format=python
# cython: annotation_typing=False
"""Collectives that move data: barrier, broadcast, gather, scatter and their kin.

Each has one function that plans it and three calls: wait for it, begin it, prepare it.
"""

from typing import Any

from shmnd.mpi.communicators.comm_state cimport CommState, whole
from shmnd.mpi.transport.engine cimport (
    shmpi_build_barrier, shmpi_build_bcast, shmpi_group, shmpi_sched_copy, shmpi_sched_receive,
    shmpi_sched_round, shmpi_sched_send, shmpi_sched_block,
)
from shmnd.mpi.collectives.lines cimport (
    SHMPI_LINE_ALLGATHER, SHMPI_LINE_BARRIER, SHMPI_LINE_BCAST, SHMPI_LINE_GATHER, barrier_as,
    plain_allgather, plain_barrier, plain_bcast,
)
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.collectives.plan cimport (
    Plan, Side, by_lines, new_plan, prepared, receiving, run, sending, started,
)
from shmnd.mpi.point_to_point.calls cimport PointCalls
from shmnd.mpi.point_to_point.persistent cimport Prequest
from shmnd.mpi.point_to_point.request cimport Request
from shmnd.mpi.buffers.spec cimport Spec, spec_simple, spec_vector, spec_vector_w
from shmnd.mpi.transport.outer_call cimport OuterCall

from shmnd.mpi import constants
from shmnd.mpi.objects.info import INFO_NULL
from shmnd.mpi.buffers.sentinels import IN_PLACE

cdef int PROC_NULL = constants.PROC_NULL
cdef int ROOT = constants.ROOT


cdef bint in_place(object given) noexcept:
    return given is None or given is IN_PLACE


cdef Spec _spec(
    object given, bint vector, bint readonly, int rank, int blocks, str call
):
    if vector:
        return spec_vector(given, readonly, rank, blocks, call)
    return spec_simple(given, readonly, rank, blocks, call)


cdef class DataCalls(PointCalls):
    """The collectives that move data."""

    cdef int root(self, CommState c, given, str call) except -1000:
        """Return the root of a collective."""
        cdef int number = whole(given, call, "root")
        if c.inter and (number == ROOT or number == PROC_NULL):
            return number
        if not 0 <= number < c.peers:
            mpi_error(
                self, constants.ERR_ROOT,
                f"Comm.{call}: root {given}; {c.title()} has ranks 0 to {c.peers - 1}",
            )
        return number

    # -- plans --

    cdef Plan _barrier(self, str call):
        cdef CommState c = self.state(call)
        cdef Plan plan = new_plan(self, c, call)
        cdef shmpi_group g = c.as_group()
        cdef int i
        if not c.inter:
            by_lines(plan, SHMPI_LINE_BARRIER, NULL, NULL, 0, 0, True)
            shmpi_build_barrier(plan.s, &g)
            return plan
        for i in range(c.peers):
            shmpi_sched_send(plan.s, c.to_job[i], NULL, 0)
            shmpi_sched_receive(plan.s, c.to_job[i], NULL, 0)
        shmpi_sched_round(plan.s)
        return plan

    cdef Plan _bcast(self, buf, place, str call):
        cdef CommState c = self.state(call)
        cdef int root = self.root(c, place, call)
        cdef bint gives = root in (ROOT, PROC_NULL) if c.inter else root == c.rank
        cdef Plan plan = new_plan(self, c, call)
        cdef Spec spec = spec_simple(buf, gives, root, 0, call)
        cdef Side side = sending(plan, spec, 1) if gives else receiving(plan, spec, 1)
        cdef shmpi_group g = c.as_group()
        cdef int i
        if not c.inter:
            plan.root = root
            plan.s.whole = side.sizes[0]
            by_lines(plan, SHMPI_LINE_BCAST, side.at[0], NULL, side.sizes[0], 0, True)
            shmpi_build_bcast(plan.s, &g, root, side.at[0], side.sizes[0])
        elif root == ROOT:
            for i in range(c.peers):
                shmpi_sched_send(plan.s, c.to_job[i], side.at[0], side.sizes[0])
        elif root != PROC_NULL:
            shmpi_sched_receive(plan.s, c.to_job[root], side.at[0], side.sizes[0])
        shmpi_sched_round(plan.s)
        return plan

    cdef Plan _gather(self, bint vector, sendbuf, recvbuf, place, str call):
        cdef CommState c = self.state(call)
        cdef int root = self.root(c, place, call)
        cdef Plan plan = new_plan(self, c, call)
        cdef bint gets = root == ROOT if c.inter else root == c.rank
        cdef bint here = not c.inter and gets
        cdef Side out = None, into
        cdef int i
        plan.s.pairwise = vector
        plan.root = -1 if c.inter else root
        if gets:
            into = receiving(plan, _spec(recvbuf, vector, False, root, c.peers, call), c.peers)
            if here and not in_place(sendbuf):
                out = sending(plan, spec_simple(sendbuf, True, 0, 0, call), 1)
            elif not here:
                spec_simple(sendbuf, True, PROC_NULL, 0, call)
            for i in range(c.peers):
                if not (here and i == c.rank):
                    shmpi_sched_receive(plan.s, c.to_job[i], into.at[i], into.sizes[i])
                elif out is not None:
                    self._own(plan, out, 0, into, i, call)
                else:
                    into.keeps = True
            if here and not vector:
                by_lines(
                    plan, SHMPI_LINE_GATHER, into.at[c.rank] if out is None else out.at[0], into.at,
                    into.sizes[c.rank], 0,
                    out is None or out.sizes[0] == into.sizes[c.rank])
        else:
            _spec(recvbuf, vector, False, PROC_NULL, c.peers, call)
            out = sending(plan, spec_simple(sendbuf, True, root, 0, call), 1)
            if root != PROC_NULL:
                shmpi_sched_send(plan.s, c.to_job[root], out.at[0], out.sizes[0])
            if not vector:
                by_lines(
                    plan, SHMPI_LINE_GATHER, out.at[0], NULL, out.sizes[0], 0, True)
        shmpi_sched_round(plan.s)
        return plan

    cdef Plan _scatter(self, bint vector, sendbuf, recvbuf, place, str call):
        cdef CommState c = self.state(call)
        cdef int root = self.root(c, place, call)
        cdef Plan plan = new_plan(self, c, call)
        cdef bint gives = root == ROOT if c.inter else root == c.rank
        cdef bint here = not c.inter and gives
        cdef Side out, into = None
        cdef int i
        plan.s.pairwise = True
        plan.root = -1 if c.inter else root
        if gives:
            out = sending(plan, _spec(sendbuf, vector, True, root, c.peers, call), c.peers)
            if here and not in_place(recvbuf):
                into = receiving(plan, spec_simple(recvbuf, False, root, 0, call), 1)
            elif not here:
                spec_simple(recvbuf, False, PROC_NULL, 0, call)
            for i in range(c.peers):
                if not (here and i == c.rank):
                    shmpi_sched_send(plan.s, c.to_job[i], out.at[i], out.sizes[i])
                elif into is not None:
                    self._own(plan, out, i, into, 0, call)
        else:
            _spec(sendbuf, vector, True, PROC_NULL, c.peers, call)
            into = receiving(plan, spec_simple(recvbuf, False, root, 0, call), 1)
            if root != PROC_NULL:
                shmpi_sched_receive(plan.s, c.to_job[root], into.at[0], into.sizes[0])
        shmpi_sched_round(plan.s)
        return plan

    cdef Plan _allgather(self, bint vector, sendbuf, recvbuf, str call):
        cdef CommState c = self.state(call)
        cdef Plan plan = new_plan(self, c, call)
        cdef Side into = receiving(plan, _spec(recvbuf, vector, False, 0, c.peers, call), c.peers)
        cdef Side out = None
        cdef char *mine
        cdef Py_ssize_t n
        cdef int i
        plan.s.pairwise = vector
        if not c.inter and in_place(sendbuf):
            into.keeps = True
            mine = into.at[c.rank]
            n = into.sizes[c.rank]
        else:
            out = sending(plan, spec_simple(sendbuf, True, 0, 0, call), 1)
            mine = out.at[0]
            n = out.sizes[0]
        for i in range(c.peers):
            if c.inter or i != c.rank:
                shmpi_sched_receive(plan.s, c.to_job[i], into.at[i], into.sizes[i])
        for i in range(c.peers):
            if c.inter or i != c.rank:
                shmpi_sched_send(plan.s, c.to_job[i], mine, n)
            elif out is not None:
                self._own(plan, out, 0, into, i, call)
        if not vector:
            by_lines(
                plan, SHMPI_LINE_ALLGATHER, mine, into.at, n, 0, n == into.sizes[0])
        shmpi_sched_round(plan.s)
        return plan

    cdef Plan _alltoall(self, str kind, sendbuf, recvbuf, str call):
        cdef CommState c = self.state(call)
        cdef Plan plan = new_plan(self, c, call)
        cdef bint same = not c.inter and in_place(sendbuf)
        cdef Spec spec
        cdef Side into, out
        cdef char *copy
        cdef int i
        plan.s.pairwise = True
        if kind == "w":
            spec = spec_vector_w(recvbuf, False, 0, c.peers, call)
        else:
            spec = _spec(recvbuf, kind == "v", False, 0, c.peers, call)
        into = receiving(plan, spec, c.peers)
        if same:
            out = into
        elif kind == "w":
            out = sending(plan, spec_vector_w(sendbuf, True, 0, c.peers, call), c.peers)
        else:
            out = sending(plan, _spec(sendbuf, kind == "v", True, 0, c.peers, call), c.peers)
        for i in range(c.peers):
            if c.inter or i != c.rank:
                copy = out.at[i]
                if same:
                    copy = shmpi_sched_block(plan.s, out.sizes[i])
                    if copy == NULL:
                        break
                    shmpi_sched_copy(plan.s, out.at[i], copy, out.sizes[i])
                shmpi_sched_send(plan.s, c.to_job[i], copy, out.sizes[i])
            elif not same:
                self._own(plan, out, i, into, i, call)
        # In place, a receive may write a block only when its copy is made.
        for i in range(c.peers):
            if c.inter or i != c.rank:
                shmpi_sched_receive(plan.s, c.to_job[i], into.at[i], into.sizes[i])
        shmpi_sched_round(plan.s)
        return plan

    cdef int _own(
        self, Plan plan, Side out, Py_ssize_t i, Side into, Py_ssize_t j, str call
    ) except -1:
        """Copy the block that a rank sends to itself."""
        if out.sizes[i] > into.sizes[j]:
            mpi_error(
                self, constants.ERR_TRUNCATE,
                f"Comm.{call}: {out.sizes[i]} bytes for the rank itself, its buffer takes "
                f"{into.sizes[j]}",
            )
        shmpi_sched_copy(plan.s, out.at[i], into.at[j], out.sizes[i])
        return 0

    def _news_then(self, news: bytearray, leader: int, then: Any, call: str) -> Request:
        """Begin to send news from a rank to all others of both groups; then `then` is called.

        It waits first, of an intercommunicator for the other group: else a rank behind would leave.
        """
        cdef CommState c = self.state(call)
        cdef Plan plan = self._barrier(call)
        cdef Side side = receiving(plan, spec_simple(news, False, 0, 0, call), 1)
        for each in c.group + (c.remote or ()):
            if leader == c.group[c.rank] and each != leader:
                shmpi_sched_send(plan.s, each, side.at[0], side.sizes[0])
        if leader != c.group[c.rank]:
            shmpi_sched_receive(plan.s, leader, side.at[0], side.sizes[0])
        shmpi_sched_round(plan.s)
        plan.then = then
        return started(plan)

    # -- calls --

    def Barrier(self) -> None:
        """Barrier synchronization."""
        if not plain_barrier(self):
            run(self._barrier("Barrier"))

    def _barrier_as(self, call: str, of: object) -> None:
        """Wait for all ranks, as another call or a part of one, of an object with a title."""
        if not barrier_as(self, call):
            with OuterCall(call, of, (<CommState>self.ob).context):
                run(self._barrier("Barrier"))

    def Ibarrier(self) -> Request:
        """Nonblocking barrier."""
        return started(self._barrier("Ibarrier"))

    def Barrier_init(self, info: Any = INFO_NULL) -> Prequest:
        """Persistent barrier."""
        return prepared(self._barrier("Barrier_init"), info)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Broadcast data from one process to all other processes."""
        if not plain_bcast(self, buf, root):
            run(self._bcast(buf, root, "Bcast"))

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        """Nonblocking broadcast."""
        return started(self._bcast(buf, root, "Ibcast"))

    def Bcast_init(self, buf: Any, root: int = 0, info: Any = INFO_NULL) -> Prequest:
        """Persistent broadcast."""
        return prepared(self._bcast(buf, root, "Bcast_init"), info)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather data to one process from all other processes."""
        run(self._gather(False, sendbuf, recvbuf, root, "Gather"))

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Nonblocking gather."""
        return started(self._gather(False, sendbuf, recvbuf, root, "Igather"))

    def Gather_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent gather."""
        return prepared(self._gather(False, sendbuf, recvbuf, root, "Gather_init"), info)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather vector."""
        run(self._gather(True, sendbuf, recvbuf, root, "Gatherv"))

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Nonblocking gather vector."""
        return started(self._gather(True, sendbuf, recvbuf, root, "Igatherv"))

    def Gatherv_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent gather vector."""
        return prepared(self._gather(True, sendbuf, recvbuf, root, "Gatherv_init"), info)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter data from one process to all other processes."""
        run(self._scatter(False, sendbuf, recvbuf, root, "Scatter"))

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Nonblocking scatter."""
        return started(self._scatter(False, sendbuf, recvbuf, root, "Iscatter"))

    def Scatter_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent scatter."""
        return prepared(self._scatter(False, sendbuf, recvbuf, root, "Scatter_init"), info)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter vector."""
        run(self._scatter(True, sendbuf, recvbuf, root, "Scatterv"))

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Nonblocking scatter vector."""
        return started(self._scatter(True, sendbuf, recvbuf, root, "Iscatterv"))

    def Scatterv_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent scatter vector."""
        return prepared(self._scatter(True, sendbuf, recvbuf, root, "Scatterv_init"), info)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather to all."""
        if not plain_allgather(self, sendbuf, recvbuf):
            run(self._allgather(False, sendbuf, recvbuf, "Allgather"))

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking gather to all."""
        return started(self._allgather(False, sendbuf, recvbuf, "Iallgather"))

    def Allgather_init(self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL) -> Prequest:
        """Persistent gather to all."""
        return prepared(self._allgather(False, sendbuf, recvbuf, "Allgather_init"), info)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather to all vector."""
        run(self._allgather(True, sendbuf, recvbuf, "Allgatherv"))

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking gather to all vector."""
        return started(self._allgather(True, sendbuf, recvbuf, "Iallgatherv"))

    def Allgatherv_init(self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL) -> Prequest:
        """Persistent gather to all vector."""
        return prepared(self._allgather(True, sendbuf, recvbuf, "Allgatherv_init"), info)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """All to all scatter/gather."""
        run(self._alltoall("", sendbuf, recvbuf, "Alltoall"))

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking all to all scatter/gather."""
        return started(self._alltoall("", sendbuf, recvbuf, "Ialltoall"))

    def Alltoall_init(self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL) -> Prequest:
        """Persistent all to all scatter/gather."""
        return prepared(self._alltoall("", sendbuf, recvbuf, "Alltoall_init"), info)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """All to all scatter/gather vector."""
        run(self._alltoall("v", sendbuf, recvbuf, "Alltoallv"))

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking all to all scatter/gather vector."""
        return started(self._alltoall("v", sendbuf, recvbuf, "Ialltoallv"))

    def Alltoallv_init(self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL) -> Prequest:
        """Persistent all to all scatter/gather vector."""
        return prepared(self._alltoall("v", sendbuf, recvbuf, "Alltoallv_init"), info)

    def Alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """All to all scatter/gather general."""
        run(self._alltoall("w", sendbuf, recvbuf, "Alltoallw"))

    def Ialltoallw(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Nonblocking all to all scatter/gather general."""
        return started(self._alltoall("w", sendbuf, recvbuf, "Ialltoallw"))

    def Alltoallw_init(self, sendbuf: Any, recvbuf: Any, info: Any = INFO_NULL) -> Prequest:
        """Persistent all to all scatter/gather general."""
        return prepared(self._alltoall("w", sendbuf, recvbuf, "Alltoallw_init"), info)
