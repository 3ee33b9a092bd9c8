# SPDX-License-Identifier: Apache-2.0

cimport numpy as cnp
from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.topic_c cimport shmnd_board, shmnd_sample


cdef class WriterCore:
    cdef shmnd_board b
    cdef object head_memory, lines_memory, sleepers_memory
    cdef list memories
    cdef dict neighbours, pools
    cdef uint32_t born, seats, live_slots
    cdef readonly uint32_t loans
    cdef uint64_t looked_ns
    cdef public str topic
    cdef public object dtype, shape
    cdef public uint32_t kind
    cdef public bint fixed
    cdef public uint64_t most_sample
    cdef readonly bint closed
    cdef object __weakref__

    cdef int enter(self, str call) except -1
    cdef uint32_t room_for(self, uint32_t each) except? 0xFFFFFFFE
    cdef int look(self, uint64_t now) except -1
    cdef uint32_t take(self, uint64_t nbytes, uint64_t extra, str call) except? 0xFFFFFFFE
    cdef object publish(self, shmnd_sample *sample, uint32_t slot, object timeout, str call)
    cdef int wake(self, uint32_t first, uint64_t bits) except -1
    cdef int ring(self, uint32_t seat) except -1
    cdef object put(self, const void *data, uint64_t nbytes, uint32_t kind, uint32_t ndim,
                    const cnp.npy_intp *shape, bytes meta, object header, object timeout,
                    str call)
    cdef int tail(self, unsigned char *at, Py_buffer *head, bytes meta) except -1
    cdef int fill(self, shmnd_sample *sample, uint32_t slot, uint32_t kind, uint64_t nbytes,
                  uint32_t ndim, const cnp.npy_intp *shape, uint64_t header_bytes,
                  uint64_t meta_bytes) except -1
    cdef bint matches(self, cnp.ndarray array) except -1
    cdef bint small(self, cnp.ndarray array)
