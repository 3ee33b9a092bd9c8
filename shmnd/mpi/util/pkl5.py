# SPDX-License-Identifier: Apache-2.0
"""Objects as messages by pickle protocol 5, as `mpi4py.util.pkl5` has them.

With mpi4py this module is there to leave large buffers out of the pickle, and to send more than
2 GiB. Here the calls of all communicators do both, so these classes only have the other shape:
requests and messages that are tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NoReturn, Self, cast

from shmnd.mpi import MPI
from shmnd.mpi.buffers.pickle import Pickle, pickle
from shmnd.mpi.communicators import comm as comms
from shmnd.mpi.communicators import intercomm, intracomm
from shmnd.mpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL, ROOT
from shmnd.mpi.point_to_point import message, request
from shmnd.mpi.point_to_point.status import Status

__all__ = [  # as without one in mpi4py
    "ANY_SOURCE",
    "ANY_TAG",
    "MPI",
    "PROC_NULL",
    "ROOT",
    "Comm",
    "Intercomm",
    "Intracomm",
    "Message",
    "Pickle",
    "Request",
    "Status",
    "pickle",
]


class _BigMPI:
    """The size of the blocks that mpi4py cuts messages into; here none are."""

    blocksize = 1 << 30

    def __init__(self) -> None:
        self.cache: dict[int, Any] = {}


_bigmpi = _BigMPI()


class _Parts(tuple[Any, ...]):
    """None, one or several objects of MPI that stand for one message."""

    __slots__ = ()

    _single: ClassVar[type]

    def __new__(cls, parts: Any = None) -> Self:
        """Return a tuple of none, one or several objects."""
        if parts is None:
            return super().__new__(cls)
        if isinstance(parts, Iterable):
            return super().__new__(cls, parts)
        return super().__new__(cls, (parts,) if parts else ())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, self._single):
            other = (other,)
        elif not isinstance(other, type(self)):
            return NotImplemented
        mine = [each for each in self if each]
        return mine == [each for each in cast("Iterable[Any]", other) if each]

    def __ne__(self, other: object) -> bool:
        same = self.__eq__(other)
        return same if same is NotImplemented else not same

    __hash__ = None  # type: ignore[assignment]  # equality may change: not hashable

    def __bool__(self) -> bool:
        return any(self)


class Request(_Parts):
    """Request."""

    __slots__ = ()

    _single = request.Request

    def __new__(cls, request: Any = None) -> Self:
        """Return a request of none, one or several requests of MPI."""
        return super().__new__(cls, request)

    def Free(self) -> None:
        """Free a communication request."""
        for each in self:
            each.Free()

    def free(self) -> None:
        """Call `Free` on those that are not null."""
        for each in self:
            each.free()

    def cancel(self) -> None:
        """Cancel a communication request."""
        for each in self:
            each.Cancel()

    def get_status(self, status: Status | None = None) -> bool:
        """Non-destructive test for the completion of a request."""
        return all(each.get_status(status) for each in self)

    def test(self, status: Status | None = None) -> tuple[bool, Any | None]:
        """Test for the completion of a request."""
        if not self.get_status(status):
            return (False, None)
        return (True, self.wait(status))

    def wait(self, status: Status | None = None) -> Any:
        """Wait for a request to complete."""
        result = None
        for each in self:
            result = each.wait(status)
        return result

    @classmethod
    def get_status_all(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> bool:
        """Non-destructive test for completion of all requests."""
        return all(
            each.get_status(status)
            for each, status in zip(requests, _for_each(requests, statuses), strict=False)
        )

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """Test for completion of all requests."""
        if not cls.get_status_all(requests):
            return (False, None)
        return (True, cls.waitall(requests, statuses))

    @classmethod
    def waitall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[Any]:
        """Wait for all requests to complete."""
        given = _for_each(requests, statuses)
        return [each.wait(status) for each, status in zip(requests, given, strict=False)]


def _for_each(requests: Sequence[Request], statuses: list[Status] | None) -> Sequence[Any]:
    """Return a status for each request, or None; a list grows as far as needed."""
    if statuses is None:
        return [None] * len(requests)
    if isinstance(statuses, list):
        while len(statuses) < len(requests):
            statuses.append(Status())
    return [*statuses, *[None] * (len(requests) - len(statuses))]


class Message(_Parts):
    """Message."""

    __slots__ = ()

    _single = message.Message

    def __new__(cls, message: Any = None) -> Self:
        """Return a message of none, one or several messages of MPI."""
        return super().__new__(cls, message)

    def free(self) -> None:
        """Do nothing: a message is received, and not freed."""

    def recv(self, status: Status | None = None) -> Any:
        """Blocking receive of matched message."""
        result = None
        for each in self:
            result = each.recv(status)
        return result

    def irecv(self) -> Request:
        """Nonblocking receive of matched message."""
        return Request([each.irecv() for each in self])

    @classmethod
    def probe(
        cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Self:
        """Blocking test for a matched message."""
        return cls(message.Message.probe(comm, source, tag, status))

    @classmethod
    def iprobe(
        cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Self | None:
        """Nonblocking test for a matched message."""
        found = message.Message.iprobe(comm, source, tag, status)
        return None if found is None else cls(found)


class Comm(comms.Comm):
    """Communicator."""

    def __new__(cls, comm: comms.Comm | None = None) -> Self:
        """Return another handle to a communicator."""
        return super().__new__(cls, comm)

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Any:
        """Nonblocking send in standard mode."""
        return Request(super().isend(obj, dest, tag))

    def ibsend(self, obj: Any, dest: int, tag: int = 0) -> Any:
        """Nonblocking send in buffered mode."""
        return Request(super().ibsend(obj, dest, tag))

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Any:
        """Nonblocking send in synchronous mode."""
        return Request(super().issend(obj, dest, tag))

    def recv(
        self,
        buf: Any = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Blocking receive; `buf` is not used."""
        return super().recv(None, source, tag, status)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Send and receive; `recvbuf` is not used."""
        return super().sendrecv(sendobj, dest, sendtag, None, source, recvtag, status)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> NoReturn:
        """Raise `RuntimeError`: use `mprobe` or `improbe`, as with mpi4py."""
        raise RuntimeError("pkl5.Comm.irecv is not supported; use mprobe, improbe and their irecv")

    def mprobe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Any:
        """Blocking test for a matched message."""
        return Message(super().mprobe(source, tag, status))

    def improbe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Any:
        """Nonblocking test for a matched message."""
        found = super().improbe(source, tag, status)
        return None if found is None else Message(found)


class Intracomm(Comm, intracomm.Intracomm):
    """Intracommunicator."""

    def __new__(cls, comm: comms.Comm | None = None) -> Self:
        """Return another handle to an intracommunicator."""
        return super().__new__(cls, comm)


class Intercomm(Comm, intercomm.Intercomm):
    """Intercommunicator."""

    def __new__(cls, comm: comms.Comm | None = None) -> Self:
        """Return another handle to an intercommunicator."""
        return super().__new__(cls, comm)
