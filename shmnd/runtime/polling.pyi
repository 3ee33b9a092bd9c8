# SPDX-License-Identifier: Apache-2.0
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

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
    def remove(self, obj: Ticker) -> None: ...

def poll_once(
    engine: Any,
    keep: bool = True,
    found: list[tuple[int, int]] | None = None,
    rung: bool = False,
) -> None: ...
