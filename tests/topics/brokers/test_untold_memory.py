# SPDX-License-Identifier: Apache-2.0
"""Memory of a publisher that a broker knew which has ended, and that the next one does not yet."""

from collections.abc import Iterator
from typing import Any

import pytest

from processes.kit import PATIENCE, Child, broker_pid, end_process
from shmnd import ipc

pytestmark = pytest.mark.slow

PUBLISHER = """
import numpy as np
from shmnd import ipc
name = hear()
pub = ipc.Publisher(name, "u1")
say("done")
while True:
    what, number = hear()
    if what == "send":
        pub.send(np.full(number, 7, "u1"))
    elif what == "meet":
        pub.wait_for_subscribers(number, 20)
    elif what == "call":
        pub.subscribers
    elif what == "close":
        pub.close()
    say("done")
"""

SUBSCRIBER = """
from shmnd import ipc
sub = ipc.Subscriber(hear(), buffer=5000)
say("done")
sub.receive(60)
"""


@pytest.fixture
def owner(name: str) -> Iterator[Child]:
    with Child(PUBLISHER) as child:
        child.say(name)
        assert child.hear() == "done"
        yield child


def ask(owner: Child, what: str, number: int = 0) -> None:
    owner.say([what, number])
    assert owner.hear() == "done"


def seated(name: str, owner: Child, overflow: str) -> ipc.Subscriber:
    """Return a subscriber that the publisher has met, and that has received its first sample."""
    sub = ipc.Subscriber(name, overflow=overflow)
    with pytest.raises(TimeoutError):
        sub.receive(0.01)
    ask(owner, "meet", 1)
    with pytest.raises(TimeoutError):
        sub.receive(0.01)
    ask(owner, "send", 100)
    with sub.receive(PATIENCE) as sample:
        assert sample.nbytes == 100
    return sub


def received(sub: ipc.Subscriber, owner: Child) -> tuple[int, Any]:
    """Receive a sample that is there for sure from when its publisher calls anything."""
    with pytest.raises(TimeoutError):
        sub.receive(0.2)
    for _ in range(100):
        ask(owner, "call")
        try:
            with sub.receive(0.1) as sample:
                return sample.sequence, sample.nbytes
        except TimeoutError:
            pass
    raise AssertionError("the sample does not come")


def end_two_brokers(owner: Child, what: str, number: int) -> None:
    """Have the publisher tell of memory to a broker that ends before others join it."""
    end_process(broker_pid())
    ask(owner, what, number)
    end_process(broker_pid())


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_a_sample_waits_until_its_memory_is_known(name: str, owner: Child, overflow: str) -> None:
    with seated(name, owner, overflow) as sub:
        end_two_brokers(owner, "send", 100_000)
        assert received(sub, owner) == (1, 100_000)
        ask(owner, "send", 50)
        assert sub.receive(PATIENCE).sequence == 2
        assert sub.lost == 0


@pytest.mark.parametrize("overflow", ["drop_oldest", "block"])
def test_lines_that_moved_are_found_when_they_are_known(
    name: str, owner: Child, overflow: str
) -> None:
    with seated(name, owner, overflow) as sub:
        end_process(broker_pid())
        with Child(SUBSCRIBER) as other:  # starts a broker; its buffer makes the board longer
            other.say(name)
            assert other.hear() == "done"
            ask(owner, "meet", 2)
            end_process(broker_pid())
            ask(owner, "send", 100)
            assert received(sub, owner) == (1, 100)
            ask(owner, "send", 50)
            assert sub.receive(PATIENCE).sequence == 2
            assert sub.lost == 0


def test_a_sample_is_lost_with_its_publisher_and_the_brokers(name: str, owner: Child) -> None:
    """The publisher has closed, and no other process has its memory."""
    with seated(name, owner, "drop_oldest") as sub:
        end_two_brokers(owner, "send", 100_000)
        ask(owner, "close")
        with pytest.raises(ValueError, match="the sample is dropped"):
            sub.receive(PATIENCE)
        assert sub.lost == 1
