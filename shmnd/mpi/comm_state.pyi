# SPDX-License-Identifier: Apache-2.0
from typing import Any

from shmnd.mpi.handle import State
from shmnd.mpi.keyed import Keyed

CONTEXTS: int

class CommState(State):
    context: int
    size: int
    rank: int
    peers: int
    inter: bool
    group: tuple[int, ...]
    remote: tuple[int, ...] | None
    topology: Any
    buffering: Any
    locks: Any
    local: CommState | None
    revoked: bool
    freed: bool
    def __init__(
        self, context: int, group: tuple[int, ...], remote: tuple[int, ...] | None = None
    ) -> None: ...

def reserve_contexts(count: int = 1) -> int: ...

class CommBase(Keyed):
    def title(self, c: CommState) -> str: ...
