# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.results cimport Result
from shmnd.ring.queues.posting cimport PostingCore


cdef class Slot:
    cdef uint64_t begin


cdef class Messages:
    cdef readonly int depth, piece, receives
    cdef readonly bint goodbye, pumping, late
    cdef public object patience  # seconds that the next step of the iterator waits; None: no end
    cdef public bint busy
    cdef public int followers
    cdef readonly object inbox
    cdef public object wake
    cdef public object watch  # called behind each poll, for the descriptor that a program has
    cdef readonly str ended
    cdef object memory, region
    cdef unsigned char *base
    cdef uint64_t address
    cdef uint32_t token
    cdef list slots
    cdef PostingCore qp
    cdef CompletionCore cq
    cdef bint shut
    cdef int credits, owed, due, place, places
    cdef uint64_t outgoing, word, most, left
    cdef bytes partial  # of a message that arrives in fragments: its memory

    cdef bint whole(self, const unsigned char *data, uint64_t nbytes) except -1
    cdef bint fragment(self, uint64_t what, uint64_t left, const unsigned char *data,
                       uint64_t nbytes) except -1
    cdef int say(self, uint64_t what) except -1
    cdef int take(self, list results) except -1
    cdef int take_one(self, Result result) except -1
    cdef int begin(self, uint64_t length) except -1
    cdef int other(self, uint64_t what, uint64_t left, uint64_t begin, uint64_t nbytes) except -1
    cdef bint next_is_there(self, str call) except -1
    cdef int poll(self) except -1
    cdef int idle(self) except -1
