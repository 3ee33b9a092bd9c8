# SPDX-License-Identifier: Apache-2.0
"""A wait that the handler of a signal ends by an exception loses no result."""

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from spi.harness import WAIT, wait_until
from spi.pair import Pair
from spi.remote import Ends


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


def test_a_signal_after_the_results_were_taken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler raises where the interpreter next runs one of its functions."""
    end = pair.active
    kind = type(end.adapter._engine.client)

    def interrupted(self: Any) -> bool:
        monkeypatch.undo()
        raise Interrupted

    def send() -> None:
        monkeypatch.setattr(kind, "alive", property(interrupted))
        pair.passive.qp.send(None)

    end.qp.receive(None, "kept")
    taken = wait_interrupted(end.cq, send)
    assert [result.request_context for result in taken] == ["kept"]
    assert end.cq.get_results() == []
