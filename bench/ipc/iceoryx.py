# SPDX-License-Identifier: Apache-2.0
"""iceoryx2 from Python: publish-subscribe, and an event to wake a subscriber that sleeps."""

import ctypes
import importlib
import os
from typing import Any, ClassVar, Final

from ..measure.question import Kind, Question
from ..peers.iceoryx_node import IceoryxNode
from ..subjects.subject import WorkerSubject
from ..workers.worker import CLIENT
from .ends import DEPTH, Rounds, TopicEnd
from .own import INLINE, KINDS

_LARGE: Final = 64 << 20


class IceoryxTopics(WorkerSubject):
    """Two processes, a publisher and a subscriber in each."""

    name: ClassVar[str] = "iceoryx2"
    install: ClassVar[str] = "pip install iceoryx2"
    end: ClassVar[str] = ".ipc.iceoryx:IceoryxTopicsEnd"
    needs: ClassVar[str] = "iceoryx2"

    def answers(self, question: Question) -> bool:
        """Return True for all questions about topics, but those about idle subscribers."""
        return question.kind in KINDS and not question.idle


class IceoryxTopicsEnd(TopicEnd):
    """One end. Of several ways to write a loop, the fastest one is taken."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._role = role
        self._numpy: Any = importlib.import_module("numpy")
        self._node = IceoryxNode()
        self._ports: dict[Question, tuple[Any, Any]] = {}
        self._others: dict[Question, list[Any]] = {}
        self._event: Any = None

    def describe(self) -> dict[str, str]:
        """Return the version of the package."""
        return self._node.describe()

    def offer(self, question: Question) -> dict[str, Any]:
        """Make the server's ports."""
        name = f"shmnd-bench/ipc/{os.getpid()}/{len(self._ports)}"
        self._open(question, name)
        return {"name": name}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Make the client's ports."""
        if self._role == CLIENT:
            self._open(question, offer["name"])

    def _open(self, question: Question, name: str) -> None:
        there = self._topic(f"{name}/there", question)
        back = self._topic(f"{name}/back", question)
        mine, theirs = (there, back) if self._role == CLIENT else (back, there)
        publisher = mine.publisher_builder().initial_max_slice_len(question.size).create()
        self._ports[question] = publisher, theirs.subscriber_builder().create()
        if self._role != CLIENT:
            others = range(question.how.subscribers - 1)
            self._others[question] = [theirs.subscriber_builder().create() for _ in others]
        if question.kind is Kind.WOKEN:
            event = self._node.event(f"{name}/event")
            if self._role == CLIENT:
                self._event = event.notifier_builder().create()
            else:
                self._event = event.listener_builder().create()

    def _topic(self, name: str, question: Question) -> Any:
        buffer = 2 if question.size > _LARGE else DEPTH
        return self._node.topic(name, buffer, max_subscribers=DEPTH)

    def lead(self, question: Question, rounds: Rounds) -> None:
        """Send and receive."""
        publisher, subscriber = self._ports[question]
        loan, take = publisher.loan_slice_uninit, subscriber.receive
        size, wrap = question.size, self._wrap(question)
        if question.kind is Kind.ARRAY:
            for _ in rounds:
                room = loan(size)
                wrap(room.payload_ptr)[0] = 7
                room.assume_init().send()
                while (sample := take()) is None:
                    pass
                wrap(sample.payload_ptr)[0]
                del sample
        elif size <= INLINE:
            value, copy, value_at = bytes(size), ctypes.memmove, ctypes.string_at
            for _ in rounds:
                room = loan(size)
                copy(room.payload_ptr, value, size)
                room.assume_init().send()
                while (sample := take()) is None:
                    pass
                value_at(sample.payload_ptr, size)
                del sample
        else:
            for _ in rounds:
                loan(size).assume_init().send()
                while take() is None:
                    pass

    def send_one(self, question: Question) -> None:
        """Send a sample of the question's size."""
        self._ports[question][0].loan_slice_uninit(question.size).assume_init().send()

    def receive_one(self, question: Question) -> None:
        """Poll for a sample."""
        take = self._ports[question][1].receive
        while take() is None:
            pass

    def _wrap(self, question: Question) -> Any:
        """Return a function that makes an array at an address."""
        frombuffer, uint8 = self._numpy.frombuffer, self._numpy.uint8
        at = (ctypes.c_uint8 * question.size).from_address

        def wrap(address: int) -> Any:
            return frombuffer(at(address), uint8)

        return wrap

    def _send(self, question: Question, value: bytes) -> None:
        room = self._ports[question][0].loan_slice_uninit(len(value))
        ctypes.memmove(room.payload_ptr, value, len(value))
        room.assume_init().send()

    def wake(self, question: Question) -> None:
        """Send a value, and notify the subscriber that sleeps."""
        self._send(question, bytes(question.size))
        self._event.notify()

    def wait(self, question: Question) -> None:
        """Sleep until there is a value."""
        take = self._ports[question][1].receive
        while take() is None:
            self._event.blocking_wait()

    def send_time(self, question: Question, when: int) -> None:
        """Send a time."""
        self._send(question, when.to_bytes(8, "little"))

    def receive_time(self, question: Question) -> int:
        """Poll until a time arrives, and return it."""
        take = self._ports[question][1].receive
        while (sample := take()) is None:
            pass
        return int.from_bytes(ctypes.string_at(sample.payload_ptr, 8), "little")

    def fill(self, question: Question, rounds: Rounds) -> None:
        """Fill every byte of each array."""
        loan = self._ports[question][0].loan_slice_uninit
        size, wrap = question.size, self._wrap(question)
        for _ in rounds:
            room = loan(size)
            wrap(room.payload_ptr).fill(7)
            room.assume_init().send()
        self.receive_one(question)

    def drain(self, question: Question, rounds: Rounds) -> None:
        """Read one byte of each array."""
        take, wrap = self._ports[question][1].receive, self._wrap(question)
        for _ in rounds:
            while (sample := take()) is None:
                pass
            wrap(sample.payload_ptr)[0]
        self.send_one(question)

    def publish(self, question: Question, rounds: Rounds) -> None:
        """Send a value."""
        loan, copy = self._ports[question][0].loan_slice_uninit, ctypes.memmove
        value, size = bytes(question.size), question.size
        for _ in rounds:
            room = loan(size)
            copy(room.payload_ptr, value, size)
            room.assume_init().send()

    def take(self, question: Question, number: int) -> None:
        """Receive at each subscriber, and answer."""
        for each in (self._ports[question][1], *self._others[question]):
            for _ in range(number):
                while each.receive() is None:
                    pass
        self.send_one(question)

    def close(self) -> None:
        """Release the ports, then the services and the node."""
        self._ports.clear()
        self._others.clear()
        self._event = None
        self._node.close()
