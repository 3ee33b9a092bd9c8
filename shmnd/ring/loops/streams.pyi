# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from typing import Self

from shmnd.ring.interfaces import AnyBuffer
from shmnd.ring.queues.completion_queue import CompletionCore
from shmnd.ring.queues.queue_pair import QueuePair
from shmnd.ring.shared_memory.sge import Sge

class Lanes:
    def __new__(cls, lanes: Iterable[tuple[QueuePair, Sge, Sge, int, int]]) -> Self: ...

def stream_send(
    lanes: Lanes, count: int, window: int, granted: int = 0, quota: int = 0, flags: int = 0
) -> float: ...
def stream_receive(lanes: Lanes, empty: Sge, count: int, quota: int = 0) -> float: ...
def burst_send(
    qp: QueuePair,
    initiator_cq: CompletionCore,
    send: Sge,
    count: int,
    burst: int,
    batch: bool,
    flags: int = 0,
) -> float: ...
def burst_receive(
    qp: QueuePair, receive_cq: CompletionCore, receive: Sge, count: int, batch: bool
) -> float: ...
def rdma_stream(lanes: Lanes, reading: bool, count: int, window: int, flags: int = 0) -> float: ...
def copy(destination: AnyBuffer, source: AnyBuffer, count: int) -> float: ...
