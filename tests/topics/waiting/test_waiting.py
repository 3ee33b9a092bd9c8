# SPDX-License-Identifier: Apache-2.0
"""Waiting for samples and subscribers: threads, event loops, descriptors."""

import asyncio
import contextlib
import select
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from topics.taking import PATIENCE


def test_receive_waits_and_a_send_wakes_it(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    timer = threading.Timer(0.05, lambda: pub.send(np.zeros(100)))
    timer.start()
    assert sub.receive(timeout=PATIENCE).value.shape == (100,)
    timer.join()
    with pytest.raises(ValueError, match="negative"):
        sub.receive(timeout=-1)


def test_a_woken_receive_runs_few_functions_of_python(
    pair: tuple[ipc.Publisher, ipc.Subscriber],
) -> None:
    pub, sub = pair
    sub.spin = 0.0
    sent: list[float] = []
    calls: list[tuple[float, str]] = []

    def send() -> None:
        while not sub._waiter.waited_for:
            time.sleep(0.001)
        time.sleep(0.05)  # it sleeps in the kernel by then
        sent.append(time.perf_counter())
        pub.send(np.zeros(3))

    def count(frame: Any, event: str, arg: object) -> None:
        if event == "call":
            calls.append((time.perf_counter(), frame.f_code.co_qualname))

    sender = threading.Thread(target=send)
    sender.start()
    sys.setprofile(count)
    try:
        sample = sub.receive(timeout=PATIENCE)
    finally:
        sys.setprofile(None)
    sender.join()
    assert sample.value.shape == (3,)
    woken = [name for when, name in calls if when > sent[0]]
    assert len(woken) <= 8, woken


def test_a_sample_does_not_wait_for_news_of_subscribers(
    pair: tuple[ipc.Publisher, ipc.Subscriber], monkeypatch: pytest.MonkeyPatch
) -> None:
    pub, sub = pair
    found: list[bool] = []
    monkeypatch.setattr(pub, "_check_members", lambda: found.append(sub.try_receive() is not None))
    time.sleep(0.02)  # after so long it asks which subscribers came and went
    pub.send(np.zeros(3))
    assert found == [True]


def test_wait_for_subscribers(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub:
        with pytest.raises(TimeoutError, match="0 subscribers"):
            pub.wait_for_subscribers(timeout=0.01)
        subs: list[ipc.Subscriber] = []
        timer = threading.Timer(0.05, lambda: subs.append(ipc.Subscriber(name)))
        timer.start()
        pub.wait_for_subscribers(timeout=PATIENCE)
        timer.join()
        subs[0].close()


def test_in_an_event_loop(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair

    async def run() -> list[int]:
        with pytest.raises(TimeoutError):
            await sub.areceive(timeout=0.01)
        loop = asyncio.get_running_loop()
        for number in range(5):
            loop.call_later(0.01 * number, pub.send, np.full(100, float(number)))
        found = [int((await sub.areceive()).value[0])]
        async for sample in sub:
            found.append(int(sample.value[0]))
            if len(found) == 5:
                return found
        return found

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) == [0, 1, 2, 3, 4]


def test_a_descriptor_for_other_loops(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    number = sub.fileno()
    assert sub.try_receive() is None
    assert select.select([number], [], [], 0)[0] == []
    timer = threading.Timer(0.05, lambda: pub.send(np.zeros(100)))
    timer.start()
    deadline = time.monotonic() + PATIENCE
    sample = None
    while sample is None:
        assert time.monotonic() < deadline
        select.select([number], [], [], PATIENCE)
        sample = sub.try_receive()
    timer.join()
    assert sub.try_receive() is None
    assert select.select([number], [], [], 0)[0] == []


def test_closing_wakes_the_waiters(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    timer = threading.Timer(0.05, sub.close)
    timer.start()
    with pytest.raises(ipc.Closed, match=pub.name):
        sub.receive(timeout=PATIENCE)
    timer.join()
    sub.close()
    pub.close()
    pub.close()
    for call in (lambda: pub.send(1), lambda: pub.loan(3), lambda: pub.subscribers):
        with pytest.raises(ipc.Closed):
            call()
    with pytest.raises(ipc.Closed):
        sub.try_receive()


@pytest.mark.parametrize("form", [object, None], ids=["object", "None"])
def test_pickles_of_another_user_are_refused(
    name: str, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shmnd.neighbours import Neighbour

    monkeypatch.setattr(Neighbour, "same_user", False)
    with (
        ipc.Publisher(name, form),
        pytest.raises(ipc.TypeMismatch, match=r"another user.*arrays, records or bytes"),
        ipc.Subscriber(name, form) as sub,
    ):
        sub.receive(PATIENCE)
    with ipc.Publisher(name + "f", "f8") as pub, ipc.Subscriber(name + "f", "f8") as sub:
        pub.send(np.float64(2))
        assert float(sub.receive(PATIENCE).value) == 2


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_one_with_nothing_to_receive_is_not_ready(name: str, policy: str) -> None:
    """Nor where its publisher has made a longer board for it, or for another one."""
    with ipc.Publisher(name, "i8") as pub, contextlib.ExitStack() as stack:
        subs: list[ipc.Subscriber] = []
        for buffer in (4, 64, 1024):
            sub = ipc.Subscriber(name, "i8", buffer=buffer, overflow=policy)
            subs.append(stack.enter_context(sub))
            assert pub.subscribers == len(subs)
            wait_set = stack.enter_context(ipc.WaitSet(*subs))
            assert wait_set.wait(0) == ()
            for number in range(2):
                pub.send(np.full(100, number))
                assert wait_set.wait(0) == tuple(subs)
                for each in subs:
                    assert each.receive(0).array[0] == number
                assert not any(each.ready() for each in subs)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_samples_sent_before_the_board_moved_are_not_skipped(name: str, policy: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, overflow=policy) as sub:
        assert pub.subscribers == 1
        for number in range(3):
            pub.send(np.full(100, number))
        with ipc.Subscriber(name, buffer=1024) as other:
            assert pub.subscribers == 2
            pub.send(np.full(100, 3))
            got = []
            while sub.ready():
                got.append(int(sub.receive(0).array[0]))
            assert got == ([3] if policy == "conflate" else [0, 1, 2, 3])
            assert other.receive(0).array[0] == 3


def test_polls_without_a_publisher_check_the_members_every_10_ms(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []
    check = ipc.Subscriber._check_members

    def counted(sub: ipc.Subscriber) -> None:
        checks.append(time.monotonic())
        check(sub)

    with ipc.Subscriber(name) as sub:
        monkeypatch.setattr(ipc.Subscriber, "_check_members", counted)
        for _ in range(100_000):
            assert sub.try_receive() is None
        assert len(checks) <= 1 + (time.monotonic() - checks[0]) / 0.01
