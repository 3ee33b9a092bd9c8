# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.point_to_point.operation cimport Operation
from shmnd.mpi.point_to_point.request cimport Request


cdef class Prequest(Request):
    pass


cdef Prequest prequest_of(Operation op)
