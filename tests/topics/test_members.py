# SPDX-License-Identifier: Apache-2.0
"""Publishers and subscribers that come late, go, and come again."""

import gc
import logging
import multiprocessing
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from topics.taking import PATIENCE, everything

FORK = multiprocessing.get_context("fork")


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_history_for_late_subscribers(name: str, overflow: str) -> None:
    with ipc.Publisher(name, "i8", history=4) as pub:
        for number in range(10):
            pub.send(np.full(100, number))
        with (
            ipc.Subscriber(name, overflow=overflow) as late,
            ipc.Subscriber(name, history=2, overflow=overflow) as less,
            ipc.Subscriber(name, history=0, overflow=overflow) as none,
        ):
            assert pub.subscribers == 3
            pub.send(np.full(100, 10))
            seen = [[int(s.value[0]) for s in everything(sub)] for sub in (late, less, none)]
            if overflow == "conflate":
                assert seen == [[10], [10], [10]]
            else:
                assert seen == [[6, 7, 8, 9, 10], [8, 9, 10], [10]]


def _try(calls: list[Callable[[], object]], said: Any) -> None:
    for call in calls:
        try:
            call()
        except ipc.Closed as exc:
            said.put(str(exc))


def test_a_forked_child_must_open_its_own(name: str) -> None:
    said = FORK.SimpleQueue()
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name) as sub:
        calls: list[Callable[[], object]] = [lambda: pub.send(1), sub.try_receive]
        child = FORK.Process(target=_try, args=(calls, said))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        for end in ("publisher", "subscriber"):
            assert f"the {end} of topic {name!r} was opened before fork()" in (text := said.get())
            assert text.endswith("; open a new one in the child")
        pub.send(2)
        assert sub.receive(PATIENCE).value == 2


def _receive_one(name: str) -> None:
    with ipc.Subscriber(name, "i8") as sub:
        sub.receive(PATIENCE)


def test_a_subscriber_that_left_before_it_was_met_causes_no_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), ipc.Publisher(name, "i8", history=1) as pub:
        pub.send(np.arange(100))
        for _ in range(3):
            child = FORK.Process(target=_receive_one, args=(name,))
            child.start()
            child.join(PATIENCE)
            assert child.exitcode == 0
            child.close()
        assert pub.subscribers == 0
    assert not caplog.records


def test_ends_that_are_dropped_close_at_once(name: str) -> None:
    gc.disable()
    try:
        pub, sub = ipc.Publisher(name, "i8"), ipc.Subscriber(name, overflow="block", buffer=1)
        other = ipc.Subscriber(name)
        assert pub.subscribers == 2
        pub.send(np.arange(100))
        kept = sub.receive(PATIENCE).array
        pub.send(np.arange(100))
        ends = [weakref.ref(each) for each in (sub, pub)]
        del sub
        assert pub.send(np.zeros(100, "i8"), timeout=PATIENCE) == 2  # waits for no one
        assert kept[99] == 99
        del pub
        assert [each() for each in ends] == [None, None]
        assert len(everything(other)) == 3
        assert other.publishers == 0
        other.close()
    finally:
        gc.enable()


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_closed_subscriber_that_holds_a_sample_is_not_waited_for(name: str, when: str) -> None:
    with (
        ipc.Publisher(name, "i8") as pub,
        ipc.Subscriber(name, overflow="block", buffer=1) as sub,
    ):
        assert pub.subscribers == 1
        pub.send(np.arange(100))
        kept = sub.receive(PATIENCE).array
        pub.send(np.arange(100))
        closing = threading.Timer(0 if when == "before" else 0.2, sub.close)
        closing.start()
        if when == "before":
            closing.join()
        for _ in range(5):
            pub.send(np.zeros(100, "i8"), timeout=20)
        closing.join()
        assert pub.subscribers == 0
        assert kept.tolist() == list(range(100))
        del kept


