# SPDX-License-Identifier: Apache-2.0
"""Memory of a publisher that a broker knew which has ended, and that the next one does not yet."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from processes.kit import PATIENCE, Child, broker_pid, end_process, stopped

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
name, options = hear()
sub = ipc.Subscriber(name, **options)
say("done")
while True:
    try:
        with sub.receive(hear()) as sample:
            say([sample.sequence, sample.nbytes, sub.lost])
    except TimeoutError:
        say(None)
    except ValueError as error:
        say([str(error), sub.lost])
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


def receive(sub: Child, timeout: float) -> Any:
    """Return number, bytes and losses of the next sample, or None where none comes."""
    sub.say(timeout)
    return sub.hear()


@contextmanager
def subscriber(name: str, **options: Any) -> Iterator[Child]:
    with Child(SUBSCRIBER) as child:
        child.say([name, options])
        assert child.hear() == "done"
        yield child


@contextmanager
def seated(name: str, owner: Child, overflow: str) -> Iterator[Child]:
    """Yield a subscriber that the publisher has met, and that has received its first sample."""
    with subscriber(name, overflow=overflow) as sub:
        assert receive(sub, 0.01) is None
        ask(owner, "meet", 1)
        assert receive(sub, 0.01) is None
        ask(owner, "send", 100)
        assert receive(sub, PATIENCE) == [0, 100, 0]
        yield sub


def first_received(sub: Child, owner: Child) -> Any:
    """Receive a sample that is there for sure from when its publisher calls anything."""
    with stopped(owner.pid):
        found = receive(sub, 0.2)  # there already where its call took long, and joined a broker
    for _ in range(100):
        if found is not None:
            return found
        ask(owner, "call")
        found = receive(sub, 0.1)
    raise AssertionError("the sample does not come")


def end_two_brokers(sub: Child, owner: Child, what: str, number: int) -> None:
    """Have the publisher tell of memory to a broker that ends before its subscriber joins it."""
    with stopped(sub.pid):  # it would join by itself within a second
        end_process(broker_pid())
        ask(owner, what, number)
        end_process(broker_pid())


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_a_sample_waits_until_its_memory_is_known(name: str, owner: Child, overflow: str) -> None:
    with seated(name, owner, overflow) as sub:
        end_two_brokers(sub, owner, "send", 100_000)
        assert first_received(sub, owner) == [1, 100_000, 0]
        ask(owner, "send", 50)
        assert receive(sub, PATIENCE) == [2, 50, 0]


@pytest.mark.parametrize("overflow", ["drop_oldest", "block"])
def test_lines_that_moved_are_found_when_they_are_known(
    name: str, owner: Child, overflow: str
) -> None:
    with seated(name, owner, overflow) as sub:
        with stopped(sub.pid):
            end_process(broker_pid())
            with subscriber(name, buffer=5000) as other:  # starts a broker; the board gets longer
                other.say(60)  # the publisher meets it while it receives
                ask(owner, "meet", 2)
                with stopped(other.pid):  # in a call it would start the next broker
                    end_process(broker_pid())
                    ask(owner, "send", 100)
                    other.kill()
        assert first_received(sub, owner) == [1, 100, 0]
        ask(owner, "send", 50)
        assert receive(sub, PATIENCE) == [2, 50, 0]


def test_a_sample_is_lost_with_its_publisher_and_the_brokers(name: str, owner: Child) -> None:
    """The publisher has closed, and no other process has its memory."""
    with seated(name, owner, "drop_oldest") as sub:
        end_two_brokers(sub, owner, "send", 100_000)
        ask(owner, "close")
        message, lost = receive(sub, PATIENCE)
        assert "the sample is dropped" in message
        assert lost == 1
