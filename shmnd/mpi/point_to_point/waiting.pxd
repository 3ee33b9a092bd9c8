# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.point_to_point.operation cimport Operation


cdef enum:
    NONE_READY = -1   # in place of an index: operations are under way, and none is ready
    NONE_ACTIVE = -3  # no operation is under way

cdef int wait_op(Operation op) except -1
cdef int publish_wait(list ops, bint for_all) except -1
cdef int first_ready(list ops) except -2
cdef bint all_ready(list ops) except -1
cdef int wait_first(list ops) except -2
cdef list ready_ones(list ops)
