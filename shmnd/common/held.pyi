# SPDX-License-Identifier: Apache-2.0
from types import TracebackType
from typing import Protocol

class Lock(Protocol):
    """One of the module threading, or what behaves alike."""

    def acquire(self, blocking: bool = ..., /) -> bool: ...
    def release(self) -> None: ...

class Guard:
    def __init__(self, lock: Lock) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

class Held(Guard):
    def __enter__(self) -> None: ...

class Attempted(Guard):
    def __init__(self, lock: Lock, seconds: float = 0) -> None: ...
    def __enter__(self) -> bool: ...

class InTime(Guard):
    def __init__(self, lock: Lock, until: float, call: str) -> None: ...
    def __enter__(self) -> None: ...
