# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises while a poll reads what the peer did to a connection.

The next poll continues: each operation that waits for it completes.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from interrupting import Alarm, Interrupted, inside, interrupted
from shmnd import Status
from spi.harness import WAIT, final

WITHIN = inside(shmnd)
Step = Callable[["Ends"], Any]


class Ends:
    """A connection whose active side has been accepted and knows it."""

    def __init__(self, adapters: tuple[Any, Any], listener: Any) -> None:
        self.queues = [each.create_completion_queue(8) for each in adapters]
        self.pairs = [
            each.create_queue_pair(queue, queue)
            for each, queue in zip(adapters, self.queues, strict=True)
        ]
        self.active, self.passive = (each.create_connector() for each in adapters)
        request = listener.get_connection_request(self.passive)
        connecting = self.active.connect(self.pairs[0], listener.get_local_address())
        request.result(WAIT)
        self.accepting = self.passive.accept(self.pairs[1])
        connecting.result(WAIT)

    def complete(self) -> None:
        """Connect both sides."""
        self.active.complete_connect().result(WAIT)
        self.accepting.result(WAIT)

    def close(self) -> None:
        for each in (self.active, self.passive, *self.pairs, *self.queues):
            each.close()


def confirmed(ends: Ends) -> list[Any]:
    """The active side completes the connection, which ends the Accept."""
    ends.active.complete_connect()
    return [ends.accepting]


def disconnected(ends: Ends) -> list[Any]:
    """The active side disconnects, which ends what waits for that."""
    ends.complete()
    told = [ends.passive.notify_disconnect() for _ in range(2)]
    ends.active.disconnect().result(WAIT)
    return told


def released(ends: Ends) -> list[Any]:
    """The program releases the queue pair of a connection that is being made."""
    ends.pairs[1].close()
    return [ends.accepting]


def released_later(ends: Ends) -> list[Any]:
    """The program releases the queue pair of a connection."""
    ends.complete()
    told = [ends.passive.notify_disconnect() for _ in range(2)]
    ends.pairs[1].close()
    return told


@pytest.mark.parametrize("kind", [Alarm, Interrupted, TimeoutError])
@pytest.mark.parametrize(
    ("act", "end"),
    [
        (confirmed, Status.SUCCESS),
        (disconnected, Status.SUCCESS),
        (released, Status.CANCELED),
        (released_later, Status.SUCCESS),
    ],
)
def test_an_interrupted_poll_loses_no_completion(
    adapters: tuple[Any, Any], act: Step, end: Status, kind: type[BaseException]
) -> None:
    with adapters[1].create_listener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        whole = 0
        for at in itertools.count():
            ends = Ends(adapters, listener)
            waiting = act(ends)
            whole += not interrupted(at, ends.passive._tick, WITHIN, kind)
            where = f"interrupted at place {at}"
            assert [final(each) for each in waiting] == [end] * len(waiting), where
            adapters[1]._engine.progress()
            assert not ends.passive._pending, where
            ends.close()
            if whole == 3:
                break
    assert at > 5, "there were places to interrupt"
