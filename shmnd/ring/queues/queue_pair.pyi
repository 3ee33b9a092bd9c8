# SPDX-License-Identifier: Apache-2.0
from typing import Any, NoReturn, Self, SupportsIndex

from shmnd.ring.queues.completion_queue import CompletionCore
from shmnd.ring.queues.connection import ConnectionCore
from shmnd.ring.queues.shared_receive_queue import ReceiveCore
from shmnd.ring.shared_memory.registry import Registry

class QueuePair(ConnectionCore):
    def __init__(
        self,
        adapter: Any,
        registry: Registry,
        receive_cq: CompletionCore,
        initiator_cq: CompletionCore,
        srq: ReceiveCore | None,
        context: object,
        depths: dict[str, int],
    ) -> None: ...
    def view(self, remote_address: int, remote_token: int, nbytes: int) -> memoryview: ...
    def close(self) -> None: ...
    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def __del__(self) -> None: ...
