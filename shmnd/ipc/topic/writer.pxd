# SPDX-License-Identifier: Apache-2.0

cimport numpy as cnp
from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.topic.topic_c cimport shmnd_sample
from shmnd.ipc.topic.writer_board cimport WriterBoard


cdef class WriterCore(WriterBoard)


cdef class Loaned:
    cdef WriterCore writer
    cdef uint32_t slot
    cdef readonly uint64_t nbytes
    cdef unsigned char *base
    cdef object memory
    cdef bint spent

    cdef void give_back(self) noexcept


cdef class WriterCore(WriterBoard):
    cdef readonly uint32_t loans
    cdef uint64_t checked_ns
    cdef public str topic
    cdef public object dtype, shape
    cdef public uint32_t kind
    cdef public bint fixed
    cdef public uint64_t most_sample

    cdef int enter(self, str call) except -1
    cdef int refuse(self, str call) except -1
    cdef int check(self, uint64_t now) except -1
    cdef uint32_t take(self, uint64_t nbytes, uint64_t extra, str call) except? 0xFFFFFFFE
    cdef uint32_t take_new(self, uint32_t wanted, str call) except? 0xFFFFFFFE
    cdef object publish(self, shmnd_sample *sample, uint32_t slot, object timeout, str call)
    cdef object put(self, const void *data, uint64_t nbytes, uint32_t kind, uint32_t ndim,
                    const cnp.npy_intp *shape, bytes meta, object header, object timeout,
                    str call)
    cdef object put_short(self, const void *data, uint64_t nbytes, uint64_t info, object timeout,
                          str call)
    cdef object put_long(self, const void *data, uint64_t nbytes, uint32_t kind, uint32_t ndim,
                         const cnp.npy_intp *shape, bytes meta, object header, object timeout,
                         str call)
    cdef Loaned new_loan(self, uint64_t nbytes, uint64_t extra)
    cdef int lend(self, Loaned loan, uint64_t nbytes, uint64_t extra) except -1
    cdef object send_loan(self, Loaned loan, uint32_t kind, tuple shape, bytes meta,
                          object header, object timeout)
    cdef int tail(self, unsigned char *at, Py_buffer *head, bytes meta) except -1
    cdef int fill(self, shmnd_sample *sample, uint32_t slot, uint32_t kind, uint64_t nbytes,
                  uint32_t ndim, const cnp.npy_intp *shape, uint64_t header_bytes,
                  uint64_t meta_bytes) except -1
    cdef bint matches(self, cnp.ndarray array) except -1
    cdef bint small(self, cnp.ndarray array)
