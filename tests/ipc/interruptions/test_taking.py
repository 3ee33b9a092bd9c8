# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises a thousand times a second, and nothing that is taken is lost.

The interpreter runs handlers behind each call of a function, the program's calls included. So the
programs here take by a list that a compiled loop extends, or by functions of Python, which return
to their caller without that.
"""

import contextlib
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0
COUNT = 4000


class Alarm(BaseException):
    """What the handler raises."""


class Alarms:
    """Signals of a thread to the main thread, of which each raises while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.raised = 0
        self._ended = threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._run)

    def handle(self, number: int, frame: Any) -> None:
        if self.on:
            self.on = False  # until the next try: a second one would end the test
            self.raised += 1
            raise Alarm

    def _run(self) -> None:
        while not self._ended.wait(0.001):
            signal.pthread_kill(self._main, signal.SIGUSR1)

    def take(self, take: Callable[[list[Any]], object], enough: Callable[[list[Any]], bool]) -> Any:
        """Have a function add to a list what it takes, until that is enough."""
        got: list[Any] = []
        end, had = time.monotonic() + PATIENCE, 0
        while True:
            try:
                self._try(lambda: take(got), lambda: enough(got))
                return got
            except Alarm:
                if len(got) > had:
                    end, had = time.monotonic() + PATIENCE, len(got)
                assert time.monotonic() < end, f"{len(got)} after {self.raised} alarms"

    def _try(self, take: Callable[[], object], is_enough: Callable[[], bool]) -> None:
        """A function of its own: not every jump of a loop is within the `try` around the loop."""
        try:
            self.on = True
            while not is_enough():
                take()
        finally:
            self.on = False

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def alarms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alarms]:
    found = Alarms()
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors
    before = signal.signal(signal.SIGUSR1, found.handle)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    found.start()
    yield found
    found.on = False
    found.end()
    sys.setswitchinterval(interval)
    signal.signal(signal.SIGUSR1, before)


@contextlib.contextmanager
def beside(function: Callable[[], object]) -> Iterator[None]:
    """Run a function in a thread, which gets no signals."""
    thread = threading.Thread(target=function)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def enough(count: int) -> Callable[[list[Any]], bool]:
    return lambda got: len(got) >= count


def _summed(number: int) -> int:
    return sum([number, 0])


