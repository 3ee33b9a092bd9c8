# SPDX-License-Identifier: Apache-2.0
"""A signal handler that interrupts a poll of its thread begins an operation, and waits for it.

The thread polls nothing until the handler has returned: its wait ends with the time-out, and the
operation comes to its end after that.
"""

from collections.abc import Callable, Iterator

import pytest

import shmnd
from shmnd import Adapter, Status
from spi.harness import WAIT


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with shmnd.open_adapter() as adapter:
        yield adapter


class Handler:
    """Stands for a handler: the next poll calls it, once, in its midst."""

    def __init__(self, adapter: Adapter, function: Callable[[], object]) -> None:
        self.function = function
        self.ran = False
        adapter._engine.pending_operations.poll_soon(self)

    def _tick(self) -> None:
        self.function()
        self.ran = True


class Ends:
    """A listener, a request of it, and what connects to it."""

    def __init__(self, adapter: Adapter) -> None:
        self.queue = adapter.create_completion_queue(4)
        self.active, self.passive = adapter.create_connector(), adapter.create_connector()
        self.pairs = [adapter.create_queue_pair(self.queue, self.queue) for _ in range(2)]
        self.listener = adapter.create_listener()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.request = self.listener.get_connection_request(self.passive)

    def connect(self) -> None:
        address = self.listener.get_local_address()
        self.connecting = self.active.connect(self.pairs[0], address)

    def come_about(self) -> None:
        """The rest of the way to a connection."""
        self.request.result(WAIT)
        accepting = self.passive.accept(self.pairs[1])
        self.connecting.result(WAIT)
        self.active.complete_connect().result(WAIT)
        accepting.result(WAIT)


def test_an_operation_that_a_handler_began_ends_after_it(adapter: Adapter) -> None:
    ends = Ends(adapter)

    def within() -> None:
        ends.connect()
        with pytest.raises(TimeoutError, match="still pending"):
            ends.request.result(0.05)
        assert not ends.connecting.done()

    handler = Handler(adapter, within)
    adapter._engine.progress()
    assert handler.ran
    ends.come_about()


def test_messages_of_a_connection_come_and_go_within_a_handler(adapter: Adapter) -> None:
    ends = Ends(adapter)
    ends.connect()
    ends.come_about()

    def within() -> None:
        ends.pairs[0].receive(None, "in")
        ends.pairs[1].send(None, "out")
        found = {ends.queue.wait_one(WAIT).request_context for _ in range(2)}
        assert found == {"in", "out"}

    handler = Handler(adapter, within)
    adapter._engine.progress()
    assert handler.ran


def test_the_end_of_a_connection_is_seen_after_the_handler_that_ended_it(adapter: Adapter) -> None:
    ends = Ends(adapter)
    ends.connect()
    ends.come_about()
    told = ends.passive.notify_disconnect()
    handler = Handler(adapter, lambda: ends.active.disconnect())
    adapter._engine.progress()
    assert handler.ran
    told.result(WAIT)
    assert told.status is Status.SUCCESS
