# SPDX-License-Identifier: Apache-2.0
"""`fileno()` of an object that is closed meanwhile: one error, and no descriptor stays open."""

import contextlib
import itertools
import select
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from census import open_files
from interrupting import handled, inside
from shmnd import ipc
from shmnd.ipc.common import ringing
from shmnd.runtime.waiting import Readiness

PATIENCE = 30.0
WITHIN = inside(shmnd)
CASES: dict[str, Callable[[], list[Any]]] = {
    "subscriber": lambda: [ipc.Subscriber("t")],
    "reader": lambda: [ipc.BlackboardReader("b"), ipc.Blackboard("b", {"x": "f8"})],
    "reader without a writer": lambda: [ipc.BlackboardReader("b")],
    "listener": lambda: [ipc.Listener("l"), ipc.Notifier("l")],
    "server": lambda: [ipc.Server("s")],
    "client": lambda: [ipc.Client("s"), ipc.Server("s")],
    "queue": lambda: [ipc.Queue()],
}


@pytest.fixture(autouse=True)
def _other_adapter() -> Iterator[None]:
    """Have an engine that outlives the objects: it would close what they left."""
    with shmnd.open_adapter():
        yield


@pytest.mark.parametrize("case", CASES)
def test_a_close_at_each_place_of_fileno(case: str) -> None:
    refusal: type[Exception] = ValueError if case == "queue" else ipc.Closed  # as of a closed one
    refused = 0
    for place in itertools.count():
        objects = CASES[case]()
        before = len(open_files())

        def ask(first: Any = objects[0]) -> None:
            nonlocal refused
            try:
                assert first.fileno() > 2
            except refusal:
                refused += 1

        came = handled(place, ask, WITHIN, objects[0].close)
        assert not came or len(open_files()) <= before, f"place {place}"
        if came and case == "queue":
            assert not objects[0]._core.addresses(), f"place {place}"  # others would ring it
        for each in objects:
            each.close()
        if not came:
            break
    # At the last places the call is over, and its value is on the way.
    assert refused >= place - 2 > 10


@pytest.mark.parametrize("case", CASES)
def test_fileno_at_each_place_of_a_close(case: str) -> None:
    """A bell that is made for an object on its way to its end is not left open, either."""
    refusal: type[Exception] = ValueError if case == "queue" else ipc.Closed

    def ask_within_close(place: int) -> bool:
        objects = CASES[case]()

        def ask() -> None:
            with contextlib.suppress(refusal):
                objects[0].fileno()

        came = handled(place, objects[0].close, WITHIN, ask)
        for each in objects[1:]:
            each.close()
        bell = getattr(objects[0], "_bell", None)
        assert bell is None or bell.fd < 0, f"place {place}"  # at which others would sleep
        return came

    for place in itertools.count():
        before = len(open_files())
        came = ask_within_close(place)
        assert len(open_files()) <= before, f"place {place}"
        if not came:
            break
    assert place > 2


def test_a_descriptor_that_a_thread_makes_while_another_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = Readiness._make
    made, closed = threading.Event(), threading.Event()

    def make_late(readiness: Any) -> Any:
        made.set()
        assert closed.wait(PATIENCE)
        return make(readiness)

    monkeypatch.setattr(Readiness, "_make", make_late)
    refused: list[Exception] = []

    def ask() -> None:
        try:
            subscriber.fileno()
        except ipc.Closed as exc:
            refused.append(exc)

    with ipc.Publisher("t", "f8"):  # keeps what its process has in common
        subscriber = ipc.Subscriber("t")
        before = len(open_files())
        thread = threading.Thread(target=ask)
        thread.start()
        assert made.wait(PATIENCE)
        subscriber.close()
        closed.set()
        thread.join(PATIENCE)
        assert len(refused) == 1
        assert len(open_files()) <= before
        sleepers = subscriber._waiter._engine.request_progress._sleepers
        assert not any(isinstance(each, Readiness) for each in sleepers)


@pytest.mark.parametrize("call", ["get", "fileno"])
def test_a_queue_that_is_closed_while_another_thread_arms_it(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It is rung no more, unless this process has opened it again."""
    drain = ringing.Bell.drain

    def close_within(bell: ringing.Bell, *arguments: Any) -> None:
        drain(bell, *arguments)
        if not queue._closed:
            closing = threading.Thread(target=queue.close)
            closing.start()
            closing.join(PATIENCE)

    for armed in (True, False):
        with ipc.Queue(name="q") as again, ipc.Queue(name="q") as queue:
            if armed:
                assert again.fileno() > 2
            with monkeypatch.context() as patch, contextlib.suppress(ValueError):
                patch.setattr(ringing.Bell, "drain", close_within)
                if call == "get":
                    queue._wait_long(0, PATIENCE)
                else:
                    queue.fileno()
            assert queue._closed
            assert bool(again._core.addresses()) == armed
            again.close()
            assert not queue._core.addresses()


def test_queues_of_one_part_that_threads_close_and_arm_at_once() -> None:
    """The bell is rung as long as one of them uses it, and not longer."""
    failures: list[BaseException] = []
    interval = sys.getswitchinterval()

    def at_once(*calls: Callable[[], object]) -> None:
        begin = threading.Barrier(len(calls))

        def run(call: Callable[[], object]) -> None:
            begin.wait(PATIENCE)
            try:
                call()
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE)

    sys.setswitchinterval(1e-6)
    try:
        with ipc.Queue(name="q") as watching:
            for _ in range(200):
                first, second = ([ipc.Queue(name="q") for _ in range(3)] for _ in range(2))
                for each in first:
                    each.fileno()
                at_once(*(each.close for each in first), *(each.fileno for each in second))
                assert watching._core.addresses()
                at_once(*(each.close for each in second))
                assert not watching._core.addresses()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


def test_a_handler_that_asks_for_fileno_at_each_place_of_fileno() -> None:
    for place in itertools.count():
        with ipc.Queue() as queue:
            found: list[int] = []

            def ask(queue: Any = queue, found: list[int] = found) -> None:
                found.append(queue.fileno())

            came = handled(place, ask, WITHIN, ask)
            assert len(set(found)) == 1, f"place {place}"
            queue.put(1)
            assert select.select(found, [], [], PATIENCE)[0], f"place {place}"
            assert queue.get(timeout=PATIENCE) == 1
        if not came:
            break
    assert place > 10
