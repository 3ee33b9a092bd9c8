# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature.format=python
# cython: annotation_typing=False
"""Collectives that reduce: reduce, allreduce, reduce-scatter, scan.

Items keep the room that their type takes (its extent), since operations step by it. Items of a
type with holes are copied into zeroed room first, and the result item by item back.
"""

from collections.abc import Sequence
from typing import Any

from libc.stdlib cimport calloc, free, malloc

from shmnd.mpi.collectives.data cimport DataCalls, in_place
from shmnd.mpi.communicators.comm_state cimport CommState
from shmnd.mpi.datatypes.type_state cimport TypeState
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.transport.engine cimport (
    shmpi_build_allreduce, shmpi_build_bcast, shmpi_build_reduce, shmpi_build_reduce_slices,
    shmpi_build_scan, shmpi_group, shmpi_sched_block, shmpi_sched_copy, shmpi_sched_receive,
    shmpi_sched_round, shmpi_sched_send, uint64_t,
)
from shmnd.mpi.collectives.lines cimport plain_reduce
from shmnd.mpi.collectives.plan cimport (
    Plan, Side, new_plan, prepared, reduce_by_lines, run, set_op, started, started_apart,
    whole_items,
)
from shmnd.mpi.point_to_point.persistent cimport Prequest
from shmnd.mpi.point_to_point.request cimport Request
from shmnd.mpi.buffers.spec cimport Spec, spec_simple

from shmnd.mpi import constants
from shmnd.mpi.objects.info import INFO_NULL
from shmnd.mpi.collectives.op import SUM

cdef int PROC_NULL = constants.PROC_NULL
cdef int ROOT = constants.ROOT
cdef dict _agreements = {}


cdef class Items(Side):
    """Items of one type, at their extent."""

    cdef TypeState type
    cdef Py_ssize_t count, length
    cdef char *data

    cdef int pack(self) except -1:
        if self.staged != NULL and self.type.size:
            _move(self.type, self.count, self.spec.addr, self.staged)
        return 0

    cdef int unpack(self) except -1:
        if self.staged != NULL and self.type.size:
            _move(self.type, self.count, self.staged, self.spec.addr)
        return 0


cdef int _move(TypeState type, Py_ssize_t count, char *source, char *target) except -1:
    cdef char *row = <char *>malloc(max(1, count * type.size))
    if row == NULL:
        raise MemoryError("shmnd.mpi: no memory for a reduction")
    type.pack(source, count, row)
    type.unpack(row, count, target)
    free(row)
    return 0


cdef Items _items(Spec spec):
    """Return the items of a specification. `blocks` of it count too."""
    cdef Items items = Items.__new__(Items)
    items.spec = spec
    items.type = spec.type
    items.count = spec.count * (spec.blocks if spec.blocks > 0 else 1)
    if spec.type is None:
        items.count = 0
        return items
    items.length = items.count * items.type.extent
    items.data = spec.addr
    if not items.type.contig and items.length > 0:
        items.staged = <char *>calloc(1, items.length)
        if items.staged == NULL:
            raise MemoryError(f"shmnd.mpi: no memory for {items.length} bytes of a reduction")
        items.data = items.staged
    return items


cdef Items _gives(Plan plan, object given, int rank, int blocks):
    cdef Items items = _items(_whole(spec_simple(given, True, rank, blocks, plan.call), blocks))
    plan.sends.append(items)
    return items


cdef Items _gets(Plan plan, object given, int rank, int blocks):
    cdef Items items = _items(_whole(spec_simple(given, False, rank, blocks, plan.call), blocks))
    plan.receives.append(items)
    return items


cdef Spec _whole(Spec spec, int blocks):
    """With blocks, `count` is that of one."""
    spec.blocks = blocks
    return spec


cdef int _apart(Plan plan, Items out, Items into) except -1:
    """Raise ERR_BUFFER where both sides are the same memory."""
    if out.length > 0 and into.length > 0 and out.spec.addr == into.spec.addr:
        if not out.spec.bottom:
            mpi_error(
                plan.comm, constants.ERR_BUFFER,
                f"Comm.{plan.call}: the send buffer is the receive buffer; say so by IN_PLACE as "
                "the send buffer",
            )
    return 0


