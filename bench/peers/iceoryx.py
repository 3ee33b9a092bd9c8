# SPDX-License-Identifier: Apache-2.0
"""iceoryx2 from Python: one publish-subscribe service for each direction."""

import ctypes
import os
from typing import Any, ClassVar, Final

from ..measure.question import Question
from ..workers.worker import CLIENT
from .iceoryx_node import IceoryxNode
from .two_sided import Call, TwoSided, TwoSidedEnd

_DEPTH: Final = 64


class Iceoryx(TwoSided):
    """Two processes, a publisher and a subscriber in each."""

    name: ClassVar[str] = "iceoryx2"
    install: ClassVar[str] = "pip install iceoryx2"
    end: ClassVar[str] = ".peers.iceoryx:IceoryxEnd"
    needs: ClassVar[str] = "iceoryx2"


class IceoryxEnd(TwoSidedEnd):
    """One end. Samples are loaned and sent; a subscriber is asked until it has one."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._node = IceoryxNode()
        self._ports: dict[int, tuple[Any, Any]] = {}

    def describe(self) -> dict[str, str]:
        """Return the version of the package."""
        return self._node.describe()

    def offer(self, question: Question) -> dict[str, Any]:
        """Return the names of the services; each run has its own."""
        return {"name": f"shmnd-bench/{os.getpid()}/{question.size}"}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Make the two ports of a size."""
        if question.size in self._ports:
            return
        there = self._node.topic(f"{offer['name']}/there", _DEPTH)
        back = self._node.topic(f"{offer['name']}/back", _DEPTH)
        mine, theirs = (there, back) if self._role == CLIENT else (back, there)
        publisher = mine.publisher_builder().initial_max_slice_len(max(question.size, 1)).create()
        self._ports[question.size] = publisher, theirs.subscriber_builder().create()

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Return a call that loans, copies the message in and sends, and one that polls.

        The copy is what others do within their call; without it nothing of a message would move.
        The full buffer of a subscriber holds the publisher up.
        """
        publisher, subscriber = self._ports[question.size]
        loan, take, size = publisher.loan_slice_uninit, subscriber.receive, question.size
        source, copy = bytes(size), ctypes.memmove

        def send() -> None:
            sample = loan(size)
            copy(sample.payload_ptr, source, size)
            sample.assume_init().send()

        def receive() -> object:
            while (sample := take()) is None:
                pass
            return sample

        return send, receive

    def close(self) -> None:
        """Release the ports, then the services and the node."""
        self._ports.clear()
        self._node.close()
