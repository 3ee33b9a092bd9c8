# SPDX-License-Identifier: Apache-2.0
"""A sleep at the word of a queue's bell: what ends it in time, and what it must not hide."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from interrupting import Alarm
from shmnd import Status
from shmnd.broker.client import BrokerClient
from shmnd.ring.process.waiting import set_longest_at_word
from shmnd.runtime.waiting import WaitSet
from spi.harness import WAIT, contexts, wait_until
from spi.pair import Pair
from spi.remote import Ends
from spi.waiting.at_word import asleep, ended, sleeping_at_the_word, waiting


@pytest.fixture
def pair(ends: Ends) -> Pair:
    return sleeping_at_the_word(ends)


@pytest.fixture
def unconnected(ends: Ends) -> Pair:
    """Two more ends of the same processes, with queues of their own."""
    return ends.pair("two")


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


def test_a_child_that_a_handler_forks_receives_no_message_of_its_parent(
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


@pytest.mark.parametrize("asked", [1, 2, 3, 4])
def test_a_child_forked_anywhere_in_a_wait_takes_no_message(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """A wait asks several times whether the broker is there: in Python, so that handlers run."""
    end = pair.active
    end.qp.receive(None, "the parent's")
    children: list[int] = []
    count = 0
    usual = BrokerClient.alive.fget
    assert usual is not None

    def alive(client: BrokerClient) -> bool:
        nonlocal count
        count += threading.current_thread() is threading.main_thread()
        if count == asked and not children:
            pair.passive.qp.send(None)
            children.append(os.fork())
        return bool(usual(client))

    thread = threading.Thread(
        target=lambda: (
            wait_until(lambda: asleep(end.cq) or bool(children), "it sleeps, or has forked"),
            end.adapter._engine.ring(),
        )
    )
    thread.start()
    monkeypatch.setattr(BrokerClient, "alive", property(alive))
    got: list[Any] = []
    status = 0
    try:
        got = end.cq.wait(1, WAIT)
    except shmnd.NdError as exc:
        status = exc.status
    if children and children[0] == 0:
        os._exit(0 if status == Status.DEVICE_REMOVED and end.cq._queued == 0 else 1)
    thread.join(WAIT)
    monkeypatch.undo()
    assert children, "it was not asked so often"
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


def test_another_thread_may_lead_after_the_wait_of_a_handler(pair: Pair, unconnected: Pair) -> None:
    """The wait of the handler ends the lead of the one that it interrupts."""
    other = unconnected.connect()
    end = pair.active
    thread: list[threading.Thread] = []
    got_elsewhere: list[Any] = []
    set_longest_at_word(0.0)

    def wait() -> None:
        end.cq.wait(1, 0.01)

    def act() -> None:
        other.active.qp.receive(None, "elsewhere")
        end.qp.receive(None, "own")
        thread.append(
            threading.Thread(target=lambda: got_elsewhere.extend(other.active.cq.wait(1, WAIT)))
        )
        thread[0].start()
        wait_until(lambda: other.active.cq._attended, "another thread sleeps")
        time.sleep(0.05)
        pair.passive.qp.send(None)

    interrupter = threading.Thread(
        target=lambda: (
            wait_until(lambda: end.cq._attended, "it sleeps"),
            time.sleep(0.05),
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1),
            time.sleep(0.1),
            act(),
        )
    )
    before = signal.signal(signal.SIGUSR1, lambda number, frame: wait())
    interrupter.start()
    try:
        assert contexts(end.cq.wait(1, WAIT)) == ["own"]
    finally:
        signal.signal(signal.SIGUSR1, before)
        set_longest_at_word(3600.0)
        interrupter.join(WAIT)
    other.passive.qp.send(None)
    ended(thread[0])
    assert contexts(got_elsewhere) == ["elsewhere"]


def test_a_handler_that_raises_as_a_sleep_ends_leaves_nothing_behind(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes where the followers are woken: the next wait sleeps at the word as before."""
    end = pair.active
    engine = end.adapter._engine
    stop: list[bool] = []
    follower = threading.Thread(target=lambda: engine.wait(lambda: bool(stop), WAIT))
    usual = WaitSet._notify_followers
    failures: list[bool] = []

    def notify(wait_set: WaitSet) -> None:
        if threading.current_thread() is threading.main_thread() and not failures:
            failures.append(True)
            raise Alarm
        usual(wait_set)

    def act() -> None:
        wait_until(lambda: asleep(end.cq), "it sleeps at the word")
        follower.start()
        wait_until(lambda: not asleep(end.cq), "it sleeps elsewhere")

    actor = threading.Thread(target=act)
    actor.start()
    monkeypatch.setattr(WaitSet, "_notify_followers", notify)
    with pytest.raises(Alarm):
        end.cq.wait(1, 0.5)
    actor.join(WAIT)
    stop.append(True)
    engine.ring()
    ended(follower)
    assert failures
    assert not end.cq._armed
    assert not engine.request_progress._sleepers
    got: list[Any] = []
    end.qp.receive(None, "next")
    thread = waiting(end.cq, got)
    pair.passive.qp.send(None)
    ended(thread)
    assert contexts(got) == ["next"]


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

    @value.setter
    def value(self, value: int) -> None:
        ctypes.c_uint32.from_address(self._address).value = value

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


