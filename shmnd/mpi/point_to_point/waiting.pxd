# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.point_to_point.operation cimport Operation


cdef int wait_op(Operation op) except -1
cdef int publish_wait(list ops, bint for_all) except -1
cdef int first_ready(list ops) except -2
cdef bint all_ready(list ops) except -1
cdef int wait_first(list ops) except -2
cdef list ready_ones(list ops)
