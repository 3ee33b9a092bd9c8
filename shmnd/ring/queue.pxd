# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.segment cimport Segment
from shmnd.ring.tally cimport Tallies


cdef class Result:
    cdef readonly object status
    cdef readonly object queue_pair_context
    cdef readonly object request_context
    cdef readonly object request_type
    cdef uint32_t bytes


# What the queues know of a queue pair.
cdef class PairCore:
    cdef c.shmnd_qp q
    cdef object link
    cdef readonly CompletionCore receive_cq
    cdef readonly CompletionCore initiator_cq
    cdef object __weakref__

    cdef int serve(self, uint32_t what, bint receiving) except -1


cdef class CompletionCore:
    cdef c.shmnd_cq raw
    cdef Segment _bells, _marks
    cdef readonly tuple bell_place
    cdef readonly int depth
    cdef uint64_t reserved
    cdef uint32_t rooms
    cdef list _free_bits
    cdef uint32_t _next_bit
    cdef list _keep
    cdef int doorbell
    cdef readonly bint closed
    cdef readonly object adapter
    cdef Tallies _tallies
    cdef public double spin
    cdef uint32_t _spin_misses
    cdef int sleepers
    cdef public bint announcing  # who sleeps elsewhere is to hear of the next request in progress
    cdef readonly unsigned int looks
    cdef readonly uint32_t notify_mode
    cdef bint fired  # a completion was taken that those who wait are still to be told of
    cdef list feeders  # shared receive queues, weakly
    cdef public object readiness
    cdef uint32_t born
    cdef uint64_t _looked_ns

    cdef reserve(self, uint64_t entries)
    cdef unreserve(self, uint64_t entries)
    cdef uint32_t take_bit(self) except? 0xffffffff
    cdef give_bit(self, uint32_t bit)
    cdef keep(self, object context)
    cdef collect(self)
    cdef int poll(self, c.shmnd_cqe *out, uint32_t most) except -1
    cdef _rearm(self)
    cdef void pushed(self) noexcept
    cdef list take(self, Py_ssize_t max)
    cdef list _taken_now(self, Py_ssize_t max)
    cdef object result(self, const c.shmnd_cqe *e)
    cdef list _spin(self, Py_ssize_t max, object timeout)
    cdef bint _something(self) noexcept
    cdef _watch(self, uint64_t end)
    cdef bint _over(self) except -1
    cdef doze(self)
    cdef _look_around(self)
    cdef feed_from(self, object receives)
    cdef _tell_feeders(self)
