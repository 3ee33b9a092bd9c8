# SPDX-License-Identifier: Apache-2.0
"""What connections cost by the hundred: made at once, all pairs of many processes, and idle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..measure.environment import shared_memory_used
from ..measure.question import Kind, Question
from ..measure.reading import Reading
from ..workers.worker import CLIENT
from .mesh import Mesh
from .own import HOST
from .subject import WorkerSubject

if TYPE_CHECKING:
    from typing import TypeAlias

    from shmnd import Connector, QueuePair

    _Made: TypeAlias = tuple[Connector, QueuePair]

_LIMIT: Final = 30.0
_WAVE: Final = 256
"""The most connections that are being made at the same time."""


class Many(WorkerSubject):
    """Two processes; one of them makes many connections with the other."""

    name: ClassVar[str] = "shmnd"
    end: ClassVar[str] = ".subjects.many:ManyEnd"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__({"namespace": namespace})
        self.bytes_each: dict[Question, float] = {}
        """Shared memory of each of the idle connections of a question."""

    def answers(self, question: Question) -> bool:
        """Return True only for connections that are made together."""
        return question.kind is Kind.CONNECT_MANY

    def connect(self, question: Question) -> None:
        """Make the idle connections, and see how much shared memory they took."""
        before = shared_memory_used()
        super().connect(question)
        if question.idle:
            used = shared_memory_used() - before
            self.bytes_each.setdefault(question, used / question.idle)


class Meeting(Mesh):
    """So many processes, each of which connects with all others."""

    end: ClassVar[str] = ".subjects.many:MeetingEnd"

    def answers(self, question: Question) -> bool:
        """Return True for the meeting of as many processes as these are."""
        return question.kind is Kind.MEETING and question.how.processes == self._processes


class _End:
    """What the ends of both subjects have."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        import shmnd

        self._role = role
        self._version = shmnd.__version__
        self._adapter = shmnd.open_adapter(HOST, namespace=options["namespace"])
        self._queue = self._adapter.create_completion_queue(64)
        self._listener = self._adapter.create_listener()
        self._listener.bind((HOST, 0))
        self._listener.listen()

    def describe(self) -> dict[str, str]:
        """Return the version."""
        return {"shmnd": self._version}

    def offer(self, question: Question) -> dict[str, Any]:
        """Return where this process listens."""
        return {"address": self._listener.get_local_address()}

    def _pair(self, question: Question) -> QueuePair:
        """Make a queue pair of the depths that the question asks for."""
        how = question.how
        depths = {"receive_depth": how.receives, "initiator_depth": how.sends}
        given = {name: depth for name, depth in depths.items() if depth}
        return self._adapter.create_queue_pair(self._queue, self._queue, **given)

    def _connect(self, question: Question, addresses: list[tuple[str, int]]) -> list[_Made]:
        """Make a connection to each address, all at once."""
        made, asked = [], []
        for address in addresses:
            connector, pair = self._adapter.create_connector(), self._pair(question)
            asked.append(connector.connect(pair, address))
            made.append((connector, pair))
        for answered in asked:
            answered.result(_LIMIT)
        for done in [connector.complete_connect() for connector, _ in made]:
            done.result(_LIMIT)
        return made

    def _accept(self, question: Question, count: int) -> list[_Made]:
        """Accept `count` connections as they come, and return them."""
        connectors = [self._adapter.create_connector() for _ in range(count)]
        asked = [self._listener.get_connection_request(connector) for connector in connectors]
        made, accepted = [], []
        for request, connector in zip(asked, connectors, strict=True):
            request.result(_LIMIT)
            pair = self._pair(question)
            accepted.append(connector.accept(pair))
            made.append((connector, pair))
        for done in accepted:
            done.result(_LIMIT)
        return made

    def close(self) -> None:
        """Close the adapter, and with it all that was made from it."""
        self._listener.close()
        self._adapter.close()


