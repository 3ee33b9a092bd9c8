# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t

from shmnd.ring cimport c


cdef class Sge:
    cdef c.shmnd_sge raw
    cdef object owner


cdef bint is_in_python(object buffer) noexcept

cdef int require_held(Sge sge, str call) except -1

cdef int require_list(object sge, str call) except -1

cdef int gather_sges(object sge, c.shmnd_sge *out, str call, uint32_t most) except -1
