# SPDX-License-Identifier: Apache-2.0
"""What each overflow policy keeps; every lost sample is counted."""

import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from topics.taking import PATIENCE, everything


def test_drop_oldest_keeps_the_newest(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, buffer=5) as sub:
        assert pub.subscribers == 1
        for number in range(100):
            pub.send(np.full(100, number))
        assert sub.lost == 95
        assert [sample.sequence for sample in everything(sub)] == list(range(95, 100))
        assert sub.lost == 95


@pytest.mark.parametrize("conflate", [False, True])
def test_samples_behind_any_number_of_lost_ones_are_found_at_once(
    name: str, conflate: bool
) -> None:
    """The publisher gave up the oldest ones at the bound of its slots, not of the buffer."""
    policy: Any = {"overflow": "conflate"} if conflate else {"buffer": 10_000}
    with ipc.Publisher(name, "i8", slots=20) as pub, ipc.Subscriber(name, **policy) as sub:
        pub.wait_for_subscribers(timeout=PATIENCE)
        for number in range(1000):
            pub.send(np.full(100, number))
        first = 999 if conflate else 980
        assert sub.receive(0).sequence == first
        for number in range(1000):
            pub.send(np.full(100, number))
        found = [sample.sequence for sample in iter(sub.try_receive, None)]
        assert found == list(range(1000 + first, 2000))
        assert sub.lost == 2000 - 1 - len(found)


def test_drop_newest_keeps_the_first(name: str) -> None:
    with (
        ipc.Publisher(name, "i8") as pub,
        ipc.Subscriber(name, buffer=5, overflow="drop_newest") as sub,
    ):
        assert pub.subscribers == 1
        for number in range(100):
            pub.send(np.full(100 if number % 2 else 2, number))
        assert sub.lost == 95
        samples = everything(sub)
        assert [sample.sequence for sample in samples] == list(range(5))
        assert [int(sample.value[0]) for sample in samples] == list(range(5))
        pub.send(np.full(100, 7))
        assert sub.receive().sequence == 100
        assert sub.lost == 95


def test_conflate_receives_the_newest_alone(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, overflow="conflate") as sub:
        assert pub.subscribers == 1
        for number in range(100):
            pub.send(np.full(100, number))
        assert [sample.sequence for sample in everything(sub)] == [99]
        assert sub.lost == 99


def test_block_makes_the_publisher_wait(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, buffer=5, overflow="block") as sub:
        assert pub.subscribers == 1
        slow: list[ipc.SlowSubscriber] = []
        pub.on_slow = slow.append
        for number in range(5):
            pub.send(np.full(100, number), timeout=0)
        with pytest.raises(TimeoutError, match=r"process \d+ has no room.*0.01 s"):
            pub.send(np.full(100, 5), timeout=0.01)
        assert [(each.topic, each.behind) for each in slow] == [(name, 5)]
        assert sub.receive().sequence == 0
        loan = pub.loan(100)
        loan.array[:] = 5
        assert loan.send(timeout=0) == 5
        loan = pub.loan(100)
        with pytest.raises(TimeoutError):
            loan.send(timeout=0)
        sub.receive()
        assert loan.send(timeout=0) == 6
        got: list[int] = []

        def receive() -> None:
            got.extend(sub.receive(timeout=PATIENCE).sequence for _ in range(500))

        thread = threading.Thread(target=receive)
        thread.start()
        for number in range(495):
            pub.send(np.full(100, number), timeout=PATIENCE)
        thread.join()
        assert got == list(range(2, 502))
        assert sub.lost == 0


class Rivalled(ipc.Publisher):
    """A publisher of which another thread takes the room that a wait was for."""

    rival: Any = None

    def _wait_for_room(self, *arguments: Any) -> float:
        end = super()._wait_for_room(*arguments)
        rival, self.rival = self.rival, None
        if rival is not None:
            rival()
        return end


def test_threads_do_not_publish_past_the_bound_of_a_subscriber_that_blocks(name: str) -> None:
    with Rivalled(name, "i8") as pub, ipc.Subscriber(name, buffer=1, overflow="block") as sub:
        pub.send(np.int64(1))
        pub.rival = partial(pub.send, np.int64(2))
        thread = threading.Thread(target=pub.send, args=(np.int64(3),))
        thread.start()
        assert sub.receive(timeout=PATIENCE).value == 1
        deadline = time.monotonic() + PATIENCE
        while pub.rival is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        thread.join(0.3)
        assert thread.is_alive(), "there is no room for a third one"
        assert [sub.receive(timeout=PATIENCE).value for _ in range(2)] == [2, 3]
        thread.join(PATIENCE)
        assert not thread.is_alive()
        pub.send(np.int64(4))
        pub.rival = partial(pub.send, np.int64(5))
        with pytest.raises(TimeoutError, match=r"after 0\.2 s"):
            pub.send(np.int64(6), timeout=0.2)


def test_a_subscriber_that_blocks_can_be_evicted(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, buffer=1, overflow="block") as sub:
        assert pub.subscribers == 1
        pub.on_slow = lambda slow: slow.evict()
        for number in range(5):
            pub.send(np.full(100, number), timeout=PATIENCE)
        assert pub.subscribers == 0
        assert sub.receive(timeout=PATIENCE).sequence == 0
        everything(sub)
        with pytest.raises(ipc.PeerLost, match="slow"):
            sub.receive(timeout=PATIENCE)


def test_the_policy_of_one_changes_nothing_for_another(name: str) -> None:
    with (
        ipc.Publisher(name, "i8") as pub,
        ipc.Subscriber(name, buffer=200) as all_of_them,
        ipc.Subscriber(name, buffer=3) as few,
        ipc.Subscriber(name, buffer=3, overflow="drop_newest") as first,
        ipc.Subscriber(name, overflow="conflate") as newest,
    ):
        assert pub.subscribers == 4
        for number in range(150):
            pub.send(np.full(50, number))
        for sub, wanted in (
            (all_of_them, range(150)),
            (few, range(147, 150)),
            (first, range(3)),
            (newest, [149]),
        ):
            assert [int(sample.value[3]) for sample in everything(sub)] == list(wanted)
            assert sub.lost == 150 - len(list(wanted))


def test_the_history_comes_on_top_of_the_buffer(name: str) -> None:
    with ipc.Publisher(name, "i8", history=5) as pub:
        for number in range(9):
            pub.send(np.array([number]), header=b"")
        late = {"drop_oldest": [4, 5, 6, 7, 8], "block": [4, 5, 6, 7, 8], "conflate": [8]}
        for overflow, expected in late.items():
            with ipc.Subscriber(name, overflow=overflow, buffer=3) as sub:
                samples = [sub.receive(timeout=60) for _ in expected]
                assert [int(each.value[0]) for each in samples] == expected
                assert all(each.header is None for each in samples)
                assert (sub.try_receive(), sub.lost) == (None, 0)
        with ipc.Subscriber(name, buffer=3) as sub:
            assert sub.publishers == 1
            for number in range(9, 29):
                pub.send(np.array([number]))
            assert [int(sub.receive(timeout=60).value[0]) for _ in range(3)] == [26, 27, 28]
            assert sub.lost == 5 + 17
