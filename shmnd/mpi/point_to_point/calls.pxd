# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.communicators.comm_state cimport CommBase
from shmnd.mpi.point_to_point.operation cimport Operation, Point
from shmnd.mpi.point_to_point.request cimport Request


cdef class Pair(Operation):
    cdef Point sending, receiving


# Under the name of another call.
cdef int receive_as(PointCalls comm, buf, source, tag, str call) except -1
cdef Request post_receive_as(PointCalls comm, buf, source, tag, str call)


cdef class PointCalls(CommBase):
    cdef Point _sending(self, buf, dest, tag, int mode, str call)
    cdef Point _receiving(self, buf, source, tag, str call)
    cdef Point _sending_object(self, obj, dest, tag, int mode, str call)
    cdef Point _receiving_object(self, buf, source, tag, str call)
    cdef bint _send_plain(self, buf, dest, tag, bint waits, str call) except -1
    cdef object _send(self, buf, dest, tag, int mode, str call)
    cdef Request _isend(self, buf, dest, tag, str call)
    cdef object _send_object(self, obj, dest, tag, str call)
    cdef Pair _both(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, str call)
    cdef Operation _replace(self, buf, dest, sendtag, source, recvtag, str call)
