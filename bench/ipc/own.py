# SPDX-License-Identifier: Apache-2.0
"""Topics of `shmnd.ipc`."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..measure.question import Kind, Question
from ..subjects.subject import WorkerSubject
from ..workers.worker import CLIENT
from .ends import DEPTH, Rounds, TopicEnd

if TYPE_CHECKING:
    from shmnd import ipc

LIMIT: Final = 20.0
INLINE: Final = 40
"""Values of up to so many bytes travel in the line of a sample."""
KINDS: Final = frozenset({Kind.VALUE, Kind.ARRAY, Kind.BUILT, Kind.PUBLISH, Kind.WOKEN})

_BYTES: Final = frozenset({Kind.VALUE, Kind.PUBLISH, Kind.WOKEN})


class Topics(WorkerSubject):
    """Two processes, a publisher and a subscriber in each."""

    name: ClassVar[str] = "shmnd.ipc"
    end: ClassVar[str] = ".ipc.own:TopicsEnd"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__({"namespace": namespace})

    def answers(self, question: Question) -> bool:
        """Return True for all questions about topics."""
        return question.kind in KINDS


class TopicsEnd(TopicEnd):
    """One end."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._role = role
        self._namespace = options["namespace"]
        self._ipc: Any = importlib.import_module("shmnd.ipc")
        self._version = str(importlib.import_module("shmnd").__version__)
        self._topics: dict[Question, tuple[ipc.Publisher, ipc.Subscriber]] = {}
        self._others: dict[Question, list[ipc.Subscriber]] = {}

    def describe(self) -> dict[str, str]:
        """Return the version of shmnd."""
        return {"shmnd": self._version}

    def offer(self, question: Question) -> dict[str, Any]:
        """Open the server's publisher and its subscribers; return the name of the topic."""
        name = f"shmnd-bench/{os.getpid()}/{len(self._topics)}"
        self._open(question, name)
        return {"name": name}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Open the client's, and wait for those of the server."""
        if self._role == CLIENT:
            self._open(question, offer["name"])
        pub, _ = self._topics[question]
        number = question.how.subscribers + question.idle if self._role == CLIENT else 1
        pub.wait_for_subscribers(number, LIMIT)

    def _open(self, question: Question, name: str) -> None:
        type_: Any = bytes if question.kind in _BYTES else "u1"
        there, back = f"{name}/there", f"{name}/back"
        mine, theirs = (there, back) if self._role == CLIENT else (back, there)
        where = {"namespace": self._namespace}
        publisher = self._ipc.Publisher
        pub = publisher(mine, type_, max_subscribers=DEPTH + question.idle, **where)
        sub = self._subscriber(theirs, type_)
        self._topics[question] = pub, sub
        if self._role != CLIENT:
            others = [self._subscriber(theirs, type_) for _ in range(question.how.subscribers - 1)]
            self._others[question] = others
            for _ in range(question.idle):
                others.append(self._subscriber(theirs, type_, buffer=1, max_held=1))

    def _subscriber(self, name: str, type_: Any, **more: int) -> Any:
        # The publisher of a stream waits; no subscriber falls behind in the other loops.
        policy = "drop_oldest" if "buffer" in more else "block"
        given: dict[str, Any] = {"buffer": DEPTH, **more}
        return self._ipc.Subscriber(
            name, type_, overflow=policy, namespace=self._namespace, **given
        )

    def lead(self, question: Question, rounds: Rounds) -> None:
        """Send and receive."""
        pub, sub = self._topics[question]
        send, loan, receive, size = pub.send, pub.loan, sub.receive, question.size
        if question.kind is Kind.ARRAY and size > INLINE:
            for _ in rounds:
                room = loan(size)
                room.array[0] = 7
                room.send()
                _ = receive().array[0]
        elif question.kind is Kind.ARRAY:
            array = _array(size)
            for _ in rounds:
                send(array)
                _ = receive().array[0]
        elif size > INLINE:
            for _ in rounds:
                loan(size).send()
                receive()
        else:
            value = bytes(size)
            for _ in rounds:
                send(value)
                _ = receive().value

    def send_one(self, question: Question) -> None:
        """Send a sample of the question's size."""
        self._topics[question][0].loan(question.size).send()

    def receive_one(self, question: Question) -> None:
        """Receive."""
        self._topics[question][1].receive(LIMIT)

    def fill(self, question: Question, rounds: Rounds) -> None:
        """Fill every byte of each array."""
        loan, size = self._topics[question][0].loan, question.size
        for _ in rounds:
            room = loan(size)
            room.array.fill(7)
            room.send()
        self.receive_one(question)

    def drain(self, question: Question, rounds: Rounds) -> None:
        """Read one byte of each array."""
        receive = self._topics[question][1].receive
        for _ in rounds:
            receive().array[0]
        self.send_one(question)

    def publish(self, question: Question, rounds: Rounds) -> None:
        """Send a value."""
        send, value = self._topics[question][0].send, bytes(question.size)
        for _ in rounds:
            send(value)

    def wake(self, question: Question) -> None:
        """Send a value; that wakes a subscriber that sleeps."""
        self._topics[question][0].send(bytes(question.size))

    def wait(self, question: Question) -> None:
        """Receive."""
        self._topics[question][1].receive(LIMIT)

    def send_time(self, question: Question, when: int) -> None:
        """Send a time."""
        self._topics[question][0].send(when.to_bytes(8, "little"))

    def receive_time(self, question: Question) -> int:
        """Poll until a time arrives, and return it."""
        take = self._topics[question][1].try_receive
        while (sample := take()) is None:
            pass
        return int.from_bytes(sample.value, "little")

    def take(self, question: Question, number: int) -> None:
        """Receive at each subscriber but the idle ones, and answer."""
        pub, sub = self._topics[question]
        for each in (sub, *self._others[question][: question.how.subscribers - 1]):
            for _ in range(number):
                each.receive(LIMIT)
        pub.send(b"")

    def close(self) -> None:
        """Close all topics."""
        for pub, sub in self._topics.values():
            sub.close()
            pub.close()
        for others in self._others.values():
            for each in others:
                each.close()


def _array(size: int) -> Any:
    return importlib.import_module("numpy").zeros(size, "u1")
