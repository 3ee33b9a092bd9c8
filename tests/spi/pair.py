# SPDX-License-Identifier: Apache-2.0
"""Two ends, the steps that connect them, and what they do once they are connected."""

import time
from collections.abc import Callable
from typing import Any

from shmnd import RequestType, Status
from spi.harness import WAIT, Buffer, Completion, End, Late, final, in_background


class Pair:
    """Two ends and the steps that connect them."""

    def __init__(self, active: End, passive: End, *, in_one_process: bool) -> None:
        self.active = active
        self.passive = passive
        self.in_one_process = in_one_process
        self.address: tuple[str, int] = (passive.host, 0)
        self.limits = (8, 8)
        self.connecting: Any = None
        self.accepting: Any = None
        self.completing: Any = None

    def dispose(self) -> None:
        """Forget the operations of the handshake, which keep their files alive."""
        self.connecting = self.accepting = self.completing = None

    def other(self, end: End) -> End:
        return self.passive if end is self.active else self.active

    # The handshake, step by step. States are those of the tables, named by the active side.

    def listen(self, backlog: int = 0) -> None:
        self.address = self.passive.listen(backlog)

    def bind(self) -> None:
        self.active.connector.bind((self.active.host, 0))

    def request(self, private_data: bytes = b"") -> Any:
        """Connect, and leave the answer unread."""
        self.connecting = self.active.connector.connect(
            self.active.qp, self.address, *self.limits, private_data
        )
        return self.connecting

    def offered(self) -> None:
        """GetConnectionRequest for the connector of the passive end."""
        connector = self.passive.connector
        self.passive.listener.get_connection_request(connector).result(timeout=WAIT)

    def offer(self, private_data: bytes = b"") -> None:
        """A2 and P2: asked, and the passive side knows."""
        if self.address[1] == 0:
            self.listen()
        self.request(private_data)
        self.offered()

    def accept(self, private_data: bytes = b"") -> None:
        """A3 and P3: accepted by the passive side, and the active side knows."""
        self.accepting = self.passive.connector.accept(self.passive.qp, *self.limits, private_data)
        self.connecting.result(timeout=WAIT)

    def complete(self) -> None:
        """A4 and P4: connected."""
        self.completing = self.active.connector.complete_connect()
        self.accepting.result(timeout=WAIT)
        self.completing.result(timeout=WAIT)

    def connect(self) -> "Pair":
        self.offer()
        self.accept()
        self.complete()
        return self

    def hang_up(self, end: End) -> None:
        """One end disconnects, and the other one has heard of it (A5 or P5 there)."""
        heard = self.other(end).connector.notify_disconnect()
        end.connector.disconnect().result(timeout=WAIT)
        heard.result(timeout=WAIT)

    def to(self, state: str) -> "Pair":
        """Bring the active connector to a state A0 to A6, the passive one where that leads."""
        steps: list[Callable[[], Any]] = [
            self.listen,
            self.bind,
            self.offer,
            self.accept,
            self.complete,
            lambda: self.hang_up(self.passive),
        ]
        if state == "A6":
            self.to("A4")
            self.hang_up(self.active)
            return self
        for step in steps[: int(state[1]) + 1]:
            step()
        return self

    def to_passive(self, state: str) -> "Pair":
        """Bring the passive connector to a state P0 or P2 to P6."""
        if state == "P5":
            self.to("A4")
            self.hang_up(self.active)
        elif state == "P6":
            self.to("A4")
            self.hang_up(self.passive)
        else:
            self.to(f"A{state[1]}")
        return self

    # What a connected pair does.

    def reap(self, end: End, count: int = 1, timeout: float = WAIT) -> list[Completion]:
        """The next completions of one end, while the other one polls as a living program does."""
        deadline = time.monotonic() + timeout
        while end.gather(0.002) < count:
            self.other(end).gather()
            if time.monotonic() > deadline:
                raise Late(f"{count} completions wanted, only {end.take()}")
        return end.take(count)

    def settle(self, overlapped: Any, end: End, timeout: float = WAIT) -> Status:
        """The final status of an operation of one end, while both ends poll."""
        deadline = time.monotonic() + timeout
        while not overlapped.done():
            end.gather()
            self.other(end).gather()
            if time.monotonic() > deadline:
                raise Late(f"still pending after {timeout} s")
        return final(overlapped)

    def exchange(self, data: bytes = b"a proof of life") -> None:
        """One message each way, checked byte for byte: the connection works."""
        for source, sink in ((self.active, self.passive), (self.passive, self.active)):
            outgoing, incoming = source.memory(len(data)), sink.memory(len(data))
            outgoing.put(data)
            sink.receiver().receive(incoming.sge(), "proof received")
            source.qp.send(outgoing.sge(), "proof sent")
            sent = self.reap(source)[0]
            assert sent.status == Status.SUCCESS, sent
            assert (sent.request_context, sent.request_type) == ("proof sent", RequestType.SEND)
            received = self.reap(sink)[0]
            assert received.status == Status.SUCCESS, received
            assert received.bytes_transferred == len(data)
            assert received.request_context == "proof received"
            assert incoming.get() == data
            for buffer in (outgoing, incoming):
                buffer.mr.deregister().result(timeout=WAIT)

    def window(self, owner: End, buffer: Buffer, flags: int, length: int | None = None) -> Any:
        """A window over the first bytes of a buffer, bound and reaped."""
        window = owner.adapter.create_memory_window()
        length = buffer.length if length is None else length
        owner.qp.bind(buffer.mr, window, buffer.address, length, "bound", flags=flags)
        bound = self.reap(owner)[0]
        assert (bound.status, bound.request_type) == (Status.SUCCESS, RequestType.BIND), bound
        return window

    def play(
        self,
        active: Callable[..., Any],
        passive: Callable[..., Any],
        active_args: tuple[Any, ...] = (),
        passive_args: tuple[Any, ...] = (),
    ) -> tuple[Any, Any]:
        """Run both roles of a scenario at the same time; what they return."""
        running = [
            in_background(self.passive.run, passive, *passive_args),
            in_background(self.active.run, active, *active_args),
        ]
        ended = [role.wait() for role in running]
        errors = sorted((e for e in ended if e), key=lambda e: isinstance(e, Late))
        for error in errors[1:]:  # what failed on one side often follows from the other
            errors[0].add_note(f"the other side: {error!r}")
        if errors:
            raise errors[0]
        return running[1].value, running[0].value
