# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.queue.queue_c cimport shmnd_block
from shmnd.ipc.queue.queue_memory cimport QueueMemory

cdef class _Held:
    cdef QueueMemory memory
    cdef shmnd_block *block
    cdef uint32_t at
    cdef uint32_t born


cdef class QueueItems(QueueMemory):
    cdef public object partly
    cdef object _loaded(self, bytes pickled, list buffers)
    cdef object _loaded_at(self, bytes pickled, list buffers, int tries)
    cdef object unkept(self)
    cdef uint64_t packed(self, obj) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t _filled(self, uint32_t kind, const char *first, size_t nbytes,
                          list buffers) except? 0xFFFFFFFFFFFFFFFF
    cdef object unpacked(self, uint32_t ref)
    cdef object _array(self, shmnd_block *block, uint32_t ref, shmnd_block *copy, size_t room)
    cdef _Held _hold(self, shmnd_block *block, uint32_t ref)
