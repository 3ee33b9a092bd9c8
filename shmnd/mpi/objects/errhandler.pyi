# SPDX-License-Identifier: Apache-2.0
from typing import Any

from shmnd.mpi.objects.handle import Handle, State

LIMIT: int

class ErrhandlerState(State):
    function: Any

class Errhandler(Handle):
    _family: str
    def Free(self) -> None: ...
    def free(self) -> None: ...

def create(kind: str, function: Any) -> Errhandler: ...
def refer(state: ErrhandlerState | None) -> Errhandler: ...
def handle(where: Any, code: int, text: str) -> None: ...
def raise_error(where: Any, code: int, text: str) -> None: ...
def _predefined(name: str) -> Errhandler: ...

ERRHANDLER_NULL: Errhandler
ERRORS_RETURN: Errhandler
ERRORS_ABORT: Errhandler
ERRORS_ARE_FATAL: Errhandler
