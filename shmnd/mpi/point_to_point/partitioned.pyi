# SPDX-License-Identifier: Apache-2.0
from typing import Any

from shmnd.mpi.objects.info import INFO_NULL
from shmnd.mpi.point_to_point.operation import Point
from shmnd.mpi.point_to_point.persistent import Prequest

class Partitioned(Point):
    def pready(self, low: int, high: int, call: str) -> None: ...
    def parrived(self, partition: int) -> bool: ...

class PartitionedCalls:
    def Psend_init(
        self, buf: Any, partitions: int, dest: int, tag: int = 0, info: Any = INFO_NULL
    ) -> Prequest: ...
    def Precv_init(
        self, buf: Any, partitions: int, source: int = -1, tag: int = -1, info: Any = INFO_NULL
    ) -> Prequest: ...
