# SPDX-License-Identifier: Apache-2.0
from typing import Any, Self

from shmnd.mpi.communicators.comm_state import CommBase
from shmnd.mpi.objects.handle import Handle, State
from shmnd.mpi.point_to_point.request import Request
from shmnd.mpi.point_to_point.status import Status

class MessageState(State): ...

def probed(
    comm: CommBase, source: int, tag: int, status: Status, waits: bool, call: str
) -> bool: ...
def matched(
    comm: CommBase, source: int, tag: int, status: Status, waits: bool, call: str
) -> Message | None: ...

class Message(Handle):
    @classmethod
    def Probe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self: ...
    @classmethod
    def Iprobe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self | None: ...
    @classmethod
    def probe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self: ...
    @classmethod
    def iprobe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self | None: ...
    def Recv(self, buf: Any, status: Status | None = None) -> None: ...
    def Irecv(self, buf: Any) -> Request: ...
    def recv(self, status: Status | None = None) -> Any: ...
    def irecv(self) -> Request: ...

MESSAGE_NULL: Message
MESSAGE_NO_PROC: Message
