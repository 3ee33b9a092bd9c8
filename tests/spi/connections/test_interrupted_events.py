# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises while events of the broker are delivered: none is lost."""

import itertools
import select
import time
from typing import Any

import pytest

import shmnd
from interrupting import Alarm, Interrupted, inside, interrupted
from shmnd import Status
from spi.harness import WAIT, final

WITHIN = inside(shmnd)


class Meeting:
    """Two ends in one process, of which one asks the other for a connection."""

    def __init__(self, active: Any, passive: Any) -> None:
        self.listener = passive.create_listener()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.connectors = [each.create_connector() for each in (active, passive)]
        self.queues = [each.create_completion_queue(8) for each in (active, passive)]
        self.pairs = [
            each.create_queue_pair(queue, queue)
            for each, queue in zip((active, passive), self.queues, strict=True)
        ]
        self.asked = self.listener.get_connection_request(self.connectors[1])
        address = self.listener.get_local_address()
        self.connecting = self.connectors[0].connect(self.pairs[0], address)
        self.accepting: Any = None

    def answer(self, event: str) -> Any:
        """Have an event on its way; return the operation that it ends."""
        if event == "offer":
            return self.asked
        self.asked.result(WAIT)
        if event == "accepted":
            self.accepting = self.connectors[1].accept(self.pairs[1])
        else:
            self.connectors[1].reject()
        return self.connecting

    def close(self) -> None:
        for each in (*self.connectors, *self.pairs, self.listener, *self.queues):
            each.close()


@pytest.mark.parametrize("kind", [Alarm, Interrupted, TimeoutError])
@pytest.mark.parametrize(
    ("event", "ends"),
    [
        ("offer", {Status.SUCCESS}),
        ("accepted", {Status.SUCCESS}),
        ("rejected", {Status.CONNECTION_REFUSED, Status.CANCELED}),
    ],
)
def test_an_event_whose_delivery_is_interrupted_ends_its_operation(
    adapters: tuple[Any, Any], event: str, ends: set[Status], kind: type[BaseException]
) -> None:
    """The second of the ends are those of the few places that are known to lose the reason."""
    first, others, whole = next(iter(ends - {Status.CANCELED})), 0, 0
    engine = adapters[0]._engine
    for at in itertools.count():
        meeting = Meeting(*adapters)
        operation = meeting.answer(event)
        assert select.select([engine.client.fileno()], [], [], WAIT)[0]
        time.sleep(0.002)  # for the rest of the words of the broker, mostly
        whole += not interrupted(at, engine.progress, WITHIN, kind)
        status = final(operation)
        assert status in ends, f"interrupted at place {at}"
        others += status is not first
        if event == "accepted" and status is Status.SUCCESS:
            meeting.connectors[0].complete_connect().result(WAIT)
            meeting.accepting.result(WAIT)
        meeting.close()
        if whole == 10:  # the first ones may have had less to deliver
            break
    assert at > 50, "there were places to interrupt"
    assert others <= at // 10
