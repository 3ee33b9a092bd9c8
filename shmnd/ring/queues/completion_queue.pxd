# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.shared_memory.registry cimport Registry
from shmnd.ring.shared_memory.segment cimport Segment
from shmnd.ring.process.counters cimport CounterTable
from shmnd.ring.process.waiting cimport WaitSetCore


cdef class Result:
    cdef readonly object status
    cdef readonly object queue_pair_context
    cdef readonly object request_context
    cdef readonly object request_type
    cdef uint32_t bytes


cdef class FailedResult(Result):
    cdef str why


cdef class Bound:
    cdef object context, window


# A queue pair as its completion queues use it.
cdef class PairCore:
    cdef c.shmnd_qp q
    cdef object link
    cdef CompletionCore receive_cq
    cdef CompletionCore initiator_cq
    cdef object __weakref__

    cdef int64_t serve(self, uint32_t what, bint receiving) except -1
    cdef str why(self, uint32_t status, uint32_t type_)
    cdef str outstanding(self, bint requests, bint receives)


cdef class CompletionCore:
    cdef c.shmnd_cq raw
    cdef Segment _bells, _marks
    cdef tuple bell_place
    cdef int depth
    cdef uint64_t places  # entries reserved for windows
    cdef uint64_t reserved
    cdef uint32_t rooms
    cdef list _free_bits
    cdef uint32_t _next_bit
    cdef list _keep
    cdef int doorbell
    cdef bint closed
    cdef object adapter
    cdef Registry _registry
    cdef CounterTable _counter_table
    cdef WaitSetCore _wait_set_core
    cdef public double spin
    cdef uint32_t _spin_misses
    cdef int sleepers
    cdef bint announcing  # the next pending request must wake a thread that sleeps elsewhere
    cdef unsigned int looks
    cdef uint32_t notify_mode
    cdef bint fired  # a completion was taken that satisfies a Notify, which is not complete yet
    cdef dict users  # context of queue pairs -> weak references to them
    cdef list feeders  # weak references to shared receive queues
    cdef object readiness
    cdef uint32_t born  # NOT_MADE until it can be used
    cdef uint32_t taking  # as `born`, and NOT_MADE again when it is closed
    cdef uint64_t _looked_ns
    cdef c.shmnd_pace pace
    cdef int64_t _copied  # bytes copied by the current call

    cdef reserve(self, uint64_t entries)
    cdef unreserve(self, uint64_t entries)
    cdef uint32_t take_bit(self) except? 0xffffffff
    cdef give_bit(self, uint32_t bit)
    cdef keep(self, object context)
    cdef collect(self)
    cdef int poll(self, c.shmnd_cqe *out, uint32_t most) except -1
    cdef _rearm(self)
    cdef announce(self, bint value)
    cdef bint asked(self) noexcept
    cdef void pushed(self) noexcept
    cdef list take(self, Py_ssize_t max)
    cdef list _taken_now(self, Py_ssize_t max)
    cdef object result(self, const c.shmnd_cqe *e)
    cdef object failure(self, const c.shmnd_cqe *e)
    cdef know(self, PairCore pair)
    cdef list _spin(self, Py_ssize_t max, object timeout)
    cdef bint _something(self) noexcept
    cdef _spin_unlocked(self, uint64_t end)
    cdef int usable(self, str call) except -1
    cdef bint _sleep_alone(self, Py_ssize_t max, uint64_t until, list results) except -1
    cdef bint _nap_until(self, Py_ssize_t max, uint64_t until, list results) except -1
    cdef bint _over(self) except -1
    cdef doze(self)
    cdef _look_around(self)
    cdef int _pause(self) except -1
    cdef feed_from(self, object receives)
    cdef _tell_feeders(self)
