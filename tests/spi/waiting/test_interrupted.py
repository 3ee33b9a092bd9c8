# SPDX-License-Identifier: Apache-2.0
"""A call that the handler of a signal ends by an exception loses no result.

Results that it had taken are given back, and count as results in every way.
"""

import asyncio
import ctypes
import functools
import gc
import operator
import os
import select
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from shmnd import CqNotify, OpFlag, Status
from shmnd.ring.process.waiting import set_longest_at_word
from spi.harness import WAIT, contexts, final, nd_error, wait_until
from spi.pair import Pair
from spi.remote import Ends

TRIES = 10


class Interrupted(BaseException):
    """What the handler raises."""


@pytest.fixture
def handler() -> Iterator[None]:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pair(ends: Ends) -> Pair:
    made = ends.pair("one").connect()
    made.active.cq.spin = 0.0
    return made


def wait_interrupted(queue: Any, act: Any) -> list[Any]:
    """Wait while another thread acts; return the results, of this call and the next ones."""

    def run() -> None:
        wait_until(lambda: queue._attended, "a thread sleeps")
        act()

    thread = threading.Thread(target=run)
    thread.start()
    results = []
    try:
        results = queue.wait(1, WAIT)
    except Interrupted:
        pass
    finally:
        thread.join(WAIT)
    return results or queue.get_results()


