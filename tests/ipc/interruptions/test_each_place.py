# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises at each place of a wait, and the next wait has what that took."""

import asyncio
import itertools
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

import shmnd
from interrupting import handled, inside, interrupted
from shmnd import ipc

PATIENCE = 20.0
Wait = Callable[[], int]
Post = Callable[[int], None]
Made = Callable[[str], AbstractContextManager[tuple[Post, Wait, Wait]]]


@contextmanager
def numbers(how: str) -> Iterator[tuple[Post, Wait, Wait]]:
    with ipc.Notifier("e") as notifier, ipc.Listener("e") as listener:

        def one(found: set[int]) -> int:
            (number,) = found
            return number

        loop = iter(listener)

        async def in_a_loop() -> int:
            async for found in listener:
                return one(found)
            raise AssertionError("the loop has ended")

        waits: dict[str, Wait] = {
            "wait": lambda: one(listener.wait(PATIENCE)),
            "for": lambda: one(next(loop)),
            "await": lambda: one(asyncio.run(listener.await_ids(PATIENCE))),
            "async for": lambda: asyncio.run(in_a_loop()),
        }
        yield notifier.notify, waits[how], lambda: one(listener.wait(0))


@contextmanager
def values(how: str) -> Iterator[tuple[Post, Wait, Wait]]:
    with ipc.Blackboard("b", {"n": "i8"}) as board, ipc.BlackboardReader("b") as reader:

        def post(number: int) -> None:
            board["n"] = number

        waits: dict[str, Wait] = {
            "wait": lambda: int(reader.wait("n", timeout=PATIENCE)),
            "await": lambda: int(asyncio.run(reader.await_change("n", timeout=PATIENCE))),
        }
        yield post, waits[how], lambda: int(reader.wait("n", timeout=0))


@pytest.mark.parametrize(
    ("made", "how"),
    [
        *((numbers, how) for how in ("wait", "for", "await", "async for")),
        *((values, how) for how in ("wait", "await")),
    ],
)
def test_the_next_wait_has_it(made: Made, how: str) -> None:
    with made(how) as (post, wait, wait_again):
        for place in itertools.count():
            post(place)
            got: list[int] = []
            raised = interrupted(place, lambda got=got: got.append(wait()), inside(shmnd))
            assert got or wait_again() == place
            if not raised:
                break
        assert place > 5
        assert got == [place]


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, ConnectionError])
def test_what_a_handler_raises_within_a_wait_for_a_value_is_the_programs(
    kind: type[Exception],
) -> None:
    """Also where the wait handles errors of this kind: a key or a writer that is not there."""

    def on_alarm(number: int, frame: object) -> None:  # known by its parameters
        raise kind("of the program")

    with ipc.Blackboard("b", {"n": "i8"}) as board, ipc.BlackboardReader("b") as reader:
        for at in itertools.count():
            board["n"] = at
            raised: list[Exception] = []

            def wait(raised: list[Exception] = raised) -> None:
                try:
                    reader.wait("n", timeout=0)
                except Exception as exc:
                    raised.append(exc)

            came = handled(at, wait, inside(shmnd), lambda: on_alarm(signal.SIGALRM, None))
            if not came:
                break
            assert [str(each.args[0]) for each in raised] == ["of the program"], at
    assert at > 10, "there were places to interrupt"


Ends = tuple[Any, Any, Callable[[], None], Callable[[], object], Callable[[float], Any]]
"""A receiver, the other end, what wakes the receiver, what calms its descriptor, and a wait."""


def listener() -> Ends:
    sink, source = ipc.Listener("e"), ipc.Notifier("e")
    calm = partial(sink.wait, 0)
    return sink, source, partial(source.notify, 1), calm, lambda left: sink.await_ids(left)


def reader() -> Ends:
    board = ipc.Blackboard("b", {"n": "i8"})
    sink = ipc.BlackboardReader("b")

    def post() -> None:
        board["n"] = 1

    post()
    assert sink["n"] == 1
    return sink, board, post, sink.ready, lambda left: sink.await_change("n", timeout=left)


def in_vain(wait: Callable[[float], Any]) -> None:
    with suppress(TimeoutError):
        asyncio.run(wait(0.01))


@pytest.mark.parametrize("how", ["await", "fileno"])
@pytest.mark.parametrize("make", [listener, reader])
def test_the_wait_after_an_interrupted_one_is_woken(make: Callable[[], Ends], how: str) -> None:
    """The handler raises also where the first one makes what the other end rings."""
    for at in itertools.count():
        sink, other, post, calm, wait = make()
        with sink, other:
            if how == "fileno":
                came = interrupted(at, sink.fileno, inside(ipc))
                for _ in range(4):  # a first ring may be there
                    calm()
                post()
                assert select.select([sink.fileno()], [], [], PATIENCE)[0], at
            else:
                came = interrupted(at, partial(in_vain, wait), inside(ipc))
                later = threading.Timer(0.03, post)
                later.start()
                begun = time.monotonic()
                assert asyncio.run(wait(PATIENCE)), at
                assert time.monotonic() - begun < PATIENCE / 2, f"woken by its time-out, at {at}"
                later.join()
        if not came:
            break
    assert at > 10, "there were places to interrupt"
