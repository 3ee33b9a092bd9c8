# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from typing import Any

from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.objects.handle import State

class WinState(State):
    comm: Any
    flavor: int
    size: int
    rank: int
    unit: int
    memory: buffer
    sizes: list[int]
    units: list[int]
    fenced: bool
    all_locked: bool
    posted: Any
    started: Any
    locked: Any
    attached: list[Any]
    def __init__(
        self, comm: Any, flavor: int, memory: Any, nbytes: int, unit: int, call: str
    ) -> None: ...
    @property
    def base(self) -> int: ...
    def part(self, rank: int) -> buffer | None: ...
    def lock(self, rank: int, writes: bool) -> None: ...
    def unlock(self, rank: int, writes: bool) -> None: ...
    def open(self, ranks: Iterable[int] | None) -> None: ...
    def close(self, ranks: Iterable[int] | None) -> None: ...
    def epoch(self) -> str: ...
    def title(self) -> str: ...

class Target: ...
