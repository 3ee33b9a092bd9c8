# SPDX-License-Identifier: Apache-2.0

from shmnd.ring.process.waiting cimport WaitSetCore


cdef class PendingCore:
    cdef object __weakref__
    cdef readonly dict _tickers  # by the identity of objects: weak references to them
    cdef readonly dict _lingering
    cdef readonly dict _links
    cdef readonly object _hurried
    cdef public WaitSetCore _wait_set
    cdef double links_seen  # when

    cdef tick(self)
    cdef poll_links(self)
