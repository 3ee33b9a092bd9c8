# SPDX-License-Identifier: Apache-2.0


cdef class Awaited:
    cdef object __weakref__
    cdef readonly object _loop
    cdef public bint _asyncio_future_blocking  # the name by which asyncio recognises a future
    cdef bint ended, is_cancelled
    cdef object error  # what it failed with, or the message of its cancellation
    cdef object task, context  # the callback that continues one task, and where it runs
    cdef list others  # further callbacks, each with its context

    cdef resume(self)
    cdef end(self)
