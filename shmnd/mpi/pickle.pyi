# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable
from typing import Any, Self

from shmnd.mpi.buffer import buffer

def _setting(name: str, default: int) -> int: ...

class Pickle:
    PROTOCOL: Any
    THRESHOLD: Any
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[[Any], Any] | None = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ) -> None: ...
    def dumps(self, obj: Any) -> bytes: ...
    def loads(self, data: Any) -> Any: ...
    def dumps_oob(self, obj: Any) -> tuple[bytes, list[buffer]]: ...
    def loads_oob(self, data: Any, buffers: Iterable[Any]) -> Any: ...

pickle: Pickle
