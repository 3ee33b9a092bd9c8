# SPDX-License-Identifier: Apache-2.0
"""A process that is killed between a change and its ring, or with what others wait for.

The waiter sleeps long by then, does not run (its context switches are counted), and wakes up.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ipc.sleeping import rest
from shmnd import ipc
from shmnd.ipc.service import streaming as of_streams
from shmnd.ipc.service import turns, under_way

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# -- what the children do: prepare, say so, and die at once when told --


def put_silently(there: Any, go: Any, q: Any) -> None:
    ref = q._core.pack("left")
    there.set()
    go.wait(PATIENCE)
    assert q._core.push([ref], False)
    die()


def take_half(there: Any, go: Any, q: Any) -> None:
    """Take the item of the first slot, and do no further step."""
    q._core.pack(0)
    slots = struct.unpack("Q", os.pread(q._core.fd, 8, 48))[0]
    there.set()
    go.wait(PATIENCE)
    os.pwrite(q._core.fd, struct.pack("Q", 2 | q._core.me << 2), slots)
    die()


def take_whole(there: Any, go: Any, q: Any) -> None:
    q.get(timeout=PATIENCE)
    there.set()
    go.wait(PATIENCE)
    die()


def signal_silently(there: Any, go: Any, name: str) -> None:
    notifier = ipc.Notifier(name)
    table = notifier._table
    assert table is not None
    there.set()
    go.wait(PATIENCE)
    table.words.signal_each([table.signals_of(member) for member in table.members()], 7)
    die()


def write_silently(there: Any, go: Any, name: str) -> None:
    board = ipc.Blackboard(name, {"x": "f8"})
    found = board._keys["x"]
    there.set()
    go.wait(PATIENCE)
    words, array = found.fresh()
    array[...] = 2.5
    board._words.write_cell(found.offset, words)
    die()


def take_request(there: Any, go: Any, name: str) -> None:
    server = ipc.Server(name)
    request = server.receive(PATIENCE)
    there.set()
    go.wait(PATIENCE)
    assert request.value == 1
    die()


def take_request_silently(there: Any, go: Any, name: str) -> None:
    """Take a request, and announce nothing to its client."""
    with ipc.Server(name) as server:
        server._requests.get(timeout=PATIENCE)
        there.set()
        go.wait(PATIENCE)
        die()


def ask_for_stream(there: Any, go: Any, name: str) -> None:
    client = ipc.Client(name)
    stream = client.stream(1)
    there.set()
    go.wait(PATIENCE)
    assert stream is not None
    die()


# -- the waiters --


class Case:
    """A child, a wait of this process as a thread and as a task, and what it is to bring."""

    def __init__(self, target: Any, argument: Any) -> None:
        self.there, self.go = FORK.Event(), FORK.Event()
        self.child = FORK.Process(target=target, args=(self.there, self.go, argument))
        self.objects: list[Any] = []

    def start(self) -> None:
        self.child.start()

    def ready(self) -> None:
        assert self.there.wait(PATIENCE)

    wait: Callable[[], Any]
    await_: Callable[[], Any]
    check: Callable[[Any], bool]


def getting() -> Case:
    q = ipc.Queue()
    case = Case(put_silently, q)
    case.start()
    case.ready()
    case.wait, case.await_, case.check = q.get, q.aget, lambda found: found == "left"
    case.objects = [q]
    return case


def putting() -> Case:
    q = ipc.Queue(1)
    q.put(1)
    case = Case(take_half, q)
    case.start()
    case.ready()
    case.wait, case.await_ = lambda: q.put(2), lambda: q.aput(2)
    case.check = lambda found: found is None and q.get(timeout=PATIENCE) == 2
    case.objects = [q]
    return case


def joining() -> Case:
    q = ipc.JoinableQueue()
    q.put(1)
    case = Case(take_whole, q)
    case.start()
    case.ready()
    case.wait, case.check = q.join, lambda found: found is None
    case.objects = [q]
    return case


def listening() -> Case:
    listener = ipc.Listener("e")
    case = Case(signal_silently, "e")
    case.start()
    case.ready()
    case.wait, case.await_, case.check = (
        listener.wait,
        listener.await_ids,
        lambda found: found == {7},
    )
    case.objects = [listener]
    return case


def reading() -> Case:
    case = Case(write_silently, "b")
    case.start()
    case.ready()
    reader = ipc.BlackboardReader("b")
    case.wait, case.await_ = lambda: reader.wait("x"), lambda: reader.await_change("x")
    case.check = lambda found: found == 2.5
    case.objects = [reader]
    return case


def asking(target: Any = take_request) -> Case:
    client = ipc.Client("s")
    case = Case(target, "s")
    pending = client.send(1)
    case.start()
    case.ready()

    async def result() -> Any:
        return await pending

    case.wait, case.await_ = pending.result, result
    case.check = lambda found: isinstance(found, ipc.PeerLost)
    case.objects = [client]
    return case


def asking_one_that_says_nothing() -> Case:
    return asking(take_request_silently)


def streaming() -> Case:
    server = ipc.Server("s")
    case = Case(ask_for_stream, "s")
    case.start()
    case.ready()
    request = server.receive(PATIENCE)
    case.wait = lambda: request.stream(range(1000))
    case.await_ = lambda: request.astream(range(1000))
    case.check = lambda found: isinstance(found, ipc.PeerLost)
    case.objects = [server]
    return case


def serving() -> Case:
    server = ipc.Server("s")
    case = Case(ask_for_stream, "s")
    case.start()
    case.ready()

    def values(request: ipc.Request) -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            server.close()  # so that it serves no longer

    case.wait = lambda: server.serve(values)
    case.check = lambda found: found is None
    case.objects = [server]
    return case


@contextlib.contextmanager
def waiting(wait: Callable[[], Any]) -> Iterator[tuple[threading.Thread, list[Any]]]:
    """Wait in a thread, which has the number of the kernel as its name."""
    found: list[Any] = []
    begun = threading.Event()

    def run() -> None:
        thread.name = str(threading.get_native_id())
        begun.set()
        try:
            found.append(wait())
        except ipc.PeerLost as exc:
            found.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    yield thread, found
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it still waits"


CASES = [
    getting, putting, joining, listening, reading, asking, asking_one_that_says_nothing, streaming,
    serving,
]  # fmt: skip
NOT_OF_TASKS = (joining, serving)
"""`join` has no form for tasks, as in multiprocessing; generators are for threads."""


@pytest.mark.parametrize(
    ("make", "how"),
    [
        pytest.param(make, how, id=f"{make.__name__}-{how}")
        for make in CASES
        for how in ("thread", "task")
        if how == "thread" or make not in NOT_OF_TASKS
    ],
)
def test_a_death_ends_a_wait_that_does_not_poll(
    make: Callable[[], Case], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a client, and the server of a stream, find the death by a poll that is rare.
    monkeypatch.setattr(under_way, "UNCLAIMED", 3600.0)
    monkeypatch.setattr(of_streams, "PATIENCE", 3600.0)
    monkeypatch.setattr(turns, "PATIENCE", 3600.0)
    case = make()
    try:

        def wait() -> Any:
            if how == "thread":
                return case.wait()

            async def main() -> Any:
                return await case.await_()

            return asyncio.run(main())

        with waiting(wait) as (thread, found):
            try:
                assert rest([int(thread.name)], 2, PATIENCE / 2), "it polls"
                assert thread.is_alive()
            finally:
                case.go.set()
        assert case.check(found[0]), found
    finally:
        case.child.kill()
        case.child.join()
        for each in case.objects:
            each.close()


def test_the_last_of_many_deaths_ends_a_join() -> None:
    """The deaths fall into every step of a joiner that wakes up, reaps and sleeps again."""
    q = ipc.JoinableQueue()
    cases = [Case(take_whole, q) for _ in range(12)]
    for each in cases:
        q.put(1)
        each.start()
    for each in cases:
        each.ready()
    with waiting(q.join):
        time.sleep(0.3)
        for number, each in enumerate(cases):
            each.go.set()
            time.sleep(0.0004 * number)
    for each in cases:
        each.child.join()
    assert q._core.unfinished() == 0
    q.close()


def test_a_member_of_a_dead_ones_number_is_not_taken_for_it() -> None:
    """A client whose server died does not wait for the next process with its member number."""
    with ipc.Client("s") as client:
        case = Case(take_request, "s")
        pending = client.send(1)
        case.start()
        case.ready()
        client._take_answers()
        case.go.set()
        case.child.join()
        with ipc.Server("s", buffer=8):
            successor = FORK.Process(target=hold_member, args=(client._answers, case.there))
            case.there.clear()
            successor.start()
            case.ready()
            with pytest.raises(ipc.PeerLost):
                pending.result(PATIENCE)
            successor.kill()
            successor.join()


def hold_member(q: Any, there: Any) -> None:
    q._core.pack(0)  # takes the first free number
    there.set()
    time.sleep(PATIENCE)
