# SPDX-License-Identifier: Apache-2.0
"""Subscribers and publishers that meet through a new broker: which samples each is to receive."""

import select
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from processes.kit import PATIENCE, Child, broker_pid, end_process
from shmnd import ipc

pytestmark = pytest.mark.slow

PUBLISHER = """
from shmnd import ipc
pubs = {}
while True:
    what, name, number = hear()
    if what == "open":
        pubs[name] = ipc.Publisher(name, "i8", history=number)
    elif what == "send":
        for _ in range(number):
            pubs[name].send(pubs[name]._next)
    elif what == "meet":
        pubs[name].wait_for_subscribers(number, 20)
    elif what == "leave the session":
        pubs[name]._adapter._engine.client._hang_up()
    say("done")
"""


@pytest.fixture
def owner() -> Iterator[Child]:
    with Child(PUBLISHER) as child:
        yield child


def ask(owner: Child, what: str, name: str, number: int = 0) -> None:
    owner.say([what, name, number])
    assert owner.hear() == "done"


def meet(owner: Child, name: str, sub: ipc.Subscriber) -> None:
    """Have a subscriber of this process and the publisher find each other."""
    owner.say(["meet", name, 1])
    assert owner.process.stdout is not None
    while not select.select([owner.process.stdout], [], [], 0.01)[0]:
        assert sub.publishers in (0, 1)
    assert owner.hear() == "done"


def sequences(sub: ipc.Subscriber, count: int) -> list[int]:
    found = []
    for _ in range(count):
        with sub.receive(PATIENCE) as sample:
            found.append(sample.sequence)
    assert sub.try_receive() is None
    return found


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
@pytest.mark.parametrize("history", [0, 3])
def test_samples_from_before_a_new_subscriber_are_not_lost(
    name: str, owner: Child, overflow: str, history: int
) -> None:
    """It opens after a restart, before the publisher is known to the new broker."""
    ask(owner, "open", name, history)
    ask(owner, "send", name, 100)
    end_process(broker_pid())
    with ipc.Subscriber(name, "i8", overflow=overflow) as sub:
        assert sub.try_receive() is None
        meet(owner, name, sub)
        ask(owner, "send", name, 5)
        assert sequences(sub, history + 5) == list(range(100 - history, 105))
        assert sub.lost == 0


def test_all_samples_of_a_publisher_that_came_later_are_received(name: str, owner: Child) -> None:
    """The broker that it announced itself to ends before the subscriber hears of it."""
    with ipc.Subscriber(name, "i8", buffer=32) as sub:
        end_process(broker_pid())
        ask(owner, "open", name)  # starts a broker, which this process does not know
        ask(owner, "send", name, 10)
        end_process(broker_pid())
        meet(owner, name, sub)
        assert sequences(sub, 10) == list(range(10))
        ask(owner, "send", name, 5)
        assert sequences(sub, 5) == list(range(10, 15))
        assert sub.lost == 0


@pytest.mark.parametrize("unread", [0, 2])
def test_a_publisher_that_begins_a_new_session_stays(name: str, owner: Child, unread: int) -> None:
    """As after a call to the broker that a handler of a signal ended."""
    ask(owner, "open", name)
    with ipc.Subscriber(name, "i8") as sub:
        meet(owner, name, sub)
        ask(owner, "send", name, 1)
        assert sequences(sub, 1) == [0]
        ask(owner, "send", name, unread)
        ask(owner, "leave the session", name)
        meet(owner, name, sub)
        ask(owner, "send", name, 3)
        assert sequences(sub, unread + 3) == list(range(1, unread + 4))
        assert sub.publishers == 1
        ask(owner, "send", name, 3)
        assert len(sequences(sub, 3)) == 3
        assert sub.lost == 0


SUBSCRIBER = """
import numpy as np
from shmnd import ipc
what, name, overflow = hear()
sub = ipc.Subscriber(name, "i8", overflow=overflow, buffer=4)
held = []
say("done")
while True:
    what, name, number = hear()
    if what == "hold":
        held.append(sub.receive(20).array)
        say(int(held[-1][0]))
    elif what == "next":
        with sub.receive(20) as sample:
            say([sample.sequence, int(sample.array[0])])
    elif what == "close":
        sub.close()
        say("done")
    elif what == "check":
        say([bool((array == array[0]).all()) and int(array[0]) for array in held])
    elif what == "drop":
        held.clear()
        say("done")
    elif what == "leave the session":
        sub._shared.adapter._engine.client._hang_up()
        say("done")
    elif what == "join":
        sub.closed or sub.publishers
        ipc.topics()
        say("done")
"""


def reply(child: Child, what: str) -> Any:
    child.say([what, "", 0])
    return child.hear()


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
@pytest.mark.parametrize("closed", [False, True])
def test_samples_that_a_subscriber_holds_stay_while_it_begins_a_new_session(
    name: str, overflow: str, closed: bool
) -> None:
    """As after a call to the broker that a handler of a signal ended in its process."""
    with Child(SUBSCRIBER) as child, ipc.Publisher(name, "i8") as pub:
        child.say(["open", name, overflow])
        assert child.hear() == "done"
        pub.wait_for_subscribers(timeout=PATIENCE)
        pub.send(np.full(1000, 7))
        assert reply(child, "hold") == 7
        if closed:
            assert reply(child, "close") == "done"
        assert reply(child, "leave the session") == "done"
        until = time.monotonic() + 0.5
        number = 0
        while time.monotonic() < until:
            assert pub.subscribers == (not closed)
            pub.send(np.full(1000, 100 + number))
            number += 1
            if not closed:
                assert reply(child, "next") == [number, 99 + number]
        assert reply(child, "check") == [7]
        assert reply(child, "join") == "done"
        assert reply(child, "check") == [7]
        assert reply(child, "drop") == "done"
        if not closed:
            pub.send(np.full(1000, 5))
            assert reply(child, "next")[1] == 5
            assert reply(child, "close") == "done"
        until = time.monotonic() + PATIENCE
        while pub._seats._guests:
            assert time.monotonic() < until
            pub._check_members()
