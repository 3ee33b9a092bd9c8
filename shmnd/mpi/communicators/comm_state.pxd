# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from shmnd.mpi.transport.engine cimport shmpi_call, shmpi_engine, shmpi_group, shmpi_req
from shmnd.mpi.objects.handle cimport State
from shmnd.mpi.objects.keyed cimport Keyed
from shmnd.mpi.point_to_point.status cimport Status

cdef extern from "transport/collectives/calls.h" nogil:
    struct shmpi_calls:
        pass


cdef extern from "collectives/lines.h" nogil:
    # The rings of a communicator, which small collectives use.
    struct shmpi_lines:
        uint64_t number
        int size, place
        uint32_t *rank


cdef class CommState(State):
    cdef readonly uint32_t context      # of messages; +1 collectives, +2 news of communicators
    cdef readonly int size, rank
    cdef readonly bint inter
    cdef int *to_job                    # peers, as ranks of the job: of the remote group, if inter
    cdef int *from_job                  # and back, -1 for others
    cdef int *own                       # the local group
    cdef readonly int peers             # how many
    cdef shmpi_calls calls              # the collectives that were begun
    cdef shmpi_lines *lines             # of small collectives; NULL: they go by messages
    cdef readonly tuple group           # of the local group
    cdef readonly tuple remote          # of the remote group, if inter
    cdef public object topology, buffering, locks
    cdef public CommState twin          # agrees where this one is revoked
    cdef public CommState local         # inter: the communicator of the local group
    cdef public bint freed
    cdef bint was_revoked
    cdef public str call                # of the last collective on objects
    cdef public int acknowledged        # deaths in it that the program knows of
    cdef unsigned int seen_failures
    cdef int dead_members
    cdef object __weakref__

    cdef bint news_of_revocation(self, str call=*) except -1
    cdef int dead(self) noexcept

    cdef shmpi_group as_group(self) noexcept
    cdef shmpi_call begin(self, int kind, int root) noexcept
    cdef shmpi_call call_of(self, int tag) noexcept


cdef class CommBase(Keyed):
    cdef CommState state(self, str call)
    cdef int to(self, CommState c, place, str call, str role) except -1000
    cdef int source(self, CommState c, place, str call) except -1000
    cdef int tag(self, given, bint any_allowed, str call) except -1000
    cdef object fail(self, int fault, str call, shmpi_req *r, CommState c)


cdef int whole(given, str call, str role) except? -0x7fffffff
cdef int kind_in(CommState c, str call) except -1
cdef int tag_of_call(shmpi_call call) noexcept
cdef CommState known(uint32_t context)
cdef int check_context(uint32_t context, CommBase comm) except -1
cdef void empty_status(Status status) noexcept
cdef void null_status(Status status) noexcept
cdef void set_status(Status status, CommState c, shmpi_req *r) noexcept
cdef void status_of(Status status, CommState c, int source, int tag, uint64_t got) noexcept