cdef object _mismatch(Plan plan, str words):
    """Return the error of buffers of one rank that do not agree."""
    return ValueError(f"Comm.{plan.call}: mismatch in {words}")


cdef int _same_type(Plan plan, Items out, Items into) except -1:
    if out.type is not into.type:
        types = f"{out.type.title()} and {into.type.title()}"
        if not (out.type.name or into.type.name):
            types += "; two derived types agree where they are one object"
        raise _mismatch(plan, f"send and receive MPI datatypes: {types}")
    return 0


cdef int _agree(Plan plan, Items out, Items into) except -1:
    _apart(plan, out, into)
    _same_type(plan, out, into)
    if out.count != into.count:
        raise _mismatch(plan, f"send count {out.count} and receive count {into.count}")
    return 0


cdef Plan _parts(Plan plan, Items out, Items into, list counts, op):
    """Each rank gets the reduction of its part, of so many items."""
    cdef CommState c = plan.state
    cdef shmpi_group g = c.as_group()
    cdef Py_ssize_t extent = out.type.extent if out.type is not None else 0
    cdef Py_ssize_t at = 0
    cdef int i
    set_op(plan, op, out.type)
    cdef char *theirs
    cdef uint64_t *first
    if not c.inter:
        plan.s.whole = whole_items(plan, out.count)
        first = <uint64_t *>shmpi_sched_block(plan.s, (c.size + 1) * sizeof(uint64_t))
        if first == NULL:
            return plan
        first[0] = 0
        for i in range(c.size):
            first[i + 1] = first[i] + <uint64_t>counts[i]
        shmpi_build_reduce_slices(plan.s, &g, out.data, into.data, first, extent)
        return plan
    cdef char *sum = shmpi_sched_block(plan.s, out.length)
    if sum == NULL:
        return plan
    shmpi_build_reduce(plan.s, &g, 0, out.data, sum, out.count, out.length)
    if c.rank == 0:
        theirs = shmpi_sched_block(plan.s, out.length)
        shmpi_sched_send(plan.s, c.to_job[0], sum, out.length)
        shmpi_sched_receive(plan.s, c.to_job[0], theirs, out.length)
        shmpi_sched_round(plan.s)
        sum = theirs
    if c.rank == 0:
        for i in range(c.size):
            if i == 0:
                shmpi_sched_copy(plan.s, sum, into.data, counts[0] * extent)
            else:
                shmpi_sched_send(plan.s, c.own[i], sum + at, counts[i] * extent)
            at += counts[i] * extent
    else:
        shmpi_sched_receive(plan.s, c.own[0], into.data, counts[c.rank] * extent)
    shmpi_sched_round(plan.s)
    return plan


