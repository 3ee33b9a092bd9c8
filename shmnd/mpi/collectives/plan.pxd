# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport uint64_t

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.datatypes.type_state cimport TypeState
from shmnd.mpi.transport.engine cimport shmpi_call, shmpi_sched
from shmnd.mpi.transport.outer_call cimport OuterCall
from shmnd.mpi.collectives.op cimport OpState
from shmnd.mpi.point_to_point.operation cimport Operation
from shmnd.mpi.point_to_point.persistent cimport Prequest
from shmnd.mpi.point_to_point.request cimport Request
from shmnd.mpi.buffers.spec cimport Spec


cdef class Side:
    cdef Spec spec
    cdef Py_ssize_t blocks
    cdef char **at
    cdef Py_ssize_t *sizes
    cdef char *staged
    cdef bint keeps  # it has a block in place, which no message replaces

    cdef int lay_out(self) except -1
    cdef TypeState type_of(self, Py_ssize_t block)
    cdef Py_ssize_t count_of(self, Py_ssize_t block) noexcept
    cdef char *address_of(self, Py_ssize_t block) noexcept
    cdef int pack(self) except -1
    cdef int unpack(self) except -1


cdef class Plan(Operation):
    cdef shmpi_sched *s
    cdef CommBase comm
    cdef CommState state
    cdef str call
    cdef OuterCall outer        # the call of the program, if that is another one
    cdef list sends, receives
    cdef object failure
    cdef public object then     # called when it ends
    cdef OpState op
    cdef TypeState type
    # A small one, if its call waits for it: what goes by lines, and the bytes of one rank's part.
    cdef bint counted, lasts
    cdef uint64_t number
    cdef shmpi_call mine        # its number in the communicator, and which call it is
    cdef unsigned int disputes  # of the engine, those that it has checked
    cdef int root               # -1: it has none, or there are two groups
    cdef int kind
    cdef char *given
    cdef char **blocks
    cdef Py_ssize_t length, items

    cdef str whole_name(self)
    cdef str whole_title(self)
    cdef int check(self) except -1
    cdef int count(self) except -1
    cdef int pack(self) except -1
    cdef int agrees(self) except -1
    cdef int fail_unequal(self) except -1
    cdef int refuse(self, str what) except -1


cdef Plan new_plan(CommBase comm, CommState c, str call)
cdef Side sending(Plan plan, Spec spec, Py_ssize_t blocks)
cdef Side receiving(Plan plan, Spec spec, Py_ssize_t blocks)
cdef int set_op(Plan plan, object op, TypeState type) except -1
cdef int by_lines(
    Plan plan, int kind, char *given, char **blocks, Py_ssize_t length, Py_ssize_t items, bint able
) except -1
cdef Py_ssize_t whole_items(Plan plan, Py_ssize_t items) noexcept
cdef int reduce_by_lines(Plan plan, char *given, char **got, Py_ssize_t items) except -1
cdef object run(Plan plan)
cdef Request started(Plan plan)
cdef Request started_apart(Plan plan)
cdef Prequest prepared(Plan plan, object info)
