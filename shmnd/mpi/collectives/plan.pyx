# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Collectives under way: a schedule of the engine, and the buffers that it moves.

A side is what one rank gives or gets, block by block, each block a row of bytes: that of the
program where its type has no holes, else a packed copy, which is filled when the operation begins
and unpacked when it ends.
"""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memmove

from shmnd.mpi.transport.engine cimport (
    E, SHMPI_CALLBACK, SHMPI_FAILED_PEER, SHMPI_SCHEDULE, SHMPI_TRUNCATED, note, progress,
    sched_peer, sched_start, see_failures, shmpi_reduce, shmpi_sched_free, shmpi_sched_new,
    stop_sched, uint64_t,
)
from shmnd.mpi.transport.outer_call cimport full_name, outer_of
from shmnd.mpi.communicators.comm_state cimport empty_status, kind_in, tag_of_call
from shmnd.mpi.communicators.disputes cimport agree, raise_unequal, send_call
from shmnd.mpi.collectives.lines cimport (
    SHMPI_LINE_BARRIER, SHMPI_LINE_BCAST, SHMPI_LINE_MOST, SHMPI_LINE_ALLREDUCE,
    SHMPI_LINE_REDUCE, lines_barrier, lines_bcast, lines_check, lines_gather, lines_pass,
    lines_reduce,
)
from shmnd.mpi.collectives.op cimport Op, mpi_kernel
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.point_to_point.persistent cimport prequest_of
from shmnd.mpi.point_to_point.request cimport request_of
from shmnd.mpi.point_to_point.waiting cimport wait_op
from shmnd.mpi.point_to_point.status cimport Status

from shmnd.mpi import constants
from shmnd.mpi.objects.info import require_info

cdef list _left = []


cdef class Side:
    """The blocks of one rank: `blocks` of a simple specification, or as a vector says."""

    def __dealloc__(self):
        free(self.at)
        free(self.sizes)
        free(self.staged)

    cdef TypeState type_of(self, Py_ssize_t block):
        if self.spec.types is not None:
            return <TypeState>self.spec.types[block]
        return self.spec.type

    cdef Py_ssize_t count_of(self, Py_ssize_t block) noexcept:
        if self.spec.counts != NULL:
            return self.spec.counts[block]
        return self.spec.count

    cdef char *address_of(self, Py_ssize_t block) noexcept:
        cdef Spec spec = self.spec
        if spec.types is not None:
            return spec.addr + spec.displs[block]
        if spec.counts != NULL:
            return spec.addr + spec.displs[block] * spec.type.extent
        if spec.type is None:
            return spec.addr
        return spec.addr + block * spec.count * spec.type.extent

    cdef int lay_out(self) except -1:
        cdef Py_ssize_t i, n, total = 0
        cdef bint rows = True
        cdef TypeState type
        self.at = <char **>calloc(max(1, self.blocks), sizeof(char *))
        self.sizes = <Py_ssize_t *>calloc(max(1, self.blocks), sizeof(Py_ssize_t))
        if self.at == NULL or self.sizes == NULL:
            raise MemoryError("shmnd.mpi: no memory for a collective")
        if self.spec.type is None and self.spec.types is None:
            return 0  # nothing
        for i in range(self.blocks):
            type = self.type_of(i)
            n = self.count_of(i) * type.size
            self.sizes[i] = n
            self.at[i] = self.address_of(i)
            total += n
            rows = rows and (type.contig or n == 0)
        if rows:
            return 0
        self.staged = <char *>malloc(total if total else 1)
        if self.staged == NULL:
            raise MemoryError(f"shmnd.mpi: no memory to pack {total} bytes")
        total = 0
        for i in range(self.blocks):
            self.at[i] = self.staged + total
            total += self.sizes[i]
        return 0

    cdef int pack(self) except -1:
        cdef Py_ssize_t i
        if self.staged != NULL:
            for i in range(self.blocks):
                self.type_of(i).pack(self.address_of(i), self.count_of(i), self.at[i])
        return 0

    cdef int unpack(self) except -1:
        cdef Py_ssize_t i
        if self.staged != NULL:
            for i in range(self.blocks):
                if self.sizes[i]:  # else nothing came: a neighbour beyond the edge of a grid
                    self.type_of(i).unpack(self.at[i], self.count_of(i), self.address_of(i))
        return 0


cdef Plan new_plan(CommBase comm, CommState c, str call):
    cdef Plan plan = Plan.__new__(Plan)
    plan.s = shmpi_sched_new()
    if plan.s == NULL:
        raise MemoryError("shmnd.mpi: no memory for a collective")
    plan.s.context = c.context + 1
    plan.root = -1
    plan.comm = comm
    plan.state = c
    plan.call = call
    plan.outer = outer_of(c.context)
    plan.sends = []
    plan.receives = []
    return plan


cdef Side _side(Spec spec, Py_ssize_t blocks):
    cdef Side side = Side.__new__(Side)
    side.spec = spec
    side.blocks = spec.blocks if spec.counts != NULL else blocks
    side.lay_out()
    return side


cdef Side sending(Plan plan, Spec spec, Py_ssize_t blocks):
    cdef Side side = _side(spec, blocks)
    plan.sends.append(side)
    return side


cdef Side receiving(Plan plan, Spec spec, Py_ssize_t blocks):
    cdef Side side = _side(spec, blocks)
    plan.receives.append(side)
    return side


cdef int _reduce(
    void *arg, const void *left, const void *right, void *to, uint64_t items
) noexcept:
    cdef Plan plan = <Plan>arg
    try:
        plan.op.apply_to(left, right, to, <Py_ssize_t>items, plan.type)
        return 0
    except BaseException as error:
        if plan.failure is None:
            plan.failure = error
        return -1


cdef int set_op(Plan plan, object op, TypeState type) except -1:
    """Reduce with this operation on items of this type."""
    if not isinstance(op, Op):
        raise TypeError(f"{plan.whole_name()}: op {op!r} is not an operation of MPI")
    cdef str why
    if (<Op>op).ob is None or (<OpState>(<Op>op).ob).is_of_windows():
        why = "is null" if (<Op>op).ob is None else "is one of windows alone"
        mpi_error(plan.comm, constants.ERR_OP, f"{plan.whole_name()}: the operation {why}")
    plan.op = <OpState>(<Op>op).ob
    plan.type = type
    if type is not None:
        why = plan.op.refusal(type)
        if why is not None:
            mpi_error(plan.comm, constants.ERR_OP, f"{plan.whole_name()}: {why}")
        plan.s.to_any_place = plan.op.kernel(type) != NULL
    plan.s.reduce = <shmpi_reduce>_reduce
    plan.s.arg = <void *>plan
    return 0


cdef class Plan(Operation):
    """A collective."""

    def __dealloc__(self):
        if self.s != NULL and (self.s.done or not self.s.started):
            shmpi_sched_free(self.s)

    cdef str whole_name(self):
        return full_name(self.call if self.outer is None else self.outer.name)

    cdef str whole_title(self):
        return self.state.title() if self.outer is None else self.outer.title()

    cdef int check(self) except -1:
        if self.s.no_memory:
            raise MemoryError(f"shmnd.mpi: no memory for {self.whole_name()}")
        return 0

    cdef bint ready(self) except -1:
        if self.s.done:
            # A rank that knew of a death or a dispute earlier may have had its buffer back.
            see_failures()
            if self.s.copied:
                progress()
        elif self.s.fault == SHMPI_TRUNCATED and not self.s.stopped:
            self.fail_unequal()
            stop_sched(self.s, SHMPI_CALLBACK)
        if E.failures and not self.s.stopped and self.state.dead():
            stop_sched(self.s, SHMPI_FAILED_PEER)
        if not self.s.done or self.s.copied:
            if self.disputes != E.disputes or (self.lasts and not self.s.done):
                self.disputes = E.disputes
                self.agrees()
        return self.s.done

    cdef int count(self) except -1:
        """Take the next number of the communicator: all ranks begin its collectives in one order.

        A call whose arguments raise has not begun, so it takes none.
        """
        self.check()
        self.mine = self.state.begin(kind_in(self.state, self.call), self.root)
        self.s.tag = tag_of_call(self.mine)
        return 0

    cdef int agrees(self) except -1:
        """End with an error where another member is in another collective, or does not go by
        messages, and sends none."""
        try:
            agree(self.state, self.mine, self.comm)
            if self.number:
                lines_check(self.comm, self.state, self.number, self.length, self.call)
        except BaseException as error:
            self.failure = self.failure or error
            stop_sched(self.s, SHMPI_CALLBACK)
        return 0

    cdef int fail_unequal(self) except -1:
        """Make the error of a message of another length than due, and send it to the others."""
        try:
            raise_unequal(self.state, self.s, self.mine, self.whole_name(), self.comm)
        except BaseException as error:
            self.failure = self.failure or error
        return 0

    cdef int publish(self, unsigned int count) except -1:
        self.lasts = True
        send_call(sched_peer(self.s), self.mine)
        call = self.call if self.outer is None else self.outer.name
        return note(count | SHMPI_SCHEDULE, sched_peer(self.s), -1, call, self.whole_title())

    cdef int cancel(self) except -1:
        return self.refuse("cancelled")

    cdef int leave(self) except -1:
        return self.refuse("freed") if self.active else 0

    cdef int refuse(self, str what) except -1:
        """Raise the error of a request that the standard does not let the program give up."""
        mpi_error(
            self.comm, constants.ERR_REQUEST,
            f"{self.whole_name()} of {self.whole_title()}: the request of a collective is not "
            f"{what}; Wait or Test ends it",
        )
        return 0

    cdef unsigned int flags(self) noexcept:
        return SHMPI_SCHEDULE

    cdef int awaited(self) except? -2:
        return -1 if self.s.done else sched_peer(self.s)

    cdef int pack(self) except -1:
        """Fill the packed copies that are sent, and those where bytes stay as they are."""
        cdef Side side
        for side in self.sends:
            side.pack()
        for side in self.receives:
            if side.keeps or self.s.pairwise:
                side.pack()
        return 0

    cdef int begin(self) except -1:
        self.check()
        self.active = True
        self.failure = None
        self.pack()
        sched_start(self.s)
        if not self.s.done:
            _left.append(self)  # it moves on whether the program keeps its request or not
        return 0

    cdef object end(self, Status status):
        cdef Side side
        self.active = False
        if self in _left:
            _left.remove(self)
        empty_status(status)
        if self.s.fault:
            if self.s.fault == SHMPI_TRUNCATED:
                self.fail_unequal()
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            self.comm.fail(self.s.fault, self.whole_name(), NULL, self.state)
        for side in self.receives:
            side.unpack()
        if self.then is not None:
            self.then()
        return None


cdef int by_lines(
    Plan plan, int kind, char *given, char **blocks, Py_ssize_t length, Py_ssize_t items, bint able
) except -1:
    """Let a plan go by lines, if it is small and waited for. `able`: its data allow it, as all
    ranks say alike."""
    if plan.state.lines == NULL:
        return 0
    plan.counted = True
    plan.length = length
    if not able or length > SHMPI_LINE_MOST:
        return 0
    plan.kind = kind
    plan.given = given
    plan.blocks = blocks
    plan.items = items
    return 0


cdef Py_ssize_t whole_items(Plan plan, Py_ssize_t items) noexcept:
    """Return the bytes of so many items of the type that a plan reduces, without holes."""
    return 0 if plan.type is None else items * plan.type.size


cdef int reduce_by_lines(Plan plan, char *given, char **got, Py_ssize_t items) except -1:
    """Let a plan reduce, to all if it has no root. Its operation and type are set."""
    cdef Py_ssize_t n = whole_items(plan, items)
    plan.s.whole = n
    by_lines(
        plan, SHMPI_LINE_REDUCE if plan.root >= 0 else SHMPI_LINE_ALLREDUCE, given, got, n, items,
        n == 0 or plan.op.kernel(plan.type) != NULL)
    return 0


cdef int _small(Plan plan) except -1:
    """Carry out a collective by lines whose arguments are not plain."""
    cdef Side side
    cdef CommState c = plan.state
    cdef mpi_kernel kernel = NULL
    cdef bint gets = plan.root < 0 or plan.root == c.rank
    plan.pack()
    if plan.kind == SHMPI_LINE_BARRIER:
        lines_barrier(plan.comm, c, "Barrier", SHMPI_LINE_BARRIER)
    elif plan.kind == SHMPI_LINE_BCAST:
        lines_bcast(plan.comm, c, plan.given, plan.length, plan.root)
    elif plan.kind == SHMPI_LINE_REDUCE or plan.kind == SHMPI_LINE_ALLREDUCE:
        if plan.length:
            kernel = plan.op.kernel(plan.type)
        lines_reduce(
            plan.comm, c, plan.given, plan.blocks[0] if gets else NULL, plan.length, plan.items,
            kernel, plan.root, plan.call,
        )
    else:
        lines_gather(plan.comm, c, plan.given, plan.blocks, plan.length, plan.root, plan.call)
        if gets and plan.length:
            memmove(plan.blocks[c.rank], plan.given, plan.length)
    for side in plan.receives:
        side.unpack()
    return 0


cdef object run(Plan plan):
    plan.count()
    if plan.kind:
        return _small(plan)
    if plan.counted:
        plan.number = lines_pass(plan.state)
    plan.begin()
    wait_op(plan)
    return plan.end(None)


cdef Request started(Plan plan):
    plan.count()
    return started_apart(plan)


cdef Request started_apart(Plan plan):
    """Begin a plan that does not count among the collectives."""
    plan.begin()
    return request_of(plan)


cdef Prequest prepared(Plan plan, object info):
    require_info(info, full_name(plan.call))
    plan.count()
    return prequest_of(plan)
