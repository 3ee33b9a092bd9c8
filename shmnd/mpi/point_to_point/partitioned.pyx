# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=True, embedsignature.format=python
# cython: annotation_typing=False
"""Partitioned messages: a send that begins when the program has marked all its partitions.

They are messages of a context of their own, so that they match no others.
"""

from typing import Any

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.transport.engine cimport poll, refuse, shut
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.point_to_point.operation cimport Point
from shmnd.mpi.point_to_point.persistent cimport Prequest, prequest_of
from shmnd.mpi.buffers.spec cimport spec_simple

from shmnd.mpi import constants
from shmnd.mpi.objects.info import INFO_NULL

cdef int PROC_NULL = constants.PROC_NULL


cdef class Partitioned(Point):
    """One message of so many partitions."""

    cdef int partitions
    cdef set open_

    cdef int begin(self) except -1:
        self.open_ = set(range(self.partitions))
        if self.receives or self.peer == PROC_NULL:
            Point.begin(self)
        self.active = True
        return 0

    cdef bint ready(self) except -1:
        if not self.receives and self.peer != PROC_NULL and self.open_:
            return False
        return Point.ready(self)

    def pready(self, int low, int high) -> None:
        """Mark partitions from `low` to `high`, both included."""
        if shut:
            refuse("Prequest.Pready")
        for partition in range(low, high + 1):
            if not self.active or self.receives or partition not in self.open_:
                mpi_error(
                    self.comm, constants.ERR_ARG,
                    f"Prequest.Pready({partition}): of {self.partitions} partitions of a send "
                    "under way, each is marked once",
                )
            self.open_.discard(partition)
        if not self.open_ and self.req == NULL and self.peer != PROC_NULL:
            Point.begin(self)

    def parrived(self, int partition) -> bool:
        """Return whether a partition has come."""
        if not 0 <= partition < self.partitions or not self.receives:
            mpi_error(
                self.comm, constants.ERR_ARG,
                f"Prequest.Parrived({partition}): the receive has {self.partitions} partitions",
            )
        if self.active and not self.ready():
            poll()
        return not self.active or self.ready()


cdef Prequest _prepared(
    CommBase comm, bint receives, buf, int partitions, place, tag, str call
):
    cdef CommState c = comm.state(call)
    cdef Partitioned op = Partitioned.__new__(Partitioned)
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
    op.spec = spec_simple(buf, not receives, op.peer if op.peer == PROC_NULL else 0, partitions)
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
        return _prepared(self, False, buf, partitions, dest, tag, "Psend_init")

    def Precv_init(
        self, buf: Any, partitions: int, source: int = -1, tag: int = -1, info: Any = INFO_NULL
    ) -> Prequest:
        """Create request for a partitioned recv operation."""
        return _prepared(self, True, buf, partitions, source, tag, "Precv_init")