def sleeps_at_descriptors(queue: Any) -> threading.Thread:
    """Begin to wait in a thread, and return it when it sleeps elsewhere."""
    thread = threading.Thread(target=lambda: queue.wait(1, WAIT))
    thread.start()
    wait_until(lambda: queue._attended, "it sleeps")
    time.sleep(0.02)
    assert not asleep(queue)
    return thread


@pytest.fixture
def short_sleeps(pair: Pair) -> Iterator[None]:
    set_longest_at_word(1.0)
    yield
    set_longest_at_word(3600.0)


def led_away(pair: Pair, word: Word) -> None:
    """A ring comes to a sleeper that was led to another word."""
    wait_until(lambda: word.lead_away() == 1, "the sleeper is led away")
    before = word.value
    pair.passive.qp.send(None)
    assert word.value == before + 1, "it was rung"


def led_away_and_set_back(pair: Pair, word: Word) -> None:
    """The same, and nothing at the word shows the ring."""
    before = word.value
    led_away(pair, word)
    word.value = before


def led_away_from_this_process(pair: Pair, word: Word) -> None:
    """A ring of this process alone, without a message."""
    wait_until(lambda: word.lead_away() == 1, "the sleeper is led away")
    pair.active.adapter._engine.ring()
    pair.passive.qp.send(None)


@pytest.mark.usefixtures("short_sleeps")
@pytest.mark.parametrize("how", [led_away, led_away_and_set_back, led_away_from_this_process])
def test_waits_leave_the_word_alone_once_a_ring_was_kept_from_one(
    pair: Pair, how: Callable[[Pair, Word], None]
) -> None:
    """A peer can lead the sleeper to another word: that costs one of these sleeps, and no more."""
    end = pair.active
    for number in range(2):
        end.qp.receive(None, number)
    got: list[Any] = []
    thread = waiting(end.cq, got)
    how(pair, Word(end.cq))
    ended(thread)
    assert contexts(got) == [0]
    thread = sleeps_at_descriptors(end.cq)
    pair.passive.qp.send(None)
    ended(thread)


@pytest.mark.usefixtures("short_sleeps")
def test_a_message_behind_the_end_of_that_sleep_accuses_no_peer(ends: Ends, pair: Pair) -> None:
    """The thread waits for the interpreter's lock then, and its message comes meanwhile."""
    end = pair.active
    peer = ends.remote.pid
    for number in range(2):
        end.qp.receive(None, number)
    os.kill(peer, signal.SIGSTOP)
    sender = threading.Thread(target=lambda: pair.passive.qp.send(None))
    sender.start()
    got: list[Any] = []
    thread = waiting(end.cq, got)
    shell = subprocess.Popen(["sh", "-c", f"sleep 1.3; kill -CONT {peer}"])
    ctypes.PyDLL(None).usleep(1_600_000)  # and this thread has the lock
    ended(thread)
    ended(sender)
    shell.wait(WAIT)
    assert contexts(got) == [0]
    thread = waiting(end.cq, got)
    pair.passive.qp.send(None)
    ended(thread)
