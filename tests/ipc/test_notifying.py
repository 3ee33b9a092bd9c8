# SPDX-License-Identifier: Apache-2.0
"""Events: numbers coalesce, none is lost, and a notifier that dies disturbs no listener."""

import asyncio
import multiprocessing
import os
import select
import signal
import threading
import time
import uuid
from typing import Any

import pytest

from ipc import queue_players
from shmnd import ipc

FORK = multiprocessing.get_context("fork")


def test_numbers_coalesce_and_each_listener_gets_them() -> None:
    with ipc.Listener("e") as one, ipc.Listener("e") as two, ipc.Notifier("e") as notifier:
        for number in (0, 5, 5, 4095):
            notifier.notify(number)
        assert one.wait(5) == {0, 5, 4095}
        assert two.wait(5) == {0, 5, 4095}
        assert one.wait(0) == set()
        assert one.wait(0.01) == set()
        assert notifier.listeners == 2


def test_a_listener_receives_events_after_its_creation() -> None:
    with ipc.Notifier("e") as notifier:
        notifier.notify(1)
        with ipc.Listener("e") as listener:
            assert listener.wait(0) == set()
            notifier.notify()
            assert listener.wait(5) == {0}
    with ipc.Notifier("e") as notifier:
        notifier.notify(3)  # without a listener


def test_a_sleeper_is_woken_in_another_process() -> None:
    out = ipc.Queue()
    child = FORK.Process(target=queue_players.listen, args=("e", out, 3))
    child.start()
    assert out.get(timeout=60) == "ready"
    with ipc.Notifier("e") as notifier:
        for number in (3, 4, 5):
            notifier.notify(number)
            assert out.get(timeout=60) == {number}
    child.join()
    out.close()


def test_a_dead_notifier_disturbs_no_listener() -> None:
    with ipc.Listener("e") as listener, ipc.Notifier("e") as notifier:
        for _ in range(5):
            child = FORK.Process(target=queue_players.notify_for_ever, args=("e",))
            child.start()
            assert listener.wait(60) == {7}
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            listener.wait(0)
            notifier.notify(1)
            assert 1 in listener.wait(60)


def test_a_dead_listener_leaves_its_place() -> None:
    with ipc.Notifier("e") as notifier:
        for _ in range(3):
            out = ipc.Queue()
            child = FORK.Process(target=queue_players.listen, args=("e", out, 1))
            child.start()
            out.get(timeout=60)
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            out.close()
            notifier.notify(9)
        assert notifier.listeners == 0
        with ipc.Listener("e") as listener:
            assert listener.wait(0) == set()  # nothing of the dead


def test_descriptor_and_asyncio() -> None:
    async def main(listener: ipc.Listener) -> list[set[int]]:
        found = []
        async for ids in listener:
            found.append(ids)
            if len(found) == 2:
                return found
            threading.Timer(0.05, notifier.notify, (2,)).start()
        return found

    with ipc.Listener("e") as listener, ipc.Notifier("e") as notifier:
        assert not select.select([listener], [], [], 0)[0]
        notifier.notify(1)
        assert select.select([listener], [], [], 10)[0]
        assert asyncio.run(main(listener)) == [{1}, {2}]
        for timer in threading.enumerate():
            if isinstance(timer, threading.Timer):
                timer.join()


@pytest.mark.parametrize("number", [-1, 4096, 1.5, "x"])
def test_numbers_that_are_none(number: object) -> None:
    with ipc.Notifier("e") as notifier, pytest.raises(Exception, match="4095"):
        notifier.notify(number)  # type: ignore[arg-type]


def test_after_the_end() -> None:
    listener, notifier = ipc.Listener("e"), ipc.Notifier("e")
    for each in (listener, notifier):
        each.close()
        each.close()
        assert "closed" in repr(each)
    with pytest.raises(ipc.Closed, match="closed"):
        listener.wait(0)
    with pytest.raises(ipc.Closed, match="closed"):
        notifier.notify()


def test_waiting_costs_nothing() -> None:
    with ipc.Listener("e") as listener:
        before = time.process_time()
        assert listener.wait(1) == set()
        assert time.process_time() - before < 0.1


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
def test_a_wrong_timeout_is_refused_where_numbers_are_there(timeout: Any) -> None:
    name = f"event-{uuid.uuid4().hex}"
    with ipc.Listener(name) as listener, ipc.Notifier(name) as notifier:
        notifier.notify(3)
        with pytest.raises(ValueError, match="timeout"):
            listener.wait(timeout)
        assert listener.wait(0) == {3}
