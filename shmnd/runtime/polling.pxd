# SPDX-License-Identifier: Apache-2.0

from shmnd.ring.process.waiting cimport Sleepers, WaitSetCore


cdef class PendingCore:
    cdef object __weakref__
    cdef readonly dict _tickers  # by the identity of objects: weak references to them
    cdef readonly dict _unfinished
    cdef readonly dict _links
    cdef readonly object _polled_next
    cdef readonly object _put_off  # what an exception has interrupted
    cdef public WaitSetCore _wait_set
    cdef double links_seen  # when

    cpdef put_off(self, object late)
    cdef finish(self)
    cdef tick(self)
    cdef poll_links(self)
    cdef wake_at_last(self)
    cdef void _wake_from_word(self) noexcept


# A progress engine as its polls see it.
cdef class EngineCore:
    cdef public WaitSetCore _wait_set
    cdef public PendingCore pending_operations
    cdef public Sleepers request_progress
    cdef public object client
    cdef public object _undelivered  # events that wait for their objects
    cdef public list _unsorted  # containers of what the broker has said
    cdef public set _polling  # threads that poll, or must not now
    cdef public bint alive
    cdef double taken_at  # when a call took messages of the broker
    cdef int taken_in_a_row

    cdef bint leaves_broker(self, list readable) except -1
    cdef bint has_unsorted(self) except -1
