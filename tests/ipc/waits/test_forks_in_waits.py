# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal forks within a waiting call: its child does not continue that call.

The handler runs at one place of the call after the other. It causes what the call waits for, forks,
and waits for the child: so the child comes first, and would take what its parent waits for.

The child of a call in an event loop ends where the call does, or after a moment where it sleeps in
the loop: it has the epoll of its parent, and a loop that is closed there is the parent's, too.
"""

import asyncio
import contextlib
import os
import queue
import select
import selectors
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import shmnd
from interrupting import handled_where, inside
from shmnd import ipc
from shmnd.status import NdError

PATIENCE = 30.0
SOON = 0.2
"""Seconds until that comes which a call waits for, unless a handler causes it: more than a short
sleep takes."""
BRIEF = 0.02
"""Seconds within which a thread has answered a request, unless the machine is loaded."""
CHECKS = ("require_process", "require_caller", "__repr__")
"""Where a call compares the processes last; asyncio.run prints the result behind it."""
MOMENT, SHORT = 1.0, 0.1
"""Seconds in an event loop after which a child sleeps there: where none should, and where any may.
"""
SLEEPS, HANGS = 3, 4
"""How such a child ends, and one that neither sleeps there nor ends by itself."""
ENDS = {1: "the child got it", 2: "the child failed", SLEEPS: "it sleeps", HANGS: "it hangs"}
REFUSED = (ipc.Closed, NdError)

Case = tuple[Callable[[], Any], Callable[[], object], Any, Callable[[], bool]]
"""What waits, what causes what it waits for, what it returns, and whether that is still there: a
child that is forked afterwards has what its parent has."""


def always() -> bool:
    return True


class Child:
    """The end of a child within an event loop."""

    leave: Callable[[BaseException | None], object]


def in_loop(make: Callable[[], Awaitable[Any]]) -> Any:
    """Await in a loop of its own."""

    async def main() -> Any:
        me, end = os.getpid(), None
        try:
            return await make()
        except BaseException as exc:
            end = exc
            raise
        finally:
            if os.getpid() != me:
                Child.leave(end)

    return asyncio.run(main())


@contextlib.contextmanager
def queue_get(name: str) -> Iterator[Case]:
    with ipc.Queue(4) as q:
        yield lambda: q.get(timeout=PATIENCE), lambda: q.put("item"), "item", always
        assert q.empty()


@contextlib.contextmanager
def queue_put(name: str) -> Iterator[Case]:
    """The item of the parent is put once; its memory is put by no other process."""
    with ipc.Queue(1) as q:
        q.put(["first"])

        def put() -> Any:
            q.put(["second"], timeout=PATIENCE)
            return q.get(timeout=PATIENCE)

        yield put, lambda: q.get(), ["second"], always
        with pytest.raises(queue.Empty):
            q.get(timeout=0.001)  # not in the call: a child would have no item to be refused


@contextlib.contextmanager
def server_receive(name: str) -> Iterator[Case]:
    with ipc.Server(name) as server, ipc.Client(name) as client:
        sent: list[Any] = []
        yield (
            lambda: server.receive(PATIENCE).value,
            lambda: sent.append(client.send("ask")),
            "ask",
            lambda: not server._requests.empty(),
        )


@contextlib.contextmanager
def server_serve(name: str) -> Iterator[Case]:
    with ipc.Server(name) as server, ipc.Client(name) as client:
        got: list[Any] = []
        sent: list[Any] = []

        def answer(request: Any) -> None:
            got.append(request.value)
            server.close()

        def serve() -> Any:
            server.serve(answer)
            return got

        yield (
            serve,
            lambda: sent.append(client.send("ask")),
            ["ask"],
            lambda: not server._closed and not server._requests.empty(),
        )


@contextlib.contextmanager
def pending_result(name: str) -> Iterator[Case]:
    with ipc.Server(name) as server, ipc.Client(name) as client:
        pending = client.send("ask")
        request = server.receive(PATIENCE)
        yield (
            lambda: pending.result(PATIENCE).value,
            lambda: request.respond("answer"),
            "answer",
            lambda: not client._answers.empty(),
        )


@contextlib.contextmanager
def subscriber_receive(name: str) -> Iterator[Case]:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, "i8") as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        yield lambda: int(sub.receive(PATIENCE).value), lambda: pub.send(5), 5, always
        assert sub.held == 0


@contextlib.contextmanager
def listener_wait(name: str) -> Iterator[Case]:
    with ipc.Listener(name) as listener, ipc.Notifier(name) as notifier:
        yield lambda: listener.wait(PATIENCE), lambda: notifier.notify(3), {3}, always


@contextlib.contextmanager
def reader_wait(name: str) -> Iterator[Case]:
    with ipc.Blackboard(name, {"x": "f8"}) as board, ipc.BlackboardReader(name) as reader:

        def write() -> None:
            board["x"] = 1.5

        yield lambda: float(reader.wait("x", timeout=PATIENCE)), write, 1.5, always


@contextlib.contextmanager
def wait_set(name: str) -> Iterator[Case]:
    with (
        ipc.Listener(name) as listener,
        ipc.Notifier(name) as notifier,
        ipc.WaitSet(listener) as waits,
    ):
        yield (
            lambda: [type(each) for each in waits.wait(PATIENCE)],
            lambda: notifier.notify(3),
            [ipc.Listener],
            always,
        )


@contextlib.contextmanager
def queue_aget(name: str) -> Iterator[Case]:
    with ipc.Queue(4) as q:
        yield lambda: in_loop(lambda: q.aget(PATIENCE)), lambda: q.put("item"), "item", always
        assert q.empty()


@contextlib.contextmanager
def queue_aput(name: str) -> Iterator[Case]:
    with ipc.Queue(1) as q:
        q.put(["first"])

        async def put() -> Any:
            await q.aput(["second"], PATIENCE)
            found = [q.get(timeout=PATIENCE)]
            with contextlib.suppress(queue.Empty):
                found.append(q.get(timeout=0.001))
            return found

        yield lambda: in_loop(put), lambda: q.get(), [["second"]], always


@contextlib.contextmanager
def server_areceive(name: str) -> Iterator[Case]:
    with ipc.Server(name) as server, ipc.Client(name) as client:
        sent: list[Any] = []

        async def receive() -> Any:
            return (await server.areceive(PATIENCE)).value

        yield (
            lambda: in_loop(receive),
            lambda: sent.append(client.send("ask", PATIENCE)),
            "ask",
            lambda: not server._requests.empty(),
        )


@contextlib.contextmanager
def pending_await(name: str) -> Iterator[Case]:
    with ipc.Server(name) as server, ipc.Client(name) as client:
        pending = client.send("ask", PATIENCE)
        request = server.receive(PATIENCE)

        async def result() -> Any:
            return (await pending).value

        yield (
            lambda: in_loop(result),
            lambda: request.respond("answer"),
            "answer",
            lambda: not client._answers.empty(),
        )


@contextlib.contextmanager
def asked(name: str, requests: int, make: Callable[[ipc.Client], Any]) -> Iterator[Case]:
    """Answer so many requests of a call, each of which is received once; there is room for one."""
    with ipc.Server(name, buffer=1) as server, ipc.Client(name, buffer=1) as client:
        got: list[Any] = []

        def answer() -> None:
            for _ in range(requests):
                request = server.receive(PATIENCE)
                got.append(request.value)
                request.respond(f"answer to {request.value}")

        answering = threading.Thread(target=answer)

        def begin() -> None:
            answering.start()
            answering.join(BRIEF)  # it may need a request that the call has not sent yet

        yield (
            lambda: [make(client), answering.join(), got][::2],
            begin,
            [f"answer to {requests - 1}", list(range(requests))],
            lambda: not client._answers.empty(),
        )
        with pytest.raises(TimeoutError):
            server.receive(0.001)


def client_acall(name: str) -> Any:
    async def call(client: ipc.Client) -> Any:
        return (await client.acall(0, PATIENCE)).value

    return asked(name, 1, lambda client: in_loop(lambda: call(client)))


def client_acall_of_a_full_queue(name: str) -> Any:
    async def call(client: ipc.Client) -> Any:
        first = client.send(0)
        return (await client.acall(1, PATIENCE)).value, first

    return asked(name, 2, lambda client: in_loop(lambda: call(client))[0])


def unsent_await(name: str) -> Any:
    async def call(client: ipc.Client) -> Any:
        pending = [client.send(number) for number in range(2)]
        return [(await each).value for each in pending][-1]

    return asked(name, 2, lambda client: in_loop(lambda: call(client)))


def unsent_result(name: str) -> Any:
    async def call(client: ipc.Client) -> Any:
        pending = [client.send(number) for number in range(2)]
        return [each.result(PATIENCE).value for each in pending][-1]

    return asked(name, 2, lambda client: in_loop(lambda: call(client)))


@contextlib.contextmanager
def subscriber_areceive(name: str) -> Iterator[Case]:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, "i8") as sub:
        pub.wait_for_subscribers(1, PATIENCE)

        async def receive() -> int:
            with await sub.areceive(PATIENCE) as sample:
                return int(sample.value)

        yield lambda: in_loop(receive), lambda: pub.send(5), 5, always
        assert sub.held == 0


@contextlib.contextmanager
def listener_await_ids(name: str) -> Iterator[Case]:
    with ipc.Listener(name) as listener, ipc.Notifier(name) as notifier:
        yield (
            lambda: in_loop(lambda: listener.await_ids(PATIENCE)),
            lambda: notifier.notify(3),
            {3},
            always,
        )


@contextlib.contextmanager
def reader_await_change(name: str) -> Iterator[Case]:
    with ipc.Blackboard(name, {"x": "f8"}) as board, ipc.BlackboardReader(name) as reader:

        def write() -> None:
            board["x"] = 1.5

        yield (
            lambda: float(in_loop(lambda: reader.await_change("x", timeout=PATIENCE))),
            write,
            1.5,
            always,
        )


@contextlib.contextmanager
def wait_set_await_ready(name: str) -> Iterator[Case]:
    with (
        ipc.Listener(name) as listener,
        ipc.Notifier(name) as notifier,
        ipc.WaitSet(listener) as waits,
    ):
        yield (
            lambda: [type(each) for each in in_loop(lambda: waits.await_ready(PATIENCE))],
            lambda: notifier.notify(3),
            [ipc.Listener],
            always,
        )


CASES = [
    queue_get, queue_put, server_receive, server_serve, pending_result,
    subscriber_receive, listener_wait, reader_wait, wait_set,
]  # fmt: skip
IN_LOOPS = [
    queue_aget, queue_aput, server_areceive, pending_await, client_acall,
    client_acall_of_a_full_queue, unsent_await, unsent_result,
    subscriber_areceive, listener_await_ids, reader_await_change, wait_set_await_ready,
]  # fmt: skip
ASKED = [client_acall, client_acall_of_a_full_queue, unsent_await, unsent_result]
"""Those of which a run has many places, so that fewer of them are tried."""
SLEEPING = [each for each in IN_LOOPS if each not in (subscriber_areceive, unsent_result)]
"""Those whose child may sleep in the loop, which is that of its parent and does not wake it."""


def end_sleep(case: Any) -> None:
    """End a child once it sleeps in its loop; one that does neither that nor end by itself hangs.

    Where a child may sleep, a short look is enough: there are many of them.
    """
    moment = SHORT if case in SLEEPING else MOMENT
    began = asleep = time.monotonic()
    while asleep - began < PATIENCE / 2:
        time.sleep(moment / 4)
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        now = time.monotonic()
        if frame.f_code.co_filename != selectors.__file__:
            asleep = now
        elif now - asleep >= moment:
            os._exit(SLEEPS)
    os._exit(HANGS)


def attempt(case: Any, at: int, name: str, package: Any = shmnd) -> bool:
    """Run a call with a handler at its `at`-th place; return whether it came there."""
    with case(name) as (call, cause, wanted, there):
        me = os.getpid()
        caused = threading.Lock()
        child: list[int] = []
        taken = False

        def cause_once() -> None:
            if caused.acquire(blocking=False):
                cause()

        def fork() -> None:
            nonlocal taken
            cause_once()
            taken = not there()
            child.append(os.fork())
            if child[0] == 0 and case in IN_LOOPS:
                threading.Thread(target=end_sleep, args=(case,), daemon=True).start()
            if child[0] != 0:
                ready = os.pidfd_open(child[0])
                assert select.select([ready], [], [], PATIENCE)[0], "the child hangs"
                os.close(ready)

        later = threading.Timer(SOON, cause_once)
        later.daemon = True
        later.start()
        got: list[Any] = []
        end: BaseException | None = None

        def run() -> None:
            got.append(call())

        def leave(end: BaseException | None) -> None:
            os._exit(0 if isinstance(end, REFUSED) or (end is None and taken) else 2 - (not end))

        Child.leave = leave
        places = inside(package)

        def place(frame: FrameType, event: str) -> bool:
            within = places(frame.f_code.co_filename) and frame.f_code.co_name not in CHECKS
            return event in ("call", "c_return") and within

        came = False
        try:
            came = handled_where(at, run, place, fork)
        except BaseException as exc:
            end = exc
            came = True
        if os.getpid() != me:
            leave(end)
        later.cancel()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child[0], 0)[1])
            ended = code == 0 or (code == SLEEPS and case in SLEEPING)
            assert ended, f"place {at}: {ENDS.get(code, code)}"
        assert end is None, f"place {at}: {end!r}"
        assert got == [wanted], f"place {at}"
        return came


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize(
    ("first", "step"), [(0, 9), pytest.param(0, 1, marks=pytest.mark.further)], ids=["some", "all"]
)
def test_a_child_takes_nothing_of_its_parent(case: Any, first: int, step: int) -> None:
    at = first
    while attempt(case, at, f"forks-{os.getpid()}-{at}"):
        at += step
    assert at > first


@pytest.mark.parametrize("case", IN_LOOPS, ids=lambda case: case.__name__)
@pytest.mark.parametrize(
    ("first", "step"), [(1, 4), pytest.param(1, 1, marks=pytest.mark.further)], ids=["some", "all"]
)
def test_a_child_takes_nothing_in_an_event_loop_either(case: Any, first: int, step: int) -> None:
    at = first
    while attempt(case, at, f"forks-{os.getpid()}-{at}", ipc):
        at += step * 3 if case in ASKED and step > 1 else step
    assert at > first