def test_a_signal_that_comes_as_the_last_of_a_wait(
    handler: None, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there when the wait returns: behind that, its handler would lose the results."""
    queue = pair.active.cq
    other = threading.Thread(target=pair.passive.cq.wait, args=(1, WAIT))
    other.start()  # so that the wait ends in the call below
    wait_until(lambda: pair.passive.cq._attended, "a thread sleeps at the other queue")
    # In C: no handler runs between the signal and the end of the wait.
    queue.kick = functools.partial(getattr(ctypes.PyDLL(None), "raise"), signal.SIGALRM)
    pair.active.qp.receive(None, "kept")
    sender = threading.Timer(0.05, pair.passive.qp.send, (None,), {"flags": OpFlag.SILENT_SUCCESS})
    sender.start()
    with monkeypatch.context() as patched:
        engine = pair.active.adapter._engine
        usual = engine.wait

        def waited(*args: Any) -> Any:
            found = usual(*args)
            patched.setattr(engine.request_progress, "poller_left", operator.methodcaller("kick"))
            return found

        patched.setattr(engine, "wait", waited)
        with pytest.raises(Interrupted):
            queue.wait(1, WAIT)
    sender.join(WAIT)
    assert contexts(queue.get_results()) == ["kept"]
    pair.passive.qp.receive(None)
    pair.active.qp.send(None)  # ends the other wait
    other.join(WAIT)


def test_a_signal_that_comes_with_a_message(handler: None, pair: Pair) -> None:
    def send_and_signal() -> None:
        pair.passive.qp.send(
            None
        )  # it wakes the other thread, which waits for the interpreter's lock
        os.kill(os.getpid(), signal.SIGALRM)

    for number in range(20):
        pair.active.qp.receive(None, number)
        taken = wait_interrupted(pair.active.cq, send_and_signal)
        assert [result.request_context for result in taken] == [number]


def interrupt_after_taking(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    flags: int = 0,
    before: Callable[[], object] = lambda: None,
) -> None:
    """A handler raises after a result was taken: where the interpreter next runs a function.

    `before` is what the handler does before it raises.
    """
    end = pair.active
    kind = type(end.adapter._engine.client)
    alive = vars(kind)["alive"].fget

    def interrupted(self: Any) -> bool:
        if threading.current_thread() is thread:  # a Send asks too, now and then
            return bool(alive(self))
        monkeypatch.undo()
        before()
        raise Interrupted

    def send() -> None:
        wait_until(lambda: end.cq._attended, "a thread sleeps")
        monkeypatch.setattr(kind, "alive", property(interrupted))
        pair.passive.qp.send(None, flags=flags)

    for _ in range(TRIES):
        end.qp.receive(None, "kept")
        thread = threading.Thread(target=send)
        thread.start()
        set_longest_at_word(0.0)  # behind a sleep there no function of Python runs
        try:
            end.cq.wait(64, WAIT)
        except Interrupted:
            return
        finally:
            set_longest_at_word(3600.0)
            thread.join(WAIT)
        monkeypatch.undo()  # it came before the wait had begun to sleep: no function ran behind it
    pytest.fail("no wait was interrupted")


def interrupt_notify(queue: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A handler raises in `get_results`, which was about to complete a Notify; return that."""

    def interrupted(self: Any) -> None:
        if not self._queued:  # they were taken
            monkeypatch.undo()
            raise Interrupted

    told = queue.notify()
    monkeypatch.setattr(type(queue), "_tick", interrupted)
    return told


def test_a_signal_after_the_results_were_taken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after_taking(pair, monkeypatch)
    queue = pair.active.cq
    assert queue._queued == queue._gather() == 1
    assert contexts(queue.get_results()) == ["kept"]
    assert queue.get_results() == []
    assert queue._queued == queue._gather() == 0


def test_a_signal_while_a_notify_completes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    end = pair.active
    end.qp.receive(None, 0)
    end.qp.receive(None, 1)
    told = interrupt_notify(end.cq, monkeypatch)
    end.qp.flush()
    with pytest.raises(Interrupted):
        end.cq.get_results()
    assert end.cq._queued == 2
    assert final(told) is Status.SUCCESS
    assert contexts(end.cq.get_results(1)) == [0]
    (last,) = end.cq.wait(64, WAIT)
    assert (last.request_context, last.status) == (1, Status.CANCELED)
    assert "flushed" in last.detail


@pytest.mark.parametrize("kind", [CqNotify.ANY, CqNotify.SOLICITED])
@pytest.mark.parametrize("flags", [0, OpFlag.SEND_AND_SOLICIT_EVENT])
def test_a_result_that_is_given_back_satisfies_one_notify(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, kind: CqNotify, flags: int
) -> None:
    interrupt_after_taking(pair, monkeypatch, flags)
    queue = pair.active.cq
    told = queue.notify(kind)
    if kind is CqNotify.ANY or flags:
        assert final(told) is Status.SUCCESS
        assert queue.notify(kind).status is Status.PENDING
    else:
        assert told.status is Status.PENDING
    assert contexts(queue.get_results()) == ["kept"]


@pytest.mark.parametrize("most", [1, 64])
def test_a_notify_that_a_handler_began_completes_with_returned_results(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """It began while no result was there, and the next call takes them all before any poll."""
    queue, told = pair.active.cq, []
    interrupt_after_taking(pair, monkeypatch, before=lambda: told.append(queue.notify()))
    assert contexts(queue.get_results(most)) == ["kept"]  # first: all else polls, too
    assert final(told[0]) is Status.SUCCESS
    assert queue.notify().status is Status.PENDING


def test_an_event_loop_finds_results_that_are_given_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after_taking(pair, monkeypatch)

    async def wait() -> None:
        async with asyncio.timeout(WAIT):
            await pair.active.cq.notify()

    asyncio.run(wait())
    assert contexts(pair.active.cq.get_results()) == ["kept"]


@pytest.mark.parametrize("armed", [False, True])
def test_the_descriptor_is_readable_for_results_that_are_given_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, armed: bool
) -> None:
    queue = pair.active.cq
    readable = select.poll()
    readable.register(queue.fileno(), select.POLLIN)
    told = queue.notify() if armed else None
    interrupt_after_taking(pair, monkeypatch)
    assert readable.poll(1000 * WAIT)
    assert told is None or final(told) is Status.SUCCESS
    assert contexts(queue.get_results()) == ["kept"]
    pair.active.adapter._engine.progress()
    assert not readable.poll(0)


def test_results_that_are_given_back_come_first(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after_taking(pair, monkeypatch)
    end = pair.active
    end.qp.receive(None, "flushed")
    end.qp.flush()
    assert end.cq._queued == 2
    assert contexts(end.cq.wait(64, WAIT)) == ["kept"]
    assert contexts(end.cq.wait(64, WAIT)) == ["flushed"]


def test_a_thread_that_waits_gets_results_that_are_given_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = pair.active
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(contexts(end.cq.wait(64, WAIT))))
    thread.start()
    wait_until(lambda: end.cq._attended, "a thread sleeps")
    end.qp.receive(None, "kept")
    interrupt_notify(end.cq, monkeypatch)
    end.qp.flush()
    try:
        end.cq.get_results()
    except Interrupted:
        pass
    thread.join(WAIT)
    assert got == ["kept"]


def test_a_queue_is_not_resized_below_results_that_are_given_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after_taking(pair, monkeypatch)
    end = pair.active
    end.cq.resize(1)
    end.qp.receive(None, "flushed")
    end.qp.flush()
    with nd_error(Status.BUFFER_OVERFLOW):
        end.cq.resize(1)


def test_a_close_drops_results_that_are_given_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Context:
        """What a result holds."""

    gone = weakref.ref(context := Context())
    end = pair.active
    end.qp.receive(None, context)
    del context
    interrupt_notify(end.cq, monkeypatch)
    end.qp.flush()
    with pytest.raises(Interrupted) as caught:
        end.cq.get_results()
    del caught
    assert gone() is not None
    end.cq.close()
    gc.collect()
    assert gone() is None
    with nd_error(Status.INVALID_HANDLE):
        end.cq.get_results()
