# SPDX-License-Identifier: Apache-2.0

from shmnd.ring.process.waiting cimport Sleepers


cdef class LoopPolls:
    cdef object __weakref__
    cdef object poll
    cdef Sleepers sleepers
    cdef readonly int _fd
    cdef readonly dict _waiting  # by loop: what wakes the tasks that wait there
    cdef readonly set _lingering  # loops that keep the reader without a waiter, for a while
    cdef dict polling  # by thread: the loop whose callback polls there, and what that poll ended

    cpdef begin(self, object loop, object wake)
    cpdef end(self, object loop, object wake)
    cpdef resolve(self, object loop, object future)
    cdef forget_closed_loops(self)
    cdef stop_if_idle(self, object loop)


cdef class UntilWoken:
    cdef LoopPolls loops
    cdef Sleepers sleepers
    cdef list waiters
    cdef object over