class ManyEnd(_End):
    """One of two processes."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._address: tuple[str, int] = (HOST, 0)
        self._idle: list[_Made] = []

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Learn where the server listens, and make the idle connections."""
        host, port = offer["address"]
        self._address = host, port
        for count in _waves(question.idle):
            self._idle += self._make(question, count)

    def _make(self, question: Question, count: int) -> list[_Made]:
        if self._role == CLIENT:
            return self._connect(question, [self._address] * count)
        return self._accept(question, count)

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Make `count` connections; ending them again is outside the clock."""
        seconds = 0.0
        for wave in _waves(count):
            start = time.perf_counter()
            made = self._make(question, wave)
            seconds += time.perf_counter() - start
            self._end(made)
        return Reading(seconds)

    def _end(self, made: list[_Made]) -> None:
        for connector, _ in made:
            if self._role == CLIENT:
                connector.disconnect().result(_LIMIT)
            else:
                connector.notify_disconnect().result(_LIMIT)
        _close(made)


class MeetingEnd(_End):
    """One of many processes. The first starts each round and ends it, by connections that stay."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._signals = self._adapter.create_completion_queue(1024)
        self._signals.spin = 0.0  # those that it waits for need the cores
        self._told: list[_Made] = []
        self._addresses: list[tuple[str, int]] = []

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Learn where all listen; connect the first with all others."""
        self._addresses = [(host, port) for host, port in _addresses_of(offer)]
        others = len(self._addresses) - 1
        for address in self._addresses[1:] if self._role == CLIENT else [None]:
            connector = self._adapter.create_connector()
            pair = self._adapter.create_queue_pair(self._signals, self._signals)
            pair.receive(None)
            if address is None:
                self._listener.get_connection_request(connector).result(_LIMIT)
                connector.accept(pair).result(_LIMIT)
            else:
                connector.connect(pair, address).result(_LIMIT)
                connector.complete_connect().result(_LIMIT)
            self._told.append((connector, pair))
        assert len(self._told) == (others if self._role == CLIENT else 1)

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Meet `count` times. The clock runs from the first signal until all have reported that
        its connections are made.
        """
        seconds = 0.0
        for _ in range(count):
            start = time.perf_counter()
            if self._role == CLIENT:
                self._signal()
            else:
                self._await_signals()
            made = self._meet(question)
            if self._role == CLIENT:
                self._await_signals()
                seconds += time.perf_counter() - start
            else:
                self._signal()
            self._part(made)
        return Reading(seconds)

    def _meet(self, question: Question) -> tuple[list[_Made], list[_Made]]:
        """Connect with those before this one, and accept those behind it."""
        made, asked = [], []
        for address in self._addresses[: self._role]:
            connector, pair = self._adapter.create_connector(), self._pair(question)
            asked.append(connector.connect(pair, address))
            made.append((connector, pair))
        accepted = self._accept(question, len(self._addresses) - 1 - self._role)
        for answered in asked:
            answered.result(_LIMIT)
        for done in [connector.complete_connect() for connector, _ in made]:
            done.result(_LIMIT)
        return made, accepted

    def _part(self, made: tuple[list[_Made], list[_Made]]) -> None:
        """End the connections; return when the others have ended theirs, too."""
        asking, accepted = made
        for connector, _ in asking:
            connector.disconnect().result(_LIMIT)
        for connector, _ in accepted:
            connector.notify_disconnect().result(_LIMIT)
        _close(asking + accepted)
        if self._role == CLIENT:
            self._signal()
            self._await_signals()
        else:
            self._await_signals()
            self._signal()

    def _signal(self) -> None:
        import shmnd

        for _, pair in self._told:
            pair.send(None, flags=shmnd.OpFlag.SILENT_SUCCESS)

    def _await_signals(self) -> None:
        left = len(self._told)
        deadline = time.monotonic() + _LIMIT
        while left:
            for result in self._signals.wait(left, deadline - time.monotonic()):
                result.raise_if_failed()
                left -= 1
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} processes gave no signal within {_LIMIT:g} s")
        for _, pair in self._told:
            pair.receive(None)


def _addresses_of(offer: dict[str, Any]) -> list[tuple[str, int]]:
    return [tuple(one["address"]) for one in offer["offers"]]


def _close(made: list[_Made]) -> None:
    for connector, pair in made:
        connector.close()
        pair.close()


def _waves(count: int) -> list[int]:
    return [min(_WAVE, count - begun) for begun in range(0, count, _WAVE)]
