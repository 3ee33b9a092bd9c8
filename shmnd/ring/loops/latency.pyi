# SPDX-License-Identifier: Apache-2.0
from typing import Self, final

from shmnd.ring.interfaces import AnyBuffer
from shmnd.ring.queues.completion_queue import CompletionCore
from shmnd.ring.queues.queue_pair import QueuePair
from shmnd.ring.shared_memory.sge import Sge

class Ticks:
    def __new__(cls, stamps: AnyBuffer, count: int) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> None: ...

def pingpong(
    qp: QueuePair,
    receive_cq: CompletionCore,
    initiator_cq: CompletionCore,
    send: Sge,
    receive: Sge,
    count: int,
    first: bool,
    flags: int = 0,
    stamps: AnyBuffer | None = None,
    rate: float = 0.0,
) -> float: ...
def write_pingpong(
    qp: QueuePair,
    initiator_cq: CompletionCore,
    source: Sge,
    remote_address: int,
    remote_token: int,
    watch: AnyBuffer,
    mark: int,
    count: int,
    first: bool,
    flags: int = 0,
    stamps: AnyBuffer | None = None,
    rate: float = 0.0,
) -> float: ...
def read(
    qp: QueuePair,
    initiator_cq: CompletionCore,
    local: Sge,
    remote_address: int,
    remote_token: int,
    count: int,
    stamps: AnyBuffer | None = None,
    rate: float = 0.0,
) -> float: ...

@final
class LineEnd:
    def __new__(cls, shared: AnyBuffer, first: bool) -> Self: ...
    def give(self) -> None: ...
    def take(self) -> None: ...

def exchange_lines(
    shared: AnyBuffer, base: int, count: int, first: bool, stamps: AnyBuffer | None = None
) -> float: ...
