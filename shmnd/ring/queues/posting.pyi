# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from shmnd.ring.interfaces import Context, PlainInt, RegionLike, WindowLike
from shmnd.ring.queues.progress import ProgressCore
from shmnd.ring.shared_memory.sge import Sge
from shmnd.status import OpFlag

class PostingCore(ProgressCore):
    def send(
        self,
        sge: Sge | Sequence[Sge] | None,
        context: Context | None = None,
        *,
        flags: OpFlag | PlainInt = 0,
    ) -> None: ...
    def _send_and_invalidate(
        self,
        sge: Sge | Sequence[Sge] | None,
        token: int,
        context: Context | None = None,
        *,
        flags: OpFlag | PlainInt = 0,
    ) -> None: ...
    def _begin_batch(self) -> None: ...
    def _submit_batch(self) -> None: ...
    def _end_batch(self) -> None: ...
    def receive(self, sge: Sge | Sequence[Sge] | None, context: object = None) -> None: ...
    def read(
        self,
        sge: Sge | Sequence[Sge] | None,
        remote_address: int,
        remote_token: int,
        context: Context | None = None,
        *,
        flags: OpFlag | PlainInt = 0,
    ) -> None: ...
    def write(
        self,
        sge: Sge | Sequence[Sge] | None,
        remote_address: int,
        remote_token: int,
        context: Context | None = None,
        *,
        flags: OpFlag | PlainInt = 0,
    ) -> None: ...
    def bind(
        self,
        memory_region: RegionLike,
        memory_window: WindowLike,
        address: int,
        length: int,
        context: Context | None = None,
        *,
        flags: OpFlag | PlainInt = 0,
    ) -> None: ...
    def invalidate(
        self,
        memory_window: WindowLike,
        context: Context | None = None,
        *,
        flags: OpFlag | PlainInt = 0,
    ) -> None: ...