cdef class ReduceCalls(DataCalls):
    """The collectives that reduce."""

    # -- plans --

    cdef Plan _reduce(self, sendbuf, recvbuf, op, place, str call):
        cdef CommState c = self.state(call)
        cdef int root = self.root(c, place, call)
        cdef Plan plan = new_plan(self, c, call)
        cdef bint gets = root == ROOT if c.inter else root == c.rank
        cdef Items out, into = None
        cdef shmpi_group g = c.as_group()
        cdef char *sum
        if c.inter:
            if root == PROC_NULL:
                return plan
            if gets:
                into = _gets(plan, recvbuf, root, 0)
                set_op(plan, op, into.type)
                shmpi_sched_receive(plan.s, c.to_job[0], into.data, into.length)
                return plan
            out = _gives(plan, sendbuf, root, 0)
            set_op(plan, op, out.type)
            sum = shmpi_sched_block(plan.s, out.length)
            if sum != NULL:
                shmpi_build_reduce(plan.s, &g, 0, out.data, sum, out.count, out.length)
            if c.rank == 0:
                shmpi_sched_send(plan.s, c.to_job[root], sum, out.length)
            return plan
        plan.root = root
        into = _gets(plan, recvbuf, root if gets else PROC_NULL, 0)
        if gets and in_place(sendbuf):
            out = into
            plan.sends.append(into)
        else:
            out = _gives(plan, sendbuf, root, 0)
            if gets:
                _agree(plan, out, into)
        set_op(plan, op, out.type)
        reduce_by_lines(plan, out.data, &into.data if gets else NULL, out.count)
        shmpi_build_reduce(
            plan.s, &g, root, out.data, into.data if gets else NULL, out.count, out.length
        )
        return plan

    cdef Plan _allreduce(self, sendbuf, recvbuf, op, str call):
        cdef CommState c = self.state(call)
        cdef Plan plan = new_plan(self, c, call)
        cdef Items into = _gets(plan, recvbuf, 0, 0), out
        cdef shmpi_group g = c.as_group()
        cdef char *sum
        if not c.inter and in_place(sendbuf):
            out = into
            plan.sends.append(into)
        else:
            out = _gives(plan, sendbuf, 0, 0)
            _agree(plan, out, into)
        set_op(plan, op, out.type)
        if not c.inter:
            reduce_by_lines(plan, out.data, &into.data, out.count)
            shmpi_build_allreduce(plan.s, &g, out.data, into.data, out.count, out.length)
            return plan
        sum = shmpi_sched_block(plan.s, out.length)
        if sum != NULL:
            shmpi_build_reduce(plan.s, &g, 0, out.data, sum, out.count, out.length)
            if c.rank == 0:
                shmpi_sched_send(plan.s, c.to_job[0], sum, out.length)
                shmpi_sched_receive(plan.s, c.to_job[0], into.data, into.length)
                shmpi_sched_round(plan.s)
            shmpi_build_bcast(plan.s, &g, 0, into.data, into.length)
        return plan

    cdef Plan _reduce_scatter_block(self, sendbuf, recvbuf, op, str call):
        cdef CommState c = self.state(call)
        cdef Plan plan = new_plan(self, c, call)
        cdef Items into, out
        if not c.inter and in_place(sendbuf):
            into = _gets(plan, recvbuf, 0, c.size)
            out = into
            plan.sends.append(into)
            counts = [into.count // c.size] * c.size
        else:
            into = _gets(plan, recvbuf, 0, 0)
            out = _gives(plan, sendbuf, 0, c.size)
            counts = [into.count] * c.size
            _same_type(plan, out, into)
            if out.count // c.size != into.count:
                own = out.count // c.size
                raise _mismatch(plan, f"send count {own} and receive count {into.count}")
        return _parts(plan, out, into, counts, op)

    cdef Plan _reduce_scatter(self, sendbuf, recvbuf, recvcounts, op, str call):
        cdef CommState c = self.state(call)
        cdef bint same = not c.inter and in_place(sendbuf)
        cdef Plan plan
        cdef Items into, out
        if recvcounts is None and (c.inter or same):
            raise TypeError(f"Comm.{call}: recvcounts are needed here, one for each rank")
        into = _items(_whole(spec_simple(recvbuf, False, 0, 0, call), 0))
        if recvcounts is None:
            recvcounts = self._counts(call, into.count)
        counts = [int(n) for n in recvcounts]
        if len(counts) != c.size:
            raise ValueError(f"Comm.{call}: expecting {c.size} items, got {len(counts)}")
        plan = new_plan(self, c, call)
        plan.receives.append(into)
        if same:
            out = into
            plan.sends.append(into)
            if into.count != sum(counts):
                raise _mismatch(
                    plan, f"receive count {into.count} and sum(counts) {sum(counts)}"
                )
        else:
            out = _gives(plan, sendbuf, 0, 0)
            _same_type(plan, out, into)
            if out.count != sum(counts):
                raise _mismatch(plan, f"send count {out.count} and sum(counts) {sum(counts)}")
            if into.count != counts[c.rank]:
                share = f"counts[{c.rank}] {counts[c.rank]}"
                raise _mismatch(plan, f"receive count {into.count} and {share}")
        return _parts(plan, out, into, counts, op)

    def _counts(self, call: str, count: int) -> list[int]:
        """Return the counts of all ranks."""
        with self._calling(call):
            return self.allgather(count)

    cdef Plan _scan(self, sendbuf, recvbuf, op, bint exclusive, str call):
        cdef CommState c = self.state(call)
        cdef Plan plan = new_plan(self, c, call)
        cdef Items into = _gets(plan, recvbuf, 0, 0), out
        cdef shmpi_group g = c.as_group()
        if in_place(sendbuf):
            out = into
            plan.sends.append(into)
        else:
            out = _gives(plan, sendbuf, 0, 0)
            _agree(plan, out, into)
        if exclusive and c.rank == 0 and into.staged != NULL:
            plan.receives.clear()
        set_op(plan, op, out.type)
        plan.s.whole = whole_items(plan, out.count)
        shmpi_build_scan(plan.s, &g, out.data, into.data, out.count, out.length, exclusive)
        return plan

    def _agreement(self, sendbuf: Any, recvbuf: Any, op: Any, then: Any) -> Request:
        """Begin a reduction to all, at whose end `then` is called. Ranks may begin it before or
        after collectives: its tags are counted apart, and no program has negative ones."""
        cdef CommState c = self.state("Iagree")
        cdef Plan plan = self._allreduce(sendbuf, recvbuf, op, "Iagree")
        _agreements[c.context] = _agreements.get(c.context, 1) + 1
        plan.s.context = c.context + 2
        plan.s.tag = -<int>_agreements[c.context]
        plan.then = then
        return started_apart(plan)

    # -- calls --

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> None:
        """Reduce to root."""
        if root is None or not plain_reduce(self, sendbuf, recvbuf, op, root, "Reduce"):
            run(self._reduce(sendbuf, recvbuf, op, root, "Reduce"))

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> Request:
        """Nonblocking reduce to root."""
        return started(self._reduce(sendbuf, recvbuf, op, root, "Ireduce"))

    def Reduce_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent reduce to root."""
        return prepared(self._reduce(sendbuf, recvbuf, op, root, "Reduce_init"), info)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        """Reduce to all."""
        if not plain_reduce(self, sendbuf, recvbuf, op, None, "Allreduce"):
            run(self._allreduce(sendbuf, recvbuf, op, "Allreduce"))

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Request:
        """Nonblocking reduce to all."""
        return started(self._allreduce(sendbuf, recvbuf, op, "Iallreduce"))

    def Allreduce_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = SUM, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent reduce to all."""
        return prepared(self._allreduce(sendbuf, recvbuf, op, "Allreduce_init"), info)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        """Reduce-scatter block (regular, non-vector version)."""
        run(self._reduce_scatter_block(sendbuf, recvbuf, op, "Reduce_scatter_block"))

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Request:
        """Nonblocking reduce-scatter block (regular, non-vector version)."""
        return started(self._reduce_scatter_block(sendbuf, recvbuf, op, "Ireduce_scatter_block"))

    def Reduce_scatter_block_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = SUM, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent reduce-scatter block (regular, non-vector version)."""
        return prepared(
            self._reduce_scatter_block(sendbuf, recvbuf, op, "Reduce_scatter_block_init"), info
        )

    def Reduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Any = SUM,
    ) -> None:
        """Reduce-scatter (vector version)."""
        run(self._reduce_scatter(sendbuf, recvbuf, recvcounts, op, "Reduce_scatter"))

    def Ireduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Any = SUM,
    ) -> Request:
        """Nonblocking reduce-scatter (vector version)."""
        return started(self._reduce_scatter(sendbuf, recvbuf, recvcounts, op, "Ireduce_scatter"))

    def Reduce_scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Any = SUM,
        info: Any = INFO_NULL,
    ) -> Prequest:
        """Persistent reduce-scatter (vector version)."""
        return prepared(
            self._reduce_scatter(sendbuf, recvbuf, recvcounts, op, "Reduce_scatter_init"), info
        )
