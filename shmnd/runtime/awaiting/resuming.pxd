# SPDX-License-Identifier: Apache-2.0

from shmnd.ring.process.waiting cimport Sleepers


cdef class LoopPolls:
    cdef object __weakref__
    cdef object poll
    cdef Sleepers sleepers
    cdef readonly int _fd
    cdef readonly dict _waiting  # by loop that reads: what wakes the tasks that wait there
    cdef dict polling  # by thread: the loop whose callback polls there, and what that poll ended

    cpdef begin(self, object loop, object wake)
    cpdef end(self, object loop, object wake)
    cpdef resolve(self, object loop, object future)
    cdef stop(self, object loop)


cdef class UntilWoken:
    cdef LoopPolls loops
    cdef Sleepers sleepers
    cdef list waiters
    cdef object over
