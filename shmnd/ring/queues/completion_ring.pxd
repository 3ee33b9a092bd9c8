# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.counters cimport CounterTable
from shmnd.ring.process.waiting cimport WaitSetCore
from shmnd.ring.shared_memory.registry cimport Registry
from shmnd.ring.shared_memory.segment cimport Segment


cdef class RingCore:
    cdef c.shmnd_cq raw
    cdef Segment _bells, _marks
    cdef tuple bell_place
    cdef int depth
    cdef uint64_t places  # entries reserved for windows
    cdef uint64_t reserved
    cdef uint32_t rooms
    cdef list _free_bits
    cdef uint32_t _next_bit
    cdef list _keep  # contexts of released queue pairs; None without any
    cdef int takers  # calls that have taken completions and not made their results yet
    cdef list given_back  # results of calls that an exception ended, for the next one; or None
    cdef bint given_any, given_solicited  # they satisfy a Notify of this kind
    cdef list feeders  # weak references to shared receive queues
    cdef bint fired  # a completion was taken that satisfies a Notify, which is not complete yet
    cdef bint closed
    cdef object adapter
    cdef object engine  # its progress engine
    cdef Registry _registry
    cdef CounterTable _counter_table
    cdef WaitSetCore _wait_set_core
    cdef double spin_seconds
    cdef int sleepers
    cdef bint announcing  # the next pending request must wake a thread that sleeps elsewhere
    cdef uint32_t notify_mode
    cdef object readiness
    cdef uint32_t born  # NOT_MADE until it can be used
    cdef uint32_t taking  # as `born`, and NOT_MADE again when it is closed

    cdef feed_from(self, object receives)
    cdef _tell_feeders(self)
    cdef uint64_t count(self) noexcept
    cdef give_back(self, list results)
    cdef rescue(self, list results, const c.shmnd_cqe *rest, uint32_t n)
    cdef tell_kept(self)
    cdef object result(self, const c.shmnd_cqe *e)
    cdef list take_back(self, Py_ssize_t max)
    cdef bint given_satisfies(self, uint32_t mode) noexcept
    cdef bint is_solicited(self, object result) noexcept
    cdef reserve(self, uint64_t entries)
    cdef unreserve(self, uint64_t entries)
    cdef uint32_t take_bit(self) except? 0xffffffff
    cdef give_bit(self, uint32_t bit)
    cdef keep(self, object context)
    cdef _rearm(self)
    cpdef _arm_for(self, uint32_t mode)
    cdef announce(self, bint value)
    cdef bint asked(self) noexcept
    cdef void pushed(self) noexcept
    cdef void wake_sleepers(self) noexcept
    cdef int usable(self, str call) except -1
