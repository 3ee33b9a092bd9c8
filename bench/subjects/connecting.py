# SPDX-License-Identifier: Apache-2.0
"""What a connection costs: two processes that connect, disconnect, and do it again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..measure.question import Kind, Question
from ..measure.reading import Reading, counters, make_stamps
from ..workers.worker import CLIENT
from .own import HOST
from .subject import WorkerSubject

if TYPE_CHECKING:
    from shmnd import Listener

_LIMIT: Final = 20.0


class Connecting(WorkerSubject):
    """Two processes and one connection after another."""

    name: ClassVar[str] = "shmnd"
    end: ClassVar[str] = ".subjects.connecting:ConnectingEnd"
    apart: ClassVar[bool] = True

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__({"namespace": namespace})

    def answers(self, question: Question) -> bool:
        """Return True only for connections."""
        return question.kind is Kind.CONNECT


class ConnectingEnd:
    """One of the two processes."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        import shmnd

        self._role = role
        self._version = shmnd.__version__
        self._adapter = shmnd.open_adapter(HOST, namespace=options["namespace"])
        self._queue = self._adapter.create_completion_queue(64)
        self._listener: Listener | None = None
        self._address: tuple[str, int] = (HOST, 0)

    def describe(self) -> dict[str, str]:
        """Return the version."""
        return {"shmnd": self._version}

    def offer(self, question: Question) -> dict[str, Any]:
        """Listen, once, and return the address."""
        if self._listener is None:
            self._listener = self._adapter.create_listener()
            self._listener.bind((HOST, 0))
            self._listener.listen()
        return {"address": self._listener.get_local_address()}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Learn where the server listens."""
        host, port = offer["address"]
        self._address = host, port

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Connect `count` times; a sample is from Connect to the end of CompleteConnect.

        The seconds are those of everything: queue pair and connector made, connected,
        disconnected and closed.
        """
        times = make_stamps(count)
        start = time.perf_counter()
        for place in range(count):
            if self._role == CLIENT:
                times[place] = self._connect()
            else:
                self._accept()
        seconds = time.perf_counter() - start
        return Reading(seconds, counters(times[:count]) if record else {})

    def _connect(self) -> int:
        with (
            self._adapter.create_queue_pair(self._queue, self._queue) as qp,
            self._adapter.create_connector() as connector,
        ):
            begun = time.perf_counter_ns()
            connector.connect(qp, self._address).result(_LIMIT)
            connector.complete_connect().result(_LIMIT)
            spent = time.perf_counter_ns() - begun
            connector.disconnect().result(_LIMIT)
        return spent

    def _accept(self) -> None:
        assert self._listener is not None
        with (
            self._adapter.create_queue_pair(self._queue, self._queue) as qp,
            self._adapter.create_connector() as connector,
        ):
            self._listener.get_connection_request(connector).result(_LIMIT)
            connector.accept(qp).result(_LIMIT)
            connector.notify_disconnect().result(_LIMIT)

    def close(self) -> None:
        """Close the adapter, and with it all that was made from it."""
        if self._listener is not None:
            self._listener.close()
        self._adapter.close()
