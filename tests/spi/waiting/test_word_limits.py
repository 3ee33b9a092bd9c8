# SPDX-License-Identifier: Apache-2.0
"""A sleep at the word of a queue's bell: what ends it in time, and what it must not hide."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from interrupting import Alarm
from shmnd import Status
from shmnd.ring.process.waiting import set_longest_at_word
from spi.harness import WAIT, contexts, wait_until
from spi.pair import Pair
from spi.remote import Ends
from spi.waiting.at_word import asleep, ended, sleeping_at_the_word, waiting


@pytest.fixture
def pair(ends: Ends) -> Iterator[Pair]:
    with sleeping_at_the_word(ends) as pair:
        yield pair


# -- time, signals and forks --


def test_a_time_out_ends_it(pair: Pair) -> None:
    began = time.monotonic()
    assert pair.active.cq.wait(1, 0.05) == []
    assert 0.05 <= time.monotonic() - began < WAIT


def test_a_handler_that_raises_ends_it(pair: Pair) -> None:
    def handle(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handle)

    def act() -> None:
        wait_until(lambda: asleep(pair.active.cq), "it sleeps at the word")
        time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        with pytest.raises(Alarm):
            pair.active.cq.wait(1, WAIT)
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join(WAIT)
    pair.active.qp.receive(None, "after")
    pair.passive.qp.send(None)
    assert contexts(pair.active.cq.wait(1, WAIT)) == ["after"]


@pytest.fixture
def by_handler(pair: Pair) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Have a handler call something in the main thread once it sleeps at the word."""
    threads: list[threading.Thread] = []
    before: list[Any] = []

    def arrange(call: Callable[[], object]) -> None:
        before.append(signal.signal(signal.SIGUSR1, lambda number, frame: call()))

        def act() -> None:
            wait_until(lambda: asleep(pair.active.cq), "it sleeps at the word")
            time.sleep(0.02)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        threads.append(threading.Thread(target=act))
        threads[-1].start()

    yield arrange
    for handler in before:
        signal.signal(signal.SIGUSR1, handler)
    for thread in threads:
        thread.join(WAIT)


def test_a_child_that_a_handler_forks_takes_no_message_of_its_parent(
    pair: Pair, by_handler: Callable[[Callable[[], object]], None]
) -> None:
    children: list[int] = []
    end = pair.active

    def fork() -> None:
        end.qp.receive(None, "the parent's")
        pair.passive.qp.send(None)  # so that there is a message when the child continues
        children.append(os.fork())

    by_handler(fork)
    status = 0
    try:
        got = end.cq.wait(1, WAIT)
    except shmnd.NdError as exc:
        status = exc.status  # the child's
    if children[0] == 0:
        os._exit(0 if status == Status.DEVICE_REMOVED else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert contexts(got) == ["the parent's"]


def test_a_handler_may_wait_at_the_same_queue(
    pair: Pair, by_handler: Callable[[Callable[[], object]], None]
) -> None:
    end = pair.active
    within: list[Any] = []

    def wait() -> None:
        end.qp.receive(None, "within")
        end.qp.receive(None, "after")
        pair.passive.qp.send(None)
        within.extend(end.cq.wait(1, WAIT))
        threading.Timer(0.02, pair.passive.qp.send, (None,)).start()

    by_handler(wait)
    assert contexts(end.cq.wait(1, WAIT)) == ["after"]
    assert contexts(within) == ["within"]


# -- what a sleep there must not hide --


def test_a_long_message_ends_it(pair: Pair) -> None:
    """A poll copies a piece of it: the rest needs polls, and no ring comes for them."""
    length = 32 << 20
    sink = pair.active.memory(length, private=True)
    source = pair.passive.memory(length)
    pair.active.qp.receive(sink.sge(), "long")
    got: list[Any] = []
    thread = waiting(pair.active.cq, got)
    pair.passive.qp.send(source.sge())
    ended(thread)
    assert contexts(got) == ["long"]


def test_the_next_call_does_the_periodic_work(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that alternates between quick polls and such waits notices all else in time."""
    end = pair.active
    for _ in range(2000):
        end.cq.get_results()  # the clock is read once in 64 calls now
    end.qp.receive(None, "word")
    got: list[Any] = []
    thread = waiting(end.cq, got)
    time.sleep(0.03)  # the periodic work is due after 10 ms
    pair.passive.qp.send(None)
    ended(thread)
    polled: list[bool] = []
    progress = end.adapter._engine.progress
    monkeypatch.setattr(
        end.adapter._engine, "progress", lambda *args: (polled.append(True), progress(*args))
    )
    end.cq.get_results()
    assert polled


class Word:
    """The word of a queue's bell, as a hostile peer has it."""

    _FUTEX, _REQUEUE = 202, 3

    def __init__(self, queue: Any) -> None:
        place = queue._place
        self._address = place.marks.address + 640 * place.index + 516
        self._away = ctypes.c_uint32()

    @property
    def value(self) -> int:
        return ctypes.c_uint32.from_address(self._address).value

    def lead_away(self) -> int:
        """Have what sleeps here sleep at another word, where no ring comes; how many that were."""
        system = ctypes.CDLL(None, use_errno=True)
        return int(
            system.syscall(
                ctypes.c_long(self._FUTEX),
                ctypes.c_void_p(self._address),
                ctypes.c_int(self._REQUEUE),
                ctypes.c_int(0),
                ctypes.c_void_p(2**31 - 1),
                ctypes.byref(self._away),
                ctypes.c_int(0),
            )
        )


def test_waits_leave_the_word_alone_once_a_ring_was_kept_from_one(pair: Pair) -> None:
    """A peer can lead the sleeper to another word: that costs one of these sleeps, and no more."""
    end = pair.active
    word = Word(end.cq)
    set_longest_at_word(0.5)
    for number in range(3):
        end.qp.receive(None, number)
    got: list[Any] = []
    thread = waiting(end.cq, got)
    before = word.value
    wait_until(lambda: word.lead_away() == 1, "the sleeper is led away")
    pair.passive.qp.send(None)
    assert word.value == before + 1, "it was rung"
    ended(thread)
    assert contexts(got) == [0]
    thread = threading.Thread(target=lambda: got.extend(end.cq.wait(1, WAIT)))
    thread.start()
    wait_until(lambda: end.cq._attended, "it sleeps")
    time.sleep(0.02)
    assert not asleep(end.cq)
    pair.passive.qp.send(None)
    ended(thread)
    assert contexts(got) == [0, 1]
