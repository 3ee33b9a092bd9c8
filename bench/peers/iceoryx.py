# SPDX-License-Identifier: Apache-2.0
"""iceoryx2 from Python: one publish-subscribe service for each direction."""

import ctypes
import importlib
import os
from typing import Any, ClassVar, Final

from ..measure.question import Question
from ..workers.worker import CLIENT
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
        self._iox: Any = importlib.import_module("iceoryx2")
        self._iox.set_log_level(self._iox.LogLevel.Error)
        self._node = self._iox.NodeBuilder.new().create(self._iox.ServiceType.Ipc)
        self._ports: dict[int, tuple[Any, Any]] = {}
        self._services: list[Any] = []

    def describe(self) -> dict[str, str]:
        """Name the package."""
        metadata = importlib.import_module("importlib.metadata")
        return {"iceoryx2": str(metadata.version("iceoryx2"))}

    def offer(self, question: Question) -> dict[str, Any]:
        """Name the services; a name of their own keeps runs apart."""
        return {"name": f"shmnd-bench/{os.getpid()}/{question.size}"}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Make the two ports of a size."""
        if question.size in self._ports:
            return
        there = self._service(f"{offer['name']}/there")
        back = self._service(f"{offer['name']}/back")
        mine, theirs = (there, back) if self._role == CLIENT else (back, there)
        publisher = mine.publisher_builder().initial_max_slice_len(max(question.size, 1)).create()
        self._ports[question.size] = publisher, theirs.subscriber_builder().create()

    def _service(self, name: str) -> Any:
        payload = self._iox.Slice[ctypes.c_uint8]
        service = (
            self._node.service_builder(self._iox.ServiceName.new(name))
            .publish_subscribe(payload)
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(_DEPTH)
            .open_or_create()
        )
        self._services.append(service)
        return service

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Loan, copy the message in and send; a full subscriber's buffer holds the publisher up.

        The copy is what others do within their call; without it nothing of a message would move.
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
        """Let go of the ports, the services and the node, in that order."""
        self._ports.clear()
        self._services.clear()
        self._node = None
