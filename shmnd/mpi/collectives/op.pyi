# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any, Self

from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.objects.handle import Handle, State

LIMIT: int

class OpState(State):
    @property
    def commutes(self) -> bool: ...
    @property
    def number(self) -> int: ...
    @property
    def function(self) -> Any: ...

class Op(Handle):
    _family: str
    def __new__(cls, op: Op | None = None) -> Self: ...
    def __call__(self, x: Any, y: Any, /) -> Any: ...
    def __reduce__(self) -> str | tuple[Any, ...]: ...
    @classmethod
    def Create(
        cls, function: Callable[[buffer, buffer, Any], None], commute: bool = False
    ) -> Self: ...
    def Free(self) -> None: ...
    def Is_commutative(self) -> bool: ...
    @property
    def is_commutative(self) -> bool: ...
    @property
    def is_predefined(self) -> bool: ...
    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None: ...

def _restored(cls: Any, function: Any, commute: bool) -> Op: ...
def _extreme(x: Any, y: Any, sign: int) -> Any: ...

OP_NULL: Op
MAX: Op
MIN: Op
SUM: Op
PROD: Op
LAND: Op
BAND: Op
LOR: Op
BOR: Op
LXOR: Op
BXOR: Op
MAXLOC: Op
MINLOC: Op
REPLACE: Op
NO_OP: Op
