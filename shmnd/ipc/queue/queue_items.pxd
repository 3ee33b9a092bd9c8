# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t

from shmnd.ipc.queue.queue_c cimport shmnd_block
from shmnd.ipc.queue.queue_memory cimport QueueMemory


cdef class _Held:
    cdef QueueMemory memory
    cdef shmnd_block *block
    cdef uint32_t at
    cdef uint32_t born


cdef class QueueItems(QueueMemory):
    cdef object _filled_from(self, view, size_t nbytes, list buffers)
    cdef object _filled(self, uint32_t kind, const char *first, size_t nbytes, list buffers)
    cdef object unpacked(self, uint32_t ref)
    cdef object _array(self, shmnd_block *block, uint32_t ref, shmnd_block *copy, size_t room)
    cdef _Held _hold(self, shmnd_block *block, uint32_t ref)
