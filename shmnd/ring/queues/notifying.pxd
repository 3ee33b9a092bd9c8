# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint64_t

from shmnd.ring.queues.completion_queue cimport CompletionCore


cdef class NotifyCore(CompletionCore):
    cdef readonly dict _waiting  # the Notify operations that wait: their kinds
    cdef list satisfied  # those whose completion has come, and whose end has not
    cdef readonly int _turns  # tasks that poll now
    cdef unsigned int turns_taken
    cdef uint64_t awaiting_since
    cdef bint yields  # in a task that polls: the peer may have the same CPU

    cdef arm(self)
    cdef complete_satisfied(self)
    cdef end_satisfied(self)
    cdef disarm_if_polled(self)
