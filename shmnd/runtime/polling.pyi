# SPDX-License-Identifier: Apache-2.0
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from shmnd.ring.process.waiting import WaitSetCore
from shmnd.runtime.interfaces import Moving, Ticker

LINGER_PAUSE: Final = 0.001

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

class EngineCore:
    _polling: set[int]
    alive: bool

class CallLock:
    def __init__(self, engine: Any) -> None: ...
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...
    @property
    def held_here(self) -> bool: ...

def poll_once(
    engine: EngineCore,
    keep: bool = True,
    found: list[tuple[int, int]] | None = None,
    rung: bool = False,
) -> None: ...
