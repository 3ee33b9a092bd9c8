# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.ipc.common.gate_c cimport word32
from shmnd.ipc.queue.queue_items cimport QueueItems
from shmnd.ring.c_waiting cimport shmnd_poll_window

cdef object NOTHING  # in place of an item where there is none
cdef int64_t FIRST_NS  # so long a get sleeps by futex

cdef int require_born(uint32_t born, str call) except -1


cdef class QueueCore(QueueItems):
    cdef shmnd_poll_window poll_window
    cdef object ring_descriptors
    cdef public object unreadable
    """What an item that cannot be unpacked raises, called with its exception; None: that itself."""
    cdef bint pushed(self, uint64_t packed, bint wake, list box, tuple noted) except -1
    cdef bint _has_room(self) noexcept
    cdef object take(self)
    cdef object _read(self, uint32_t ref, bint again)
    cdef object get(self, int64_t timeout_ns, const bint *closed)
    cdef bint _spin(self, uint64_t now, uint64_t deadline) noexcept
    cdef bint _ready(self, int what)
    cdef bint _sleep(self, word32 *gate, uint64_t deadline, int what) except -1
    cdef int _open(self, word32 *gate, int most) except -1
    cdef int _ring(self) except -1
