# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from shmnd.memory_region import MemoryRegion
from shmnd.ring import Sge as RegisteredSge
from shmnd.ring.interfaces import AnyBuffer
from shmnd.ring.queues.notifying import NotifyCore
from shmnd.ring.queues.queue_pair import QueuePair
from shmnd.status import Status

class Result:
    status: Status
    bytes_transferred: int
    def __init__(self) -> None: ...

class Sge(RegisteredSge):
    def __init__(
        self,
        buffer_or_address: AnyBuffer | int,
        length: int | None,
        memory_handle: int | None,
    ) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def memory_handle(self) -> int | None: ...

class MwDescriptor:
    def __init__(self, base: int, length: int, token: int) -> None: ...
    @property
    def base(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def token(self) -> int: ...
    def pack(self) -> bytes: ...
    @staticmethod
    def unpack(data: AnyBuffer) -> MwDescriptor: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

class ReapingCore(NotifyCore):
    def get_results(self, max: int = 64) -> list[Result]: ...  # type: ignore[override]  # Result of version 1
    def wait(self, max: int = 64, timeout: float | None = None) -> list[Result]: ...  # type: ignore[override]  # Result of version 1

class Staging:
    def __init__(self, memory: bytearray, region: MemoryRegion, pieces: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def token(self) -> int: ...
    def close(self) -> None: ...

class EndpointCore:
    @property
    def _pair(self) -> QueuePair: ...
    def __init__(self, pair: QueuePair) -> None: ...
    def _end_batch(self) -> None: ...
    def send(self, result: Result, sges: Sge | Sequence[Sge] | None, flags: int = 0) -> None: ...
    def send_and_invalidate(
        self,
        result: Result,
        sges: Sge | Sequence[Sge] | None,
        descriptor: MwDescriptor,
        flags: int = 0,
    ) -> None: ...
    def receive(self, result: Result, sges: Sge | Sequence[Sge] | None) -> None: ...
    def read(
        self,
        result: Result,
        sges: Sge | Sequence[Sge] | None,
        descriptor: MwDescriptor,
        offset: int,
        flags: int = 0,
    ) -> None: ...
    def write(
        self,
        result: Result,
        sges: Sge | Sequence[Sge] | None,
        descriptor: MwDescriptor,
        offset: int,
        flags: int = 0,
    ) -> None: ...
