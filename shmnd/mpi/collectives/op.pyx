# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Reductions: those of MPI, and functions of the program.

A predefined reduction takes the named types that the standard gives it. A function of the program
takes any type; it is called with two buffers and the datatype, and writes into the second one.
"""

from collections.abc import Callable
from typing import Any, Self

from libc.stdlib cimport free as c_free, malloc

from shmnd.mpi.buffers.buffer cimport buffer, view_at
from shmnd.mpi.datatypes.datatype cimport wrap
from shmnd.mpi.buffers.spec cimport Spec, spec_simple

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.handle import constant

cdef extern from "collectives/kernels.h":
    enum:
        MPI_OP_MAX
        MPI_OP_MIN
        MPI_OP_MAXLOC
        MPI_OP_MINLOC
        MPI_OP_REPLACE
        MPI_OP_NO_OP
    mpi_kernel mpi_kernels[14][30]
    void mpi_locate(
        int value, int index, ptrdiff_t off, ptrdiff_t extent, int sign, const char *invec,
        char *inout, size_t n)

LIMIT = 32
"""How many reductions of its own a program may have at a time."""

cdef list _created = []
cdef int _NULL = constants.PROC_NULL - 1000     # not the number of any rank


cdef class OpState(State):
    """A reduction."""

    cdef mpi_kernel kernel(self, TypeState type) noexcept:
        if self.number < 0 or not type.predefined or type.basic < 0:
            return NULL
        return mpi_kernels[self.number][type.basic]

    cdef bint is_of_windows(self) noexcept:
        return self.number == MPI_OP_REPLACE or self.number == MPI_OP_NO_OP

    cdef str refusal(self, TypeState type):
        if self.number < 0 or self.is_of_windows():
            return None
        if self.number == MPI_OP_MAXLOC or self.number == MPI_OP_MINLOC:
            if type.pair_value:
                return None
        elif self.kernel(type) != NULL:
            return None
        return (
            f"{self.label} does not take the datatype "
            f"{type.name or 'that the program derived'}; reduce items of a named type, or with an "
            "operation of your own"
        )

    cdef int apply(
        self, const void *invec, void *inoutvec, Py_ssize_t count, TypeState type
    ) except -1:
        cdef mpi_kernel loop = self.kernel(type)
        cdef char *packed
        if count == 0 or self.number == MPI_OP_NO_OP:
            return 0
        if loop != NULL:
            loop(invec, inoutvec, inoutvec, count)
            return 0
        cdef str why = self.refusal(type)
        if why is not None:
            raise MPIException(constants.ERR_OP, why)
        if self.number < 0:
            return self._call(invec, inoutvec, count, type)
        if self.number == MPI_OP_REPLACE:
            packed = <char *> malloc(count * type.size)
            if packed == NULL and type.size:
                raise MemoryError(f"Op: no memory for {count * type.size} bytes")
            type.pack(<const char *> invec, count, packed)
            type.unpack(packed, count, <char *> inoutvec)
            c_free(packed)
            return 0
        mpi_locate(
            type.pair_value, type.pair_index, type.pair_off, type.extent,
            1 if self.number == MPI_OP_MAXLOC else -1, <const char *> invec, <char *> inoutvec,
            count)
        return 0

    cdef int apply_to(
        self, const void *left, const void *right, void *to, Py_ssize_t count, TypeState type
    ) except -1:
        cdef mpi_kernel loop = self.kernel(type)
        if loop != NULL:
            loop(left, right, to, count)
            return 0
        return self.apply(left, to, count, type)

    cdef int _call(
        self, const void *invec, void *inoutvec, Py_ssize_t count, TypeState type
    ) except -1:
        cdef Py_ssize_t nbytes = count * type.extent
        cdef buffer first = view_at(<char *> invec + type.lb, nbytes, False)
        cdef buffer second = view_at(<char *> inoutvec + type.lb, nbytes, False)
        try:
            self.function(first, second, wrap(type))
        finally:
            first.release()
            second.release()
        return 0


cdef class Op(Handle):
    """Reduction operation."""

    _family = "Op"

    def __cinit__(self, op: Op | None = None) -> None:
        self.known = op is not None and (<Op> op).known

    def __call__(self, x: Any, y: Any, /) -> Any:
        if self.ob is None:
            raise ValueError("Op: the null operation cannot be called")
        cdef OpState state = self.ob
        if state.number < 0:
            return state.function(x, y, None)
        return _CALLS[state.number](x, y)

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.ob is None or self.ob.predefined or not self.known:
            return super().__reduce__()
        cdef OpState state = self.ob
        return (_restored, (type(self), state.function, bool(state.commutes)))

    @classmethod
    def Create(
        cls, function: Callable[[buffer, buffer, Any], None], commute: bool = False
    ) -> Self:
        """Create a user-defined reduction operation."""
        if not callable(function):
            raise TypeError(f"Op.Create({function!r}): expected a function")
        if len(_created) >= LIMIT:
            raise RuntimeError(f"Op.Create: the limit is {LIMIT} operations; free some first")
        cdef OpState state = OpState()
        state.number = -1
        state.commutes = bool(commute)
        state.function = function
        cdef Op self = cls()
        self.ob = state
        self.known = True
        _created.append(state)
        return self

    def Free(self) -> None:
        """Free a user-defined reduction operation."""
        self._require_own(constants.ERR_OP, "Free")
        if self.ob in _created:
            _created.remove(self.ob)
        self._release()

    def Is_commutative(self) -> bool:
        """Query reduction operations for their commutativity."""
        self._require(constants.ERR_OP, "Is_commutative")
        return bool((<OpState> self.ob).commutes)

    @property
    def is_commutative(self) -> bool:
        """Is a commutative operation."""
        return self.Is_commutative()

    @property
    def is_predefined(self) -> bool:
        """Is a predefined operation."""
        return self.ob is None or bool(self.ob.predefined)

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Apply a reduction operation to local data."""
        self._require(constants.ERR_OP, "Reduce_local")
        cdef Spec first = spec_simple(inbuf, True, _NULL, 0, "Op.Reduce_local")
        cdef Spec second = spec_simple(inoutbuf, False, _NULL, 0, "Op.Reduce_local")
        if first.type is not second.type:
            raise ValueError("Op.Reduce_local: the buffers are of different datatypes")
        if first.count != second.count:
            raise ValueError(
                f"Op.Reduce_local: {first.count} items in, {second.count} items in and out"
            )
        cdef str why = (<OpState> self.ob).refusal(first.type)
        if (<OpState> self.ob).is_of_windows():
            why = "the operation is one of windows alone"
        if why is not None:
            raise MPIException(constants.ERR_OP, f"Op.Reduce_local: {why}")
        (<OpState> self.ob).apply(first.addr, second.addr, first.count, first.type)


