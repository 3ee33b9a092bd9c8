# SPDX-License-Identifier: Apache-2.0
from typing import Any

from shmnd.mpi.objects.handle import State
from shmnd.mpi.objects.keyed import Keyed

CONTEXTS: int
TWIN: int

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
    twin: CommState | None
    call: str | None
    acknowledged: int
    freed: bool
    @property
    def revoked(self) -> bool: ...
    def is_revoked(self, call: str) -> bool: ...
    def revoke(self) -> None: ...
    def title(self) -> str: ...
    def failed(self) -> list[int]: ...
    def __init__(
        self, context: int, group: tuple[int, ...], remote: tuple[int, ...] | None = None
    ) -> None: ...

def small_number(given: object, call: str, role: str, family: str = ...) -> int: ...
def reserve_contexts(count: int = 1) -> int: ...

class CommBase(Keyed):
    def Get_size(self) -> int: ...
    def Get_rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def rank(self) -> int: ...