def test_several_publishers_on_one_topic(name: str) -> None:
    with ipc.Subscriber(name, "i8", buffer=50) as sub:
        pubs = [ipc.Publisher(name, "i8") for _ in range(3)]
        assert sub.publishers == 3
        for pub in pubs:
            assert pub.subscribers == 1
        for number in range(20):
            for pub in pubs:
                pub.send(np.array([number]))
        samples = everything(sub)
        assert len(samples) == 60
        for publisher in {sample.publisher for sample in samples}:
            mine = [sample for sample in samples if sample.publisher == publisher]
            assert [sample.sequence for sample in mine] == list(range(20))
            assert [int(sample.value[0]) for sample in mine] == list(range(20))
        for pub in pubs:
            pub.close()
        assert sub.publishers == 0


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
def test_a_subscriber_that_was_there_first_misses_nothing(name: str, overflow: str) -> None:
    with ipc.Subscriber(name, overflow=overflow) as sub, ipc.Publisher(name, "i8") as pub:
        for number in range(8):
            pub.send(np.full(100, number))
        assert [int(sub.receive(timeout=0).value[0]) for _ in range(8)] == list(range(8))
        assert sub.lost == 0


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
@pytest.mark.parametrize("nbytes", [8, 800])
@pytest.mark.parametrize("sent", [7, 40, 300])
def test_samples_of_before_the_meeting_are_received_or_lost(
    name: str, overflow: str, nbytes: int, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ipc.Subscriber(name, overflow=overflow, buffer=5) as sub:
        with monkeypatch.context() as patch:  # it makes no call, and so meets no publisher
            patch.setattr(sub, "_take_changes", lambda: None)
            pub = ipc.Publisher(name, "i8")
            for number in range(sent):
                pub.send(np.full(nbytes // 8, number))
            assert sub.lost == 0
        with pub:
            assert sub.publishers == pub.subscribers == 1
            received = 0
            for further in (0, 3, 9):
                for number in range(further if overflow != "block" else further // 3):
                    sent += 1
                    pub.send(np.full(nbytes // 8, number), timeout=0)
                samples = everything(sub)
                assert samples or not further
                received += len(samples)
                assert received + sub.lost == sent
                assert samples == sorted(samples, key=lambda sample: sample.sequence)


def test_no_publisher_is_an_error_only_where_asked_for(name: str) -> None:
    with ipc.Subscriber(name, wait_for_publisher=False) as sub:
        with pytest.raises(ipc.NoPublisher, match=name):
            sub.receive(timeout=PATIENCE)
        with ipc.Publisher(name, "i8") as pub:
            assert pub.subscribers == 1
            pub.send(np.arange(30))
            pub.send(np.arange(3))
        assert [len(sample.value) for sample in sub] == [30, 3]
        with pytest.raises(ipc.NoPublisher):
            sub.receive(timeout=PATIENCE)
    with ipc.Subscriber(name) as sub, pytest.raises(TimeoutError, match="no publisher"):
        sub.receive(timeout=0)


def test_a_call_that_never_waits_raises_where_no_publisher_is(name: str) -> None:
    with ipc.Subscriber(name, wait_for_publisher=False) as sub:
        with pytest.raises(ipc.NoPublisher, match=name):
            sub.try_receive()
        assert ipc.WaitSet(sub).wait(timeout=PATIENCE) == (sub,)
        with pytest.raises(ipc.NoPublisher, match=name):
            sub.try_receive()
        with ipc.Publisher(name, "i8"):
            while sub.ready():
                assert sub.publishers
            assert sub.try_receive() is None
        assert sub.ready()
        with pytest.raises(ipc.NoPublisher, match=name):
            sub.try_receive()


def test_what_is_ready_by_an_error_raises_it_at_once(name: str) -> None:
    with (
        ipc.Subscriber(name, "i8", overflow="block", buffer=1) as sub,
        ipc.Publisher(name, "i8") as pub,
    ):
        pub.wait_for_subscribers(timeout=PATIENCE)
        pub.on_slow = lambda slow: slow.evict()
        for value in range(3):
            pub.send([value], timeout=PATIENCE)
        while sub.try_receive() is not None:
            pass
        assert sub.ready()
        with pytest.raises(ipc.PeerLost):
            sub.try_receive()


def test_a_publisher_comes_again(name: str) -> None:
    with ipc.Subscriber(name) as sub:
        for round_ in range(4):
            with ipc.Publisher(name, "i8") as pub:
                assert pub.subscribers == 1
                pub.send(np.array([round_]))
                assert sub.receive(timeout=PATIENCE).value[0] == round_
        assert sub.publishers == 0


def test_subscribers_come_and_go(name: str) -> None:
    with ipc.Publisher(name, "i8", max_subscribers=3) as pub:
        for round_ in range(10):
            with ipc.Subscriber(name) as one, ipc.Subscriber(name) as two:
                assert pub.subscribers == 2
                pub.send(np.full(100, round_))
                assert one.receive().value[0] == two.receive().value[0] == round_
            assert pub.subscribers == 0
