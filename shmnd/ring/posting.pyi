# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any, Final

from shmnd.ring.above import RegionLike, WindowLike
from shmnd.ring.memory import Sge
from shmnd.ring.queue import PairCore
from shmnd.ring.receives import ReceiveCore

def inline_bytes(sge: Sequence[Sge], call: str) -> bytearray: ...

STATE_NAMES: Final[tuple[str, ...]]

class PostingCore(PairCore):
    @property
    def adapter(self) -> Any: ...
    @property
    def context(self) -> Any: ...
    @property
    def srq(self) -> ReceiveCore | None: ...
    def send(
        self, sge: Sge | Sequence[Sge] | None, context: object = None, flags: int = 0
    ) -> None: ...
    def _send_and_invalidate(
        self, sge: Sge | Sequence[Sge] | None, token: int, context: object = None, flags: int = 0
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
        context: object = None,
        flags: int = 0,
    ) -> None: ...
    def write(
        self,
        sge: Sge | Sequence[Sge] | None,
        remote_address: int,
        remote_token: int,
        context: object = None,
        flags: int = 0,
    ) -> None: ...
    def bind(
        self,
        memory_region: RegionLike,
        memory_window: WindowLike,
        address: int,
        length: int,
        context: object = None,
        flags: int = 0,
    ) -> None: ...
    def invalidate(
        self, memory_window: WindowLike, context: object = None, flags: int = 0
    ) -> None: ...
    def flush(self) -> None: ...
    def break_off(self) -> None: ...
    def progress(self) -> None: ...
