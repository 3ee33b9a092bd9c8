# SPDX-License-Identifier: Apache-2.0
"""A lock is released, also when the handler of a signal raises as it is taken."""

import ctypes
import functools
import gc
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar

import pytest

import shmnd
from interrupting import interrupted
from shmnd.common.brief_waits import TooLate
from shmnd.common.held import Attempted, Condition, Held, InTime

PATIENCE = 60.0
"""Seconds, in which a slow machine does anything."""


class Interrupted(BaseException):
    """What the handler raises."""


class Taken(ctypes.Structure):
    """What C returns for an int, as an object that is true."""

    _fields_: ClassVar = [("value", ctypes.c_int)]


@pytest.fixture
def released() -> Iterator[list[None]]:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield []
    signal.signal(signal.SIGALRM, before)


def lock_with_a_signal(released: list[None]) -> Any:
    """Return a lock without Python code. A signal arrives as it is taken, and its handler runs
    between the next two instructions that let it.
    """
    send = ctypes.CDLL(None)["raise"]
    send.restype = Taken
    return SimpleNamespace(
        acquire=functools.partial(send, int(signal.SIGALRM)),
        release=functools.partial(released.append, None),
    )


@pytest.mark.parametrize("kind", [Held, Attempted, functools.partial(InTime, until=0, call="mine")])
def test_a_handler_that_raises_leaves_no_lock_locked(kind: Any, released: list[None]) -> None:
    def attempt() -> None:
        with kind(lock_with_a_signal(released)):
            len(released)  # at the latest here

    with pytest.raises(Interrupted):
        attempt()
    assert len(released) == 1


@pytest.mark.parametrize("kind", [Held, Attempted, functools.partial(InTime, until=0, call="mine")])
def test_one_that_is_dropped_behind_its_entry_releases_its_lock(kind: Any) -> None:
    """As by a handler that raises before the block, where some versions of CPython run it."""
    lock = threading.Lock()
    held = kind(lock)
    held.__enter__()
    assert lock.locked()
    del held
    assert not lock.locked()


def test_timers_that_go_off_at_any_time_leave_no_lock_taken(released: list[None]) -> None:
    lock = threading.Lock()

    def work(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for _ in range(100):
                with Held(lock):
                    pass
            # CPython 3.11 was seen with a signal pending and no flag set to run its handler, on a
            # busy machine. It computes the flag anew where it takes the GIL.
            time.sleep(0)

    # What a handler raises in a finaliser of another test's garbage is lost.
    gc.collect()
    gc.disable()
    try:
        for after_us in range(1, 1001):
            with pytest.raises(Interrupted):
                work(after_us / 4e6)
            assert not lock.locked()
    finally:
        gc.enable()


def test_a_condition_is_held_too_and_can_be_waited_for() -> None:
    condition = threading.Condition()
    told: list[bool] = []

    def wait() -> None:
        with Held(condition):
            told.append(condition.wait_for(lambda: len(told) > 0, PATIENCE))

    thread = threading.Thread(target=wait)
    with Held(condition):
        thread.start()
        told.append(True)
        condition.notify()
    with Held(condition):
        condition.notify()
    thread.join()
    assert told == [True, True]


def test_a_wait_at_a_condition_that_is_interrupted_leaves_its_lock_as_it_was() -> None:
    lock = threading.RLock()
    condition = Condition(lock)

    def wait() -> None:
        with Held(lock):
            condition.wait(1e-3)

    for at in itertools.count():
        more = interrupted(at, wait, lambda path: path in (__file__, threading.__file__))
        assert not lock._is_owned()  # type: ignore[attr-defined]
        if not more:
            break
    assert at > 0, "there were places to interrupt"


def test_a_condition_wakes_all_that_wait_and_no_other() -> None:
    lock = threading.RLock()
    condition = Condition(lock)
    woken: list[bool] = []
    waiting = threading.Semaphore(0)

    def wait() -> None:
        with Held(lock), Held(lock):  # taken twice, and so again after the wait
            waiting.release()
            woken.append(condition.wait(PATIENCE))
            woken.append(lock._is_owned())  # type: ignore[attr-defined]

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
        waiting.acquire()
    with Held(lock):
        condition.notify_all()
    for thread in threads:
        thread.join()
    assert woken == [True] * 6
    with Held(lock):
        assert not condition.wait(0), "nothing is left of what woke the others"
        assert not condition.wait(-1.0)
        assert not condition.wait(1e-6)


def test_a_poll_of_a_connector_leaves_its_lock_free(
    released: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmnd.open_adapter() as adapter:
        connector = adapter.create_connector()
        with monkeypatch.context() as patched:
            patched.setattr(connector, "_lock", lock_with_a_signal(released))
            with pytest.raises(Interrupted):
                connector._tick()
        assert len(released) == 1
        with monkeypatch.context() as patched:
            patched.setattr(adapter._engine, "rpc", lock_with_a_signal(released))
            with pytest.raises(Interrupted):
                adapter._engine.map_announced()
        assert len(released) == 2


def test_a_lock_that_another_thread_has_is_not_waited_for() -> None:
    lock = threading.RLock()
    found: list[bool] = []

    def attempt() -> None:
        with Attempted(lock) as free:
            found.append(free)

    with lock:
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    attempt()
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert found == [False, True, True]


def test_a_lock_is_waited_for_within_the_time_out() -> None:
    lock = threading.RLock()
    order: list[object] = []

    def attempt() -> None:
        with Attempted(lock, PATIENCE) as free:
            order.append(free)

    with lock:
        thread = threading.Thread(target=attempt)
        thread.start()
        order.append("held")
    thread.join()
    assert order == ["held", True]


def test_a_lock_that_is_not_free_in_time_is_too_late() -> None:
    lock = threading.RLock()
    outcomes: list[object] = []

    def attempt(until: float) -> None:
        try:
            with InTime(lock, until, "mine"):
                outcomes.append("held")
        except TooLate as exc:
            outcomes.append(str(exc))

    with lock:
        thread = threading.Thread(target=attempt, args=[time.monotonic()])
        thread.start()
        thread.join()
        thread = threading.Thread(target=attempt, args=[time.monotonic() + PATIENCE])
        thread.start()
    thread.join()
    attempt(0.0)
    assert outcomes[0].startswith("mine: the broker did not answer")  # type: ignore[attr-defined]
    assert outcomes[1:] == ["held", "held"]
    thread = threading.Thread(target=attempt, args=[0.0])
    thread.start()
    thread.join()
    assert outcomes[3:] == ["held"], "it was released each time"