class Slow:
    """Takes functions of Python to unpickle."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _summed, (self.number,)


def once(take: Callable[[list[Any]], object]) -> Any:
    """Return a step that runs to its end, and the test for that."""
    ended: list[bool] = []

    def step(got: list[Any]) -> None:
        take(got)
        ended[:] = [True]

    return step, lambda got: bool(ended)


ITEMS: list[Any] = [
    (lambda number: number, lambda item: item),
    (Slow, lambda item: item),
    (lambda number: np.full(3000, number), lambda item: item[-1]),
]


@pytest.mark.parametrize(("make", "read"), ITEMS, ids=["number", "function", "array"])
@pytest.mark.parametrize("pause", [0.0, 0.0003], ids=["full", "empty"])
def test_queue_get(make: Any, read: Any, pause: float, alarms: Alarms) -> None:
    with ipc.JoinableQueue() as queue:
        count = 0

        def put() -> None:
            nonlocal count
            end = time.monotonic() + PATIENCE
            while count < COUNT or not (alarms.raised or time.monotonic() > end):
                queue.put(make(count))
                count += 1
                if pause:
                    time.sleep(pause)
            queue.put(b"end")

        with beside(put):
            got = alarms.take(
                *once(lambda got: got.extend(iter(partial(queue.get, True, PATIENCE), b"end")))
                if make is not ITEMS[2][0]
                else once(lambda got: _extend_until_end(got, queue))
            )
        assert [int(read(item)) for item in got] == list(range(count))
        assert alarms.raised


def _extend_until_end(got: list[Any], queue: Any) -> None:
    """An array cannot be compared: a box tells the end."""
    while not (got and type(got[-1]) is bytes):
        queue._get_into(got, True, PATIENCE)
    del got[-1]


@pytest.mark.parametrize("pause", [0.0, 0.0003], ids=["full", "empty"])
@pytest.mark.parametrize("way", ["receive", "iterate"])
def test_subscriber(way: str, pause: float, alarms: Alarms) -> None:
    with (
        ipc.Publisher("t", "i8") as pub,
        ipc.Subscriber("t", "i8", overflow="block", buffer=16) as sub,
    ):
        pub.wait_for_subscribers(1, PATIENCE)
        ended = threading.Event()

        def send() -> None:
            for number in range(COUNT):
                pub.send(np.int64(number), timeout=PATIENCE)
                if pause:
                    time.sleep(pause)
            while not ended.wait(0.01):
                with contextlib.suppress(TimeoutError):
                    pub.send(np.int64(-1), timeout=0.01)

        def take(got: list[Any]) -> None:
            if way == "receive":
                got.extend(iter(partial(sub.receive, PATIENCE), None))
            else:
                got.extend(sub)

        def all_came(got: list[Any]) -> bool:
            return bool(got) and got[-1].sequence >= COUNT

        with beside(send):
            try:
                got = alarms.take(take, all_came)
            finally:
                ended.set()
        assert [sample.sequence for sample in got] == list(range(got[-1].sequence + 1))
        assert [int(sample.value) for sample in got[:COUNT]] == list(range(COUNT))
        assert alarms.raised
        assert sub.lost == 0


def test_listener(alarms: Alarms) -> None:
    with ipc.Listener("e") as listener, ipc.Notifier("e") as notifier:

        def notify() -> None:
            for number in range(4096):
                notifier.notify(number)
                if number % 3 == 0:
                    time.sleep(0.0003)

        def take(got: list[Any]) -> None:
            got += (listener.wait(PATIENCE),)

        with beside(notify):
            got = alarms.take(take, lambda got: sum(map(len, got)) >= 4096)
        assert sorted(number for each in got for number in each) == list(range(4096))
        assert alarms.raised


def test_watch(alarms: Alarms) -> None:
    count = 120
    with ipc.watch() as watch:

        def come_and_go() -> None:
            for number in range(count // 2):
                ipc.Listener(f"e{number}").close()

        def take(got: list[Any]) -> None:
            got.extend(itertools.islice(watch, count - len(got)))

        with beside(come_and_go):
            got = alarms.take(take, enough(count))
    expected = [(f"e{n}", event) for n in range(count // 2) for event in ("came", "gone")]
    assert [(change.name, change.event) for change in got] == expected
    assert alarms.raised


def test_blackboard(alarms: Alarms) -> None:
    """Each version is written after the one before was returned: one that is lost is the last."""
    with ipc.Blackboard("b", {"n": "i8"}) as board, ipc.BlackboardReader("b") as reader:
        seen: list[Any] = []

        def write() -> None:
            for number in range(COUNT):
                end = time.monotonic() + PATIENCE
                while len(seen) < number and time.monotonic() < end:
                    time.sleep(0.0001)
                board["n"] = number

        def take(got: list[Any]) -> None:
            got += (reader.wait("n", timeout=PATIENCE / 4),)
            seen.append(None)

        def all_came(got: list[Any]) -> bool:
            seen[:] = got
            return len(got) >= COUNT

        with beside(write):
            got = alarms.take(take, all_came)
        assert got == list(range(COUNT))
        assert alarms.raised


@pytest.mark.parametrize("kind", [int, Slow])
def test_server(kind: Any, alarms: Alarms) -> None:
    """Each request is taken once, and its client gets the answer."""
    with ipc.Server("s", buffer=COUNT) as server, ipc.Client("s", buffer=COUNT) as client:
        first = client.send(kind(0))  # both know each other's memory before the first alarm
        server.receive(PATIENCE).respond(0)
        first.result(PATIENCE)
        pending = []

        def send() -> None:
            for number in range(COUNT):
                pending.append(client.send(kind(number)))

        def take(got: list[Any]) -> None:
            got += (server.receive(PATIENCE),)

        with beside(send):
            got = alarms.take(take, enough(COUNT))
        assert [request.value for request in got] == list(range(COUNT))
        for request in got:
            request.respond(-request.value)
        assert [each.result(PATIENCE).value for each in pending] == [-n for n in range(COUNT)]
        assert alarms.raised


@pytest.mark.parametrize("kind", [int, Slow])
def test_answers(kind: Any, alarms: Alarms) -> None:
    with ipc.Server("s", buffer=COUNT) as server, ipc.Client("s", buffer=COUNT) as client:
        pending = [client.send(number) for number in range(COUNT)]

        def take(got: list[Any]) -> None:
            got += (pending[len(got)].result(PATIENCE),)

        with beside(lambda: server.serve(lambda request: kind(request.value))):
            got = alarms.take(take, enough(COUNT))
            server.close()
        assert [answer.value for answer in got] == list(range(COUNT))
        assert alarms.raised


@pytest.mark.parametrize("kind", [int, Slow])
def test_stream(kind: Any, alarms: Alarms) -> None:
    def numbers(request: Any) -> Iterator[Any]:
        yield from map(kind, range(COUNT))

    with ipc.Server("s") as server, ipc.Client("s") as client:
        stream = client.stream()
        with beside(lambda: server.serve(numbers)):
            got = alarms.take(*once(lambda got: got.extend(stream)))
            server.close()
        assert [answer.value for answer in got] == list(range(COUNT))
        assert alarms.raised
