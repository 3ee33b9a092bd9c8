# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport uint64_t

from shmnd.mpi.communicators.comm_state cimport CommState
from shmnd.mpi.transport.engine cimport Wait, flag, shmpi_engine
from shmnd.mpi.objects.handle cimport State
from shmnd.mpi.datatypes.type_state cimport TypeState, mpi_runs


cdef extern from "transport/one_sided.h" nogil:
    struct shmpi_gate:
        pass
    bint shmpi_gate_enter(shmpi_gate *gate, bint writes, int rank)
    void shmpi_gate_leave(shmpi_gate *gate, bint writes)
    bint shmpi_gate_take(shmpi_gate *gate, int rank)
    void shmpi_gate_return(shmpi_gate *gate)
    struct shmpi_holders:
        int size, rank
        const int *to_job
        shmpi_gate *gates
        char *rows
    flag shmpi_has_left(shmpi_engine *e, int rank)
    enum:
        SHMPI_ASKS
        SHMPI_HOLDS
    void shmpi_mark(const shmpi_holders *h, int lock, char mark)
    int shmpi_holder(shmpi_engine *e, const shmpi_holders *h, int lock, flag *has_left)
    int shmpi_lost_reader(shmpi_engine *e, const shmpi_holders *h, int lock)
    int shmpi_taker(const shmpi_holders *h, int lock)

cdef extern from "transport/copying/by_kernel.h" nogil:
    int shmpi_copy_by_kernel(
        shmpi_engine *e, int rank, char *here, uint64_t there, uint64_t n, bint writes)

cdef extern from "one_sided/remote_runs.h" nogil:
    int shmpi_remote_runs(
        shmpi_engine *e, int rank, const mpi_runs *runs, ptrdiff_t extent, char *row,
        uint64_t there, uint64_t n, bint writes)


cdef class WinState(State):
    cdef object __weakref__
    cdef readonly object comm           # an intracommunicator of its own
    cdef readonly int flavor, size, rank, unit
    cdef readonly object memory         # a buffer of what this rank offers
    cdef readonly list sizes, units
    cdef uint64_t *bases
    cdef char **mapped
    cdef object control, data           # segments, which live as long as the window
    cdef shmpi_gate *gates
    cdef shmpi_holders holders
    cdef object announced               # the wait of a program that polls, as it was published
    cdef public list attached
    cdef char *open_at                  # 1 for each rank at which an access epoch is open
    cdef bint used                      # whether a call has moved data since the last Fence
    cdef public bint fenced             # the open epochs are those of a Fence
    cdef public bint all_locked         # the locks are those of Lock_all
    cdef public object posted, started, locked

    cdef int enter(self, int rank, bint writes, str call) except -1
    cdef int publish(self, Wait *wait, int rank, int *published, str call) except -1
    cdef int take(self, int rank, str call) except -1


cdef class Target:
    cdef WinState w
    cdef object where           # the window or request of the call, for its error handler
    cdef str call               # its name, for errors
    cdef int rank
    cdef char *items            # where they lie here, if the window is mapped
    cdef uint64_t address       # where they lie at their rank
    cdef Py_ssize_t nbytes, count
    cdef TypeState type

    cdef int fetch(self, char *row, Py_ssize_t nbytes) except -1
    cdef int put(self, char *row, Py_ssize_t nbytes) except -1
    cdef int _copy(self, char *row, Py_ssize_t nbytes, bint writes) except -1


cdef Target target_of(
    object where, WinState w, int rank, Py_ssize_t disp, Py_ssize_t count, TypeState type, str call)
