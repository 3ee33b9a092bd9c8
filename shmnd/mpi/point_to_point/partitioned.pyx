# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Partitioned messages: a send that begins when the program has marked all its partitions.

They are messages of a context of their own, so that they match no others.
"""

from typing import Any

from libc.stdlib cimport free

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.datatypes.type_state cimport TypeState
from shmnd.mpi.transport.engine cimport poll, refuse, shmpi_req, shut
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.point_to_point.operation cimport Point
from shmnd.mpi.point_to_point.status cimport Status
from shmnd.mpi.point_to_point.persistent cimport Prequest, prequest_of
from shmnd.mpi.buffers.spec cimport spec_simple

from shmnd.mpi import constants
from shmnd.mpi.objects.info import INFO_NULL, require_info

cdef int PROC_NULL = constants.PROC_NULL


cdef class Partitioned(Point):
    """One message of so many partitions."""

    cdef int partitions
    cdef set open_
    cdef bint unpacked

    cdef int begin(self) except -1:
        self.open_ = set(range(self.partitions))
        self.unpacked = False
        if self.receives or self.peer == PROC_NULL:
            Point.begin(self)
        self.active = True
        return 0

    cdef bint ready(self) except -1:
        if not self.receives and self.peer != PROC_NULL and self.open_:
            return False
        return Point.ready(self)

    def pready(self, int low, int high, str call) -> None:
        """Mark partitions from `low` to `high`, both included: none where `low` is `high` + 1."""
        if shut:
            refuse(f"Prequest.{call}")
        named = low if call == "Pready" else f"{low}, {high}"
        if low > high:
            if low - 1 == high and 0 <= low <= self.partitions:
                return
            self._refuse(call, named, "the range ends before it begins; name its first and last "
                         f"partition, of 0 to {self.partitions - 1}")
        self._check(low, False, call, named)
        self._check(high, False, call, named)
        if not self.active:
            self._refuse(call, named, "the send is not under way; call Start first")
        for partition in range(low, high + 1):
            if partition not in self.open_:
                self._refuse(call, named, f"the partition {partition} is marked already")
        self.open_.difference_update(range(low, high + 1))
        if not self.open_ and self.req == NULL and self.peer != PROC_NULL:
            Point.begin(self)

    def parrived(self, int partition) -> bool:
        """Return whether a partition has come, and can be read."""
        self._check(partition, True, "Parrived", partition)
        if self.active and not self.ready():
            poll()
        if self.active and not self.ready():
            return False
        self._unpack()
        return True

    cdef object end(self, Status status):
        # A program may write what it has read: it is not unpacked again.
        if self.unpacked and self.staged != NULL:
            free(self.staged)
            self.staged = NULL
        return Point.end(self, status)

    cdef int _unpack(self) except -1:
        """Unpack a message that is whole before its end, of which an error is for the end."""
        cdef shmpi_req *r = self.req
        if self.unpacked or self.staged == NULL or r == NULL or r.fault or r.cancelled:
            return 0
        (<TypeState>self.spec.type).unpack_bytes(self.staged, r.got, self.spec.addr)
        self.unpacked = True
        return 0

    cdef int _check(self, int partition, bint receives, str call, object named) except -1:
        """Raise ERR_ARG for a partition that the request does not have, or for another request."""
        if self.receives != receives:
            what = "receive" if self.receives else "send"
            self._refuse(call, named, f"the request is of a {what}")
        if not 0 <= partition < self.partitions:
            self._refuse(call, named, f"the partitions are 0 to {self.partitions - 1}")
        return 0

    cdef int _refuse(self, str call, object partitions, str why) except -1:
        mpi_error(
            self.comm, constants.ERR_ARG,
            f"Prequest.{call}({partitions}) of {self.state.title()}: {why}",
        )


cdef Prequest _prepared(
    CommBase comm, bint receives, buf, int partitions, place, tag, info, str call
):
    cdef CommState c = comm.state(call)
    cdef Partitioned op = Partitioned.__new__(Partitioned)
    require_info(info, f"Comm.{call}")
    if partitions <= 0:
        mpi_error(comm, constants.ERR_ARG, f"Comm.{call}: {partitions} partitions; at least 1")
    op.comm = comm
    op.state = c
    op.context = c.context + 3
    op.call = call
    op.receives = receives
    op.peer = comm.source(c, place, call) if receives else comm.to(c, place, call, "dest")
    op.tag = comm.tag(tag, receives, call)
    op.partitions = partitions
    op.open_ = set()
    cdef int rank = op.peer if op.peer == PROC_NULL else 0
    op.spec = spec_simple(buf, not receives, rank, partitions, call)
    op.spec.count *= partitions
    op.stage()
    return prequest_of(op)


class PartitionedCalls:
    """The calls that prepare partitioned messages."""

    __slots__ = ()

    def Psend_init(
        self, buf: Any, partitions: int, dest: int, tag: int = 0, info: Any = INFO_NULL
    ) -> Prequest:
        """Create request for a partitioned send operation."""
        return _prepared(self, False, buf, partitions, dest, tag, info, "Psend_init")

    def Precv_init(
        self, buf: Any, partitions: int, source: int = -1, tag: int = -1, info: Any = INFO_NULL
    ) -> Prequest:
        """Create request for a partitioned recv operation."""
        return _prepared(self, True, buf, partitions, source, tag, info, "Precv_init")