def _restored(cls: Any, function: Any, commute: bool) -> Op:
    """Return the operation of a pickle."""
    return cls.Create(function, commute)


def _extreme(x: Any, y: Any, sign: int) -> Any:
    """Return the pair of the larger value (sign 1) or the smaller one; if equal, by index."""
    (value, place), (other, there) = x, y
    if value == other:
        return (other, there) if there < place else (value, place)
    return (value, place) if (value > other) == (sign > 0) else (other, there)


# In the order of kernels.h: the calls of Python, for objects, and whether the operation commutes.
_TABLE = (
    ("MAX", lambda x, y: y if y > x else x, True),
    ("MIN", lambda x, y: y if y < x else x, True),
    ("SUM", lambda x, y: x + y, True),
    ("PROD", lambda x, y: x * y, True),
    ("LAND", lambda x, y: bool(x) & bool(y), True),
    ("BAND", lambda x, y: x & y, True),
    ("LOR", lambda x, y: bool(x) | bool(y), True),
    ("BOR", lambda x, y: x | y, True),
    ("LXOR", lambda x, y: bool(x) ^ bool(y), True),
    ("BXOR", lambda x, y: x ^ y, True),
    ("MAXLOC", lambda x, y: _extreme(x, y, 1), True),
    ("MINLOC", lambda x, y: _extreme(x, y, -1), True),
    ("REPLACE", lambda x, y: y, False),
    ("NO_OP", lambda x, y: x, False),
)
_CALLS = [call for _, call, _ in _TABLE]


cdef object _publish(int number, str name, bint commutes):
    """Make a predefined operation the constant of a name."""
    cdef OpState state = OpState()
    cdef Op self = Op.__new__(Op)
    state.number = number
    state.commutes = commutes
    self.ob = state
    globals()[name] = constant(self, name)


OP_NULL = constant(Op(), "OP_NULL")
for _number, (_name, _call, _commutes) in enumerate(_TABLE):
    _publish(_number, _name, _commutes)
