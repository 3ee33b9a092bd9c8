# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature.format=python
# cython: annotation_typing=False
"""One-sided calls of windows. Each has done its work at both sides when it returns."""

from typing import Any

from cpython.buffer cimport PyObject_GetBuffer
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.objects.keyed cimport Keyed
from shmnd.mpi.collectives.op cimport Op, OpState
from shmnd.mpi.buffers.spec cimport Spec, number_of, shmpi_small_int, spec_simple, usable_type
from shmnd.mpi.datatypes.type_state cimport MPI_KIND_END, TypeState, mpi_kinds
from shmnd.mpi.one_sided.window cimport Target, WinState, shmpi_gate_return, target_of
from shmnd.mpi.transport.engine cimport poll

from shmnd.common.arguments import shown
from shmnd.mpi import constants
from shmnd.mpi.collectives.op import NO_OP, REPLACE, SUM
from shmnd.mpi.point_to_point.request import Request, ended

cdef int PROC_NULL = constants.PROC_NULL
cdef OpState _NO_OP = (<Op>NO_OP).ob, _REPLACE = (<Op>REPLACE).ob
# The kinds whose equal values have equal bytes: integers, truth values, bytes.
cdef frozenset _COMPARED = frozenset([
    kind for kind in range(1, MPI_KIND_END)
    if mpi_kinds[kind].name in (b"BYTE", b"BOOL", b"CHAR") or mpi_kinds[kind].name[:1] in b"IUL"
])


cdef char *_room(Py_ssize_t nbytes) except NULL:
    """Allocate memory for a row of packed items."""
    cdef char *row = <char *>malloc(max(1, nbytes))
    if row == NULL:
        raise MemoryError(f"shmnd.mpi: no memory for {nbytes} bytes of a window")
    return row


cdef int _read(Target t, Spec into) except -1:
    """Read items of a target into items of a buffer; the shorter side decides."""
    cdef Py_ssize_t n = min(t.nbytes, into.count * into.type.size)
    cdef char *row
    if n == 0:
        return 0
    if into.type.contig:
        t.fetch(into.addr, n)
        return 0
    row = _room(n)
    try:
        t.fetch(row, n)
        into.type.unpack_bytes(row, n, into.addr)
    finally:
        free(row)
    return 0


cdef int _write(Spec origin, Target t) except -1:
    """Write items of a buffer into items of a target; the shorter side decides."""
    cdef Py_ssize_t n = min(t.nbytes, origin.count * origin.type.size)
    cdef char *row
    if n == 0:
        return 0
    if origin.type.contig:
        t.put(origin.addr, n)
        return 0
    row = _room(n)
    try:
        origin.type.pack_part(origin.addr, origin.count, row, 0, n)
        t.put(row, n)
    finally:
        free(row)
    return 0


cdef int _reduce(OpState how, char *first, char *second, Py_ssize_t n, TypeState leaf) except -1:
    """Combine `n` named items of two packed rows into the second one."""
    cdef char *left
    cdef char *right
    if leaf.contig:
        how.apply(first, second, n, leaf)
        return 0
    left = _room(2 * n * leaf.extent)
    right = left + n * leaf.extent
    try:
        leaf.unpack(first, n, left)
        leaf.unpack(second, n, right)
        how.apply(left, right, n, leaf)
        leaf.pack(right, n, second)
    finally:
        free(left)
    return 0


