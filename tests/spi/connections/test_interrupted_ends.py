# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises while a connection is being ended: closing it again ends it.

The peer sees the end, and so does each NotifyDisconnect of this side.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import shmnd
from interrupting import Alarm, Interrupted, inside, interrupted
from shmnd import Adapter, Connector, QueuePair, Status
from spi.harness import WAIT

WITHIN = inside(shmnd)

Act = Callable[[Connector, QueuePair], object]


@pytest.fixture
def adapters() -> Iterator[tuple[Adapter, Adapter]]:
    with shmnd.open_adapter() as one, shmnd.open_adapter() as other:
        yield one, other


class Side:
    """One end of a connection."""

    def __init__(self, adapter: Adapter) -> None:
        self.cq = adapter.create_completion_queue(8)
        self.qp = adapter.create_queue_pair(self.cq, self.cq)
        self.file = adapter.create_overlapped_file()
        self.connector = adapter.create_connector(overlapped_file=self.file)

    def close(self) -> None:
        self.connector.close()
        self.qp.close()

    def drop(self) -> None:
        self.close()
        self.cq.close()
        self.file.close()


def connected(adapters: tuple[Adapter, Adapter]) -> tuple[Side, Side]:
    here, peer = Side(adapters[0]), Side(adapters[1])
    with adapters[1].create_listener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        asked = listener.get_connection_request(peer.connector)
        connecting = here.connector.connect(here.qp, listener.get_local_address())
        asked.result(WAIT)
        accepting = peer.connector.accept(peer.qp)
        connecting.result(WAIT)
        here.connector.complete_connect().result(WAIT)
        accepting.result(WAIT)
    here.file.poll()
    return here, peer


def disconnect(connector: Connector, qp: QueuePair) -> None:
    connector.disconnect()


def close_connector(connector: Connector, qp: QueuePair) -> None:
    connector.close()


def close_queue_pair(connector: Connector, qp: QueuePair) -> None:
    qp.close()


@pytest.mark.parametrize("kind", [Alarm, Interrupted, TimeoutError])
@pytest.mark.parametrize("act", [disconnect, close_connector, close_queue_pair])
def test_an_end_that_is_interrupted_ends_at_both_sides(
    adapters: tuple[Adapter, Adapter], act: Act, kind: type[BaseException]
) -> None:
    for at in itertools.count():
        here, peer = connected(adapters)
        here.qp.receive(None, "posted")
        told = [here.connector.notify_disconnect() for _ in range(3)]
        peer_told = peer.connector.notify_disconnect()
        raised = False

        ends = partial(act, here.connector, here.qp)

        def ending(end: Callable[[], object] = ends) -> None:
            nonlocal raised
            raised = True
            end()
            raised = False

        try:
            more = interrupted(at, ending, WITHIN, kind)
        finally:
            here.close()
        where = f"interrupted at place {at}"
        assert raised is more, f"{where}, and the exception was lost"
        peer_told.result(WAIT)
        for each in told:
            each.result(WAIT)
        ended = [each for each in here.file.poll() if each in told]
        assert len(ended) == len(told), where
        assert not here.connector._pending, where
        assert [each.status for each in here.cq.get_results()] == [Status.CANCELED], where
        here.drop()
        peer.drop()
        if not more:
            break
    assert at > 4, "there were places to interrupt"
