# SPDX-License-Identifier: Apache-2.0
"""Ends that a broker knew which has ended, and that the next one does not know yet."""

import asyncio
import select
from collections.abc import Callable, Iterator

import pytest

from processes.kit import PATIENCE, Child, broker_pid, end_process
from shmnd import ipc

pytestmark = pytest.mark.slow

PUBLISHER = """
import numpy as np
from processes.kit import broker_pid, end_process
from shmnd import Adapter, ipc

def between_brokers():
    # The memory of the next seat is announced to a broker which ends at once.
    allocate = Adapter.allocate_segment
    def allocate_segment(self, *what, **how):
        Adapter.allocate_segment = allocate
        end_process(broker_pid())
        found = allocate(self, *what, **how)
        end_process(broker_pid())
        return found
    Adapter.allocate_segment = allocate_segment

while True:
    what, name, number = hear()
    if what == "open":
        pub = ipc.Publisher(name, "i8")
    elif what == "send later":
        say("done")
        time.sleep(0.3)
        for _ in range(number):
            pub.send(pub._next)
        pub.subscribers
        continue
    elif what == "meet between brokers":
        between_brokers()
        pub.wait_for_subscribers(1, 20)
    say("done")
"""

SUBSCRIBER = """
from processes.kit import broker_pid, end_process
from shmnd import ipc
from shmnd.neighbours import Neighbour
from shmnd.runtime.broker.meetings import Meetings

view, replay = Neighbour.view, Meetings.replay
def view_without_broker(self, *what, **how):
    Neighbour.view = view
    found = view(self, *what, **how)
    end_process(broker_pid())  # it has introduced the two, and knows no page of the subscriber
    return found

def replay_interrupted(self, client):
    Meetings.replay = replay
    end_process(broker_pid())  # it knows the record of the subscriber
    say("announced")
    hear()
    replay(self, client)

name, overflow = hear()
Neighbour.view = view_without_broker
sub = ipc.Subscriber(name, "i8", overflow=overflow, max_held=4096)
end_process(broker_pid())
say("open")
hear()
Meetings.replay = replay_interrupted
sub.publishers
while True:
    with sub.receive(20) as sample:
        say([sample.sequence, int(sample.array)])
"""


@pytest.fixture
def owner() -> Iterator[Child]:
    with Child(PUBLISHER) as child:
        yield child


def ask(owner: Child, what: str, name: str = "", number: int = 0) -> None:
    owner.say([what, name, number])
    assert owner.hear() == "done"


def by_receive(sub: ipc.Subscriber) -> ipc.Sample:
    return sub.receive(PATIENCE)


def by_areceive(sub: ipc.Subscriber) -> ipc.Sample:
    return asyncio.run(sub.areceive(PATIENCE))


def by_select(sub: ipc.Subscriber) -> ipc.Sample:
    while (sample := sub.try_receive()) is None:
        assert select.select([sub], [], [], PATIENCE)[0]
    return sample


def by_wait_set(sub: ipc.Subscriber) -> ipc.Sample:
    with ipc.WaitSet(sub) as waits:
        while (sample := sub.try_receive()) is None:
            assert waits.wait(PATIENCE) == (sub,)
    return sample


@pytest.mark.parametrize("take", [by_receive, by_areceive, by_select, by_wait_set])
def test_a_publisher_is_met_when_the_present_broker_knows_it(
    name: str, owner: Child, take: Callable[[ipc.Subscriber], ipc.Sample]
) -> None:
    """The broker that announced it has ended, and it has made no call since."""
    with ipc.Subscriber(name, "i8") as sub:
        ask(owner, "open", name)
        end_process(broker_pid())
        with pytest.raises(TimeoutError, match="has not reported itself to the next broker yet"):
            sub.receive(0.2)
        ask(owner, "send later", name, 3)
        for sequence in range(3):
            with take(sub) as sample:
                assert sample.sequence == sequence
        assert (sub.lost, sub.publishers) == (0, 1)


@pytest.mark.parametrize(
    ("overflow", "buffer"),
    [("drop_newest", 4), ("drop_oldest", 5000), ("block", 5000)],
)
def test_a_seat_is_taken_when_its_memory_is_known(
    name: str, owner: Child, overflow: str, buffer: int
) -> None:
    """The publisher makes the queue of 'drop_newest', or a longer board, when it meets one."""
    ask(owner, "open", name)
    with ipc.Subscriber(name, "i8", buffer=buffer, overflow=overflow) as sub:
        assert sub.publishers == 1
        ask(owner, "meet between brokers")
        with pytest.raises(TimeoutError):
            sub.receive(0.3)
        assert sub.publishers == 1
        ask(owner, "send later", name, 3)
        for sequence in range(3):
            with sub.receive(PATIENCE) as sample:
                assert sample.sequence == sequence
        assert sub.lost == 0


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_a_subscriber_is_met_when_its_page_is_known(name: str, overflow: str) -> None:
    """Two brokers end while it announces itself, neither of which tells the publisher all."""
    with ipc.Publisher(name, "i8") as pub, Child(SUBSCRIBER) as child:
        child.say([name, overflow])
        assert child.hear() == "open"
        assert pub.subscribers == 0  # joins the broker that the subscriber announces itself to
        child.say("continue")
        assert child.hear() == "announced"
        with pytest.raises(TimeoutError, match="has not reported segment"):
            pub.wait_for_subscribers(timeout=0.3)
        child.say("continue")
        pub.wait_for_subscribers(timeout=PATIENCE)
        for number in range(3):
            pub.send(7 + number)
            assert child.hear() == [number, 7 + number]
