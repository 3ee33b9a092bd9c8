# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Requests of operations that a program starts again and again."""

from collections.abc import Sequence

from shmnd.mpi.objects.handle cimport State
from shmnd.mpi.point_to_point.operation cimport Operation
from shmnd.mpi.transport.engine cimport refuse, shut

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException


cdef Prequest prequest_of(Operation op):
    cdef Prequest request = Prequest.__new__(Prequest)
    op.persistent = op.requested = True
    request.ob = op
    return request


cdef class Prequest(Request):
    """Persistent request handler."""

    def __cinit__(self, *args, **kwargs):
        if self.ob is not None:
            self._refer(self.ob)

    def _refer(self, state: State) -> None:
        if not (<Operation>state).persistent:
            raise TypeError("Prequest: the request is not a persistent one")
        self.ob = state

    def Start(self) -> None:
        """Initiate a communication with a persistent request."""
        self._require(constants.ERR_REQUEST, "Start")
        cdef Operation op = <Operation>self.ob
        if shut:
            refuse("Prequest.Start")
        if op.active:
            raise MPIException(
                constants.ERR_REQUEST, "Prequest.Start: it is under way; wait for it first"
            )
        try:
            op.begin()
        except BaseException:
            op.active = False
            raise

    @classmethod
    def Startall(cls, requests: list[Prequest]) -> None:
        """Start a collection of persistent requests."""
        for request in requests:
            request.Start()

    def Pready(self, partition: int) -> None:
        """Mark a given partition as ready."""
        self._require(constants.ERR_REQUEST, "Pready")
        self.ob.pready(partition, partition, "Pready")

    def Pready_range(self, partition_low: int, partition_high: int) -> None:
        """Mark a range of partitions as ready."""
        self._require(constants.ERR_REQUEST, "Pready_range")
        self.ob.pready(partition_low, partition_high, "Pready_range")

    def Pready_list(self, partitions: Sequence[int]) -> None:
        """Mark a sequence of partitions as ready."""
        self._require(constants.ERR_REQUEST, "Pready_list")
        for partition in partitions:
            self.ob.pready(partition, partition, "Pready")

    def Parrived(self, partition: int) -> bool:
        """Test partial completion of a partitioned receive operation."""
        self._require(constants.ERR_REQUEST, "Parrived")
        return self.ob.parrived(partition)