cdef class WinCalls(Keyed):
    """The calls that move and combine data."""

    cdef WinState state(self, str call):
        if self.ob is None:
            mpi_error(self, constants.ERR_WIN, f"{call}: the window is null")
        return <WinState>self.ob

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.shown = self.state("Win.tomemory").memory
        PyObject_GetBuffer(self.shown, view, flags)

    cdef Target _target(self, Spec origin, int rank, target, str call):
        """Return where a call goes: None, a displacement, or (displacement, count, type)."""
        cdef WinState w = self.state(call)
        cdef Py_ssize_t disp = 0, count = origin.count
        cdef int small
        cdef TypeState type = origin.type
        if rank == PROC_NULL:
            return None
        if not 0 <= rank < w.size:
            mpi_error(
                self, constants.ERR_RANK,
                f"{call}: rank {rank}; the window has ranks 0 to {w.size - 1}",
            )
        if shmpi_small_int(target, &small):  # most targets
            disp = small
        elif isinstance(target, (list, tuple)):
            if len(target) > 3:
                raise ValueError(
                    f"{call}: target: expecting 3 items at most, a displacement, a count and a "
                    f"datatype; got {len(target)}"
                )
            if len(target) >= 1:
                disp = number_of(target[0], "displacement at the target", call)
            if len(target) >= 2:
                count = number_of(target[1], "count at the target", call)
            if len(target) >= 3:
                type = usable_type(target[2], call)
                if type is None:
                    mpi_error(self, constants.ERR_TYPE, f"{call}: the datatype is null")
        elif hasattr(target, "__index__"):
            disp = number_of(target, "displacement at the target", call)
        elif target is not None:
            raise ValueError(f"{call}: target: expecting integral or list/tuple, got {target!r}")
        if self.ob is not w or not w.open_at[rank]:  # last: `target` may run code of the program
            mpi_error(
                self, constants.ERR_RMA_SYNC,
                f"{call}: no access epoch at rank {rank} of {w.title()} is open; call Fence, "
                "Lock, Lock_all or Start first",
            )
        cdef Target found = target_of(self, w, rank, disp, count, type, call)
        w.used = True
        return found

    def Put(self, origin: Any, target_rank: int, target: Any = None) -> None:
        """Put data into a memory window on a remote process."""
        _put(self, origin, target_rank, target, "Win.Put")

    def Get(self, origin: Any, target_rank: int, target: Any = None) -> None:
        """Get data from a memory window on a remote process."""
        _get(self, origin, target_rank, target, "Win.Get")

    cdef int _combine(self, Spec origin, Spec result, Target t, op, str call) except -1:
        """Read the target into `result`, if any, and combine it with `origin`, as one step."""
        cdef OpState how
        if not isinstance(op, Op):
            raise TypeError(f"{call}: op {op!r} is not an operation of MPI")
        if (<Op>op).ob is None:
            mpi_error(self, constants.ERR_OP, f"{call}: the operation is null")
        how = <OpState>(<Op>op).ob
        if t is None or t.nbytes == 0:
            return 0
        if how.number < 0:
            mpi_error(
                self, constants.ERR_OP,
                f"{call}: an operation of the program; windows take predefined ones",
            )
        if how is not _NO_OP and how is not _REPLACE:
            _check_items(self, how, origin.type, t.type, call)
        t.w.take(t.rank, call)
        try:
            if result is not None:
                _read(t, result)
            if how is _NO_OP:
                return 0
            if how is _REPLACE:
                _write(origin, t)
            elif t.items != NULL and origin.type is t.type and t.type.predefined:
                how.apply(origin.addr, t.items, min(origin.count, t.count), t.type)
            else:
                self._combine_leaves(origin, t, how)
        finally:
            shmpi_gate_return(&t.w.gates[t.rank])
        return 0

    cdef int _combine_leaves(self, Spec origin, Target t, OpState how) except -1:
        """Combine the named items that the two types are made of, one by one."""
        cdef TypeState leaf = t.type.leaf()
        cdef Py_ssize_t n = min(origin.count * origin.type.size, t.nbytes)
        cdef char *first = NULL
        cdef char *second
        n -= n % leaf.size
        second = _room(n)
        try:
            t.fetch(second, n)
            if origin.type.contig:
                _reduce(how, origin.addr, second, n // leaf.size, leaf)
            else:
                first = _room(n)
                origin.type.pack_part(origin.addr, origin.count, first, 0, n)
                _reduce(how, first, second, n // leaf.size, leaf)
            t.put(second, n)
        finally:
            free(first)
            free(second)
        return 0

    def Accumulate(
        self, origin: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> None:
        """Accumulate data into the target process."""
        _accumulate(self, origin, target_rank, target, op, "Win.Accumulate")

    def Get_accumulate(
        self, origin: Any, result: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> None:
        """Fetch-and-accumulate data into the target process."""
        _get_accumulate(self, origin, result, target_rank, target, op, "Win.Get_accumulate")

    def _poll(self) -> None:
        """Move messages; a program that has many such calls in vain yields its core."""
        poll()

    def Fetch_and_op(
        self, origin: Any, result: Any, target_rank: int, target_disp: int = 0, op: Any = SUM
    ) -> None:
        """Perform one-sided read-modify-write."""
        cdef str call = "Win.Fetch_and_op"
        cdef int rank = _rank(self, target_rank, call)
        cdef Spec spec = spec_simple(origin, True, rank, 0, call)
        cdef Spec into = spec_simple(result, False, rank, 0, call)
        if rank != PROC_NULL:
            _single(spec, "origin")
            _single(into, "result")
            _same(spec, into, "result")
            _named(self, spec)
        cdef Target t = self._target(spec, rank, target_disp, call)
        self._combine(spec, into, t, op, call)

    def Compare_and_swap(
        self, origin: Any, compare: Any, result: Any, target_rank: int, target_disp: int = 0
    ) -> None:
        """Perform one-sided atomic compare-and-swap."""
        cdef str call = "Win.Compare_and_swap"
        cdef int rank = _rank(self, target_rank, call)
        cdef Spec spec = spec_simple(origin, True, rank, 0, call)
        cdef Spec other = spec_simple(compare, True, rank, 0, call)
        cdef Spec into = spec_simple(result, False, rank, 0, call)
        if rank != PROC_NULL:
            _single(spec, "origin")
            _single(other, "compare")
            _single(into, "result")
            _same(spec, other, "compare")
            _same(spec, into, "result")
            _named(self, spec)
            if spec.type.basic not in _COMPARED:
                mpi_error(
                    self, constants.ERR_TYPE,
                    f"{call}: the datatype {spec.type.name}; it takes integers, "
                    "truth values and bytes",
                )
        cdef Target t = self._target(spec, rank, target_disp, call)
        if t is None or t.nbytes == 0:
            return
        cdef char *row = _room(2 * t.nbytes)
        t.w.take(t.rank, call)
        try:
            _read(t, into)
            t.fetch(row, t.nbytes)
            other.type.pack(other.addr, 1, row + t.nbytes)
            if memcmp(row, row + t.nbytes, t.nbytes) == 0:
                _write(spec, t)
        finally:
            shmpi_gate_return(&t.w.gates[t.rank])
            free(row)

    # -- with a request --

    def Rput(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        """Put data into a memory window on a remote process."""
        _put(self, origin, target_rank, target, "Win.Rput")
        return ended()

    def Rget(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        """Get data from a memory window on a remote process."""
        _get(self, origin, target_rank, target, "Win.Rget")
        return ended()

    def Raccumulate(
        self, origin: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> Request:
        """Fetch-and-accumulate data into the target process."""
        _accumulate(self, origin, target_rank, target, op, "Win.Raccumulate")
        return ended()

    def Rget_accumulate(
        self, origin: Any, result: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> Request:
        """Accumulate data into the target process using remote memory access."""
        _get_accumulate(self, origin, result, target_rank, target, op, "Win.Rget_accumulate")
        return ended()


cdef int _rank(WinCalls win, object given, str call) except? -0x7fffffff:
    cdef int rank
    if shmpi_small_int(given, &rank):
        return rank
    try:
        return given
    except OverflowError:
        pass
    except ValueError:  # NaN
        raise ValueError(f"{call}: target_rank {given!r} is not a number") from None
    except TypeError:
        raise TypeError(f"{call}: target_rank {shown(given)} is not an integer") from None
    mpi_error(
        win, constants.ERR_RANK,
        f"{call}: rank {shown(given)}; the window has ranks 0 to {win.state(call).size - 1}",
    )


cdef int _put(WinCalls win, origin, target_rank, target, str call) except -1:
    cdef int rank = _rank(win, target_rank, call)
    cdef Spec spec = spec_simple(origin, True, rank, 0, call)
    cdef Target t = win._target(spec, rank, target, call)
    if t is None or t.nbytes == 0:
        return 0
    t.w.take(t.rank, call)
    try:
        _write(spec, t)
    finally:
        shmpi_gate_return(&t.w.gates[t.rank])
    return 0


cdef int _get(WinCalls win, origin, target_rank, target, str call) except -1:
    cdef int rank = _rank(win, target_rank, call)
    cdef Spec spec = spec_simple(origin, False, rank, 0, call)
    cdef Target t = win._target(spec, rank, target, call)
    if t is not None:
        _read(t, spec)
    return 0


cdef int _accumulate(WinCalls win, origin, target_rank, target, op, str call) except -1:
    cdef int rank = _rank(win, target_rank, call)
    cdef Spec spec = spec_simple(origin, True, rank, 0, call)
    return win._combine(spec, None, win._target(spec, rank, target, call), op, call)


cdef int _get_accumulate(
    WinCalls win, origin, result, target_rank, target, op, str call
) except -1:
    cdef int rank = _rank(win, target_rank, call)
    cdef Spec spec = spec_simple(origin, True, rank, 0, call)
    cdef Spec into = spec_simple(result, False, rank, 0, call)
    return win._combine(spec, into, win._target(spec, rank, target, call), op, call)


cdef int _single(Spec spec, str what) except -1:
    if spec.count != 1:
        raise ValueError(f"{spec.call}: {what}: expecting a single element, got {spec.count}")
    return 0


cdef int _same(Spec first, Spec second, str what) except -1:
    if first.type is not second.type:
        types = f"{first.type.title()} and {second.type.title()}"
        raise ValueError(f"{first.call}: mismatch in origin and {what} MPI datatypes: {types}")
    return 0


cdef int _named(WinCalls win, Spec spec) except -1:
    if not spec.type.predefined:
        mpi_error(
            win, constants.ERR_TYPE,
            f"{spec.call}: a datatype that the program derived; it takes named ones",
        )
    return 0


cdef int _check_items(
    WinCalls win, OpState how, TypeState mine, TypeState theirs, str call
) except -1:
    """Raise an error where an operation cannot combine items of two types, before it moves any."""
    cdef TypeState first = mine.leaf()
    cdef TypeState second = theirs.leaf()
    cdef str why
    _same_items(win, first, second, call)
    why = how.refusal(mine if first is None else first)
    if why is None and second is None:
        why = how.refusal(theirs)
    if why is not None:
        mpi_error(win, constants.ERR_OP, f"{call}: {why}")
    return 0


cdef int _same_items(WinCalls win, TypeState first, TypeState second, str call) except -1:
    """Refuse to combine items of two types; None stands for several.

    Integers of one length are taken for each other, as other implementations do.
    """
    if first is None or second is None or first is second:
        return 0
    if first.size == second.size and first.pair_value == second.pair_value and (
        first.basic == second.basic or first.basic in _COMPARED and second.basic in _COMPARED
    ):
        return 0
    mpi_error(
        win, constants.ERR_TYPE,
        f"{call}: items of {first.name}, and of {second.name} at the target; both sides take "
        "one named type",
    )
