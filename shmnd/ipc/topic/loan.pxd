# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t

from shmnd.ipc.topic.writer cimport Loaned, WriterCore


cdef class Loan:
    cdef Loaned loaned
    cdef WriterCore writer
    cdef object dtype
    cdef tuple shape
    cdef bytes meta
    cdef object view  # the array, from when it is asked for
    cdef uint32_t kind
    cdef bint flat, is_record

    cdef Loaned slot(self)
    cdef int make_view(self) except -1
    cdef Loaned with_room(self, extra)
