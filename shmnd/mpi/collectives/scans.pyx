# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature.format=python
# cython: annotation_typing=False
"""Prefix reductions: of the ranks before one, with or without it."""

from typing import Any

from shmnd.mpi.collectives.plan cimport prepared, run, started
from shmnd.mpi.collectives.reductions cimport ReduceCalls
from shmnd.mpi.point_to_point.persistent cimport Prequest
from shmnd.mpi.point_to_point.request cimport Request

from shmnd.mpi.objects.info import INFO_NULL
from shmnd.mpi.collectives.op import SUM


class ScanCalls:
    """Prefix reductions, of intracommunicators."""

    __slots__ = ()

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        """Inclusive scan."""
        run((<ReduceCalls?>self)._scan(sendbuf, recvbuf, op, False, "Scan"))

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Request:
        """Inclusive scan."""
        return started((<ReduceCalls?>self)._scan(sendbuf, recvbuf, op, False, "Iscan"))

    def Scan_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = SUM, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent inclusive scan."""
        return prepared((<ReduceCalls?>self)._scan(sendbuf, recvbuf, op, False, "Scan_init"), info)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        """Exclusive scan."""
        run((<ReduceCalls?>self)._scan(sendbuf, recvbuf, op, True, "Exscan"))

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Request:
        """Inclusive scan."""
        return started((<ReduceCalls?>self)._scan(sendbuf, recvbuf, op, True, "Iexscan"))

    def Exscan_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = SUM, info: Any = INFO_NULL
    ) -> Prequest:
        """Persistent exclusive scan."""
        return prepared((<ReduceCalls?>self)._scan(sendbuf, recvbuf, op, True, "Exscan_init"), info)
