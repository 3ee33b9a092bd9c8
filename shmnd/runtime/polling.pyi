# SPDX-License-Identifier: Apache-2.0
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from shmnd.ring.process.waiting import WaitSetCore
from shmnd.runtime.interfaces import Moving, Ticker

class PendingCore:
    @property
    def _tickers(self) -> dict[int, weakref.ref[Ticker]]: ...
    @property
    def _lingering(self) -> dict[int, Callable[[], bool]]: ...
    @property
    def _links(self) -> dict[int, tuple[weakref.ref[Ticker], weakref.ref[Moving], int]]: ...
    @property
    def _hurried(self) -> deque[weakref.ref[Ticker]]: ...
    _wait_set: WaitSetCore
    def add(self, obj: Ticker) -> None: ...
    def remove(self, obj: Ticker) -> None: ...

class CallLock:
    def __init__(self, engine: Any) -> None: ...
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

def poll_once(
    engine: Any,
    keep: bool = True,
    found: list[tuple[int, int]] | None = None,
    rung: bool = False,
) -> None: ...
