# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.ringing cimport RingsCore


cdef uint64_t AT_WORD_NS

# How a sleep at a word ended: by an event, by its time, or by its time although the word was rung.
cdef enum:
    WOKEN
    LASTED
    MISLED

cdef double LONGEST  # seconds after which a sleeper polls in any case


cdef int milliseconds_until(uint64_t until) except -1


cdef class WaitSetCore


cdef class Sleepers:
    cdef object __weakref__
    cdef public set _sleepers  # what threads, tasks and descriptors called `begin` with
    cdef public set _watched  # the keys of queues that ring for requests in progress
    cdef public dict _queues
    cdef public object _lock
    cdef public WaitSetCore _wait_set
    cdef uint64_t unattended_polls  # how often `poll_unattended` was called
    cdef public object _others_are_idle  # of the completion queues

    cpdef bint begin_if_alone(self, object sleeper) except -1
    cpdef bint others_need_no_polls(self, object sleeper) except -1
    cpdef begin(self, object sleeper)
    cpdef end(self, object sleeper)
    cpdef end_for_now(self, object sleeper)
    cpdef poll_unattended(self)


cdef class WaitSetCore(RingsCore):
    cdef object __weakref__
    cdef public uint64_t _generation
    cdef public unsigned long _leader  # the thread that may sleep in the kernel; 0: none
    cdef public bint _polling
    cdef public bint _nudged
    cdef public int _followers
    cdef public object _timer
    cdef list _visited
    cdef object _links  # the one of them whose changes are rung at the bell of a queue
    cdef c.shmnd_marks *word  # the leader sleeps at the word there, or is about to; NULL: does not
    cdef uint32_t word_of  # the number of forks when that was set

    cpdef void ring_own(self) noexcept
    cpdef void wake_from_word(self) noexcept
    cdef uint32_t arm_at_word(self, c.shmnd_arming *arming) noexcept
    cdef int sleep_at_word(self, uint64_t seen, uint32_t rings, uint64_t until) except -1
    cdef void end_at_word(self) noexcept
    cdef bint has_links(self) except -1
    cdef bint needs_attention(self, object engine) except -1
    cdef bint is_led_elsewhere(self) noexcept
    cdef bint leads_alone(self) noexcept
    cdef bint sleep_once(self, uint64_t seen, int milliseconds, list others) except -1
    cdef bint has_pending(self, object engine) except -1
    cdef object sleep_alone(self, object engine, object sleeper, object predicate, uint64_t end)
    cdef wake_others(self)
    cpdef news(self)
    cpdef wake_at(self, double when)
    cdef stop_leading(self)
