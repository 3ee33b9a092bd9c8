# SPDX-License-Identifier: Apache-2.0
"""A subscriber of one publisher sleeps at that one's counter first, which needs no ring."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import ipc
from shmnd.neighbours import Neighbour

PATIENCE = 20.0


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[Neighbour]:
    """Rings of this process, in which the publisher is."""
    found: list[Neighbour] = []
    ring = Neighbour.ring

    def noted(self: Neighbour) -> None:
        found.append(self)
        ring(self)

    monkeypatch.setattr(Neighbour, "ring", noted)
    return found


def test_a_sample_wakes_it_without_a_ring(rings: list[Neighbour]) -> None:
    with ipc.Publisher("counter", "i8") as pub, ipc.Subscriber("counter") as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        assert not sub.ready()  # it finds its seat
        rings.clear()
        got: list[int] = []

        def receive() -> None:
            end = time.monotonic() + PATIENCE
            while len(got) < 50 and time.monotonic() < end:
                box: list[Any] = []
                if sub._sleep_at_counter(1.0, box):
                    got.append(int(box.pop().value))

        thread = threading.Thread(target=receive)
        thread.start()
        for number in range(50):
            time.sleep(0.003)
            pub.send(number)
        thread.join()
        assert got == list(range(50))
        assert not rings


def test_one_that_sleeps_longer_is_rung(rings: list[Neighbour]) -> None:
    with ipc.Publisher("counter", "i8") as pub, ipc.Subscriber("counter") as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        rings.clear()
        got: list[int] = []
        thread = threading.Thread(target=lambda: got.append(int(sub.receive(PATIENCE).value)))
        thread.start()
        end = time.monotonic() + PATIENCE
        while sub._waiter._sleepers == 0 and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.05)
        pub.send(7)
        thread.join()
    assert got == [7]
    assert rings


def test_a_queue_of_its_own_is_filled_behind_the_counter() -> None:
    """Its subscriber would miss the wake-up, and sleeps until a ring at once."""
    with (
        ipc.Publisher("counter", "i8") as pub,
        ipc.Subscriber("counter", overflow="drop_newest") as sub,
    ):
        pub.wait_for_subscribers(1, PATIENCE)
        assert not sub.ready()
        assert not sub._sleep_at_counter(1.0, [])
        threading.Timer(0.05, pub.send, (1,)).start()
        assert sub.receive(PATIENCE).value == 1


def test_a_close_by_another_thread_ends_the_sleep() -> None:
    with ipc.Publisher("counter", "i8") as pub:
        for pause in (0.0, 0.002, 0.005, 0.02):
            sub = ipc.Subscriber("counter")
            pub.wait_for_subscribers(1, PATIENCE)
            threading.Timer(pause, sub.close).start()
            with pytest.raises(ipc.Closed):
                sub.receive(PATIENCE)


def test_a_publisher_that_closes_ends_the_sleep() -> None:
    for pause in (0.0, 0.002, 0.005, 0.02):
        pub = ipc.Publisher("counter", "i8")
        with ipc.Subscriber("counter", wait_for_publisher=False) as sub:
            pub.wait_for_subscribers(1, PATIENCE)
            threading.Timer(pause, pub.close).start()
            with pytest.raises(ipc.NoPublisher):
                sub.receive(PATIENCE)


@pytest.mark.parametrize("pause", [0.002, 0.005, 0.008, 0.05])
def test_a_handler_that_forks_in_the_sleep_leaves_the_samples_to_the_parent(pause: float) -> None:
    """The child returns into the call of its parent, whose page it may not write."""
    read, write = os.pipe()
    child = -1

    def fork(number: int, frame: object) -> None:
        nonlocal child
        child = os.fork()

    before = signal.signal(signal.SIGALRM, fork)
    try:
        with (
            ipc.Publisher("counter", "i8") as pub,
            ipc.Subscriber("counter", overflow="block", max_held=4) as sub,
        ):
            pub.wait_for_subscribers(1, PATIENCE)
            assert not sub.ready()
            # In time for the child to take it, if it would.
            sender = threading.Timer(pause + 0.05, lambda: [pub.send(n, timeout=9) for n in (7, 8)])
            sender.start()
            signal.setitimer(signal.ITIMER_REAL, pause)
            try:
                found = int(sub.receive(PATIENCE).value)
                said = f"{found}"
            except ipc.Closed as exc:
                said = str(exc)
            if child == 0:
                os.write(write, said.encode())
                os._exit(0)
            assert (said, int(sub.receive(PATIENCE).value)) == ("7", 8)
            assert sub.lost == 0
            sender.join()
            os.waitpid(child, 0)
            assert b"was opened before fork()" in os.read(read, 4096)
    finally:
        signal.signal(signal.SIGALRM, before)
        os.close(read)
        os.close(write)


def _in_a_loop(wait: Callable[[], Any]) -> None:
    async def main() -> None:
        await wait()

    asyncio.run(main())


def _in_a_set_in_a_loop(sub: ipc.Subscriber) -> None:
    with ipc.WaitSet(sub) as found:
        _in_a_loop(lambda: found.await_ready(PATIENCE))


OTHERS: dict[str, Callable[[ipc.Subscriber], Any]] = {
    "thread": lambda sub: sub.receive(PATIENCE),
    "task": lambda sub: _in_a_loop(lambda: sub.areceive(PATIENCE)),
    "set": lambda sub: ipc.WaitSet(sub).wait(PATIENCE),
    "set in a loop": _in_a_set_in_a_loop,
    "descriptor": lambda sub: sub.fileno(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_no_thread_sleeps_there_while_another_one_needs_a_ring(
    kind: str, rings: list[Neighbour]
) -> None:
    """Its request for a ring was overwritten: it slept on while samples came."""
    with ipc.Publisher("counter", "i8") as pub, ipc.Subscriber("counter") as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        assert not sub.ready()

        def wait() -> None:
            with contextlib.suppress(ipc.Closed):
                OTHERS[kind](sub)

        other = threading.Thread(target=wait)
        other.start()
        end = time.monotonic() + PATIENCE
        while not sub._waiter.waited_for and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.02)
        assert not sub._sleep_at_counter(1.0, [])
        rings.clear()
        pub.send(7)
        assert rings
        sub.close()
        other.join()


def test_a_set_that_has_ended_needs_no_ring() -> None:
    with ipc.Publisher("counter", "i8") as pub, ipc.Subscriber("counter") as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        with ipc.WaitSet(sub) as found:
            assert found.wait(0.01) == ()
            assert not sub._may_sleep_at_counter()
            found.remove(sub)
            assert sub._may_sleep_at_counter()
            found.add(sub)
            assert found.wait(0.01) == ()
            assert not sub._may_sleep_at_counter()
        assert sub._may_sleep_at_counter()
