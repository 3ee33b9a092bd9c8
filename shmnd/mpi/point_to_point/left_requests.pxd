# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.buffers.spec cimport Spec
from shmnd.mpi.transport.engine cimport shmpi_req


cdef int unpack(shmpi_req *r, Spec spec) except -1
cdef int leave_buffered(shmpi_req *r, object buffering) except -1
cdef int leave_request(shmpi_req *r, object memory) except -1
