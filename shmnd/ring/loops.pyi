# SPDX-License-Identifier: Apache-2.0
from shmnd.ring.above import AnyBuffer
from shmnd.ring.memory import Sge
from shmnd.ring.qp import QueuePair
from shmnd.ring.queue import CompletionCore

def pingpong(
    qp: QueuePair,
    receive_cq: CompletionCore,
    initiator_cq: CompletionCore,
    send: Sge,
    receive: Sge,
    count: int,
    first: bool,
) -> float: ...
def stream_send(
    qp: QueuePair, initiator_cq: CompletionCore, send: Sge, count: int, window: int
) -> float: ...
def stream_receive(
    qp: QueuePair, receive_cq: CompletionCore, receive: Sge, count: int
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
) -> float: ...
def copy(destination: AnyBuffer, source: AnyBuffer, count: int) -> float: ...
