# SPDX-License-Identifier: Apache-2.0
"""Call whatever Python can reach of the objects of the interface, with arguments of every kind.

A program of its own, since what it looks for ends the process: `every_call.py STATE SEED`.
"""

import contextlib
import faulthandler
import functools
import inspect
import operator
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
from worlds import missing, world

import shmnd
import shmnd.nd1 as nd
from shmnd.messaging import messages as connection_messages
from shmnd.nd1 import messages
from shmnd.ring import loops
from shmnd.ring.process import counters, peer
from shmnd.ring.queues import completion_queue, posting, queue_pair, shared_receive_queue
from shmnd.ring.shared_memory import arena, registry, segment

PATIENCE = 0.05
"""Seconds after which a call that waits is interrupted."""
SKIPPED = {"__class__", "__dict__", "__doc__", "__getattribute__", "__init_subclass__",
           "__module__", "__subclasshook__", "__weakref__", "__annotations__", "__sizeof__",
           "__setattr__", "__delattr__", "__orig_bases__", "__parameters__",
           "__class_getitem__"}  # fmt: skip
ENDS = ("close", "shut", "disconnect", "release", "withdraw", "deregister", "cancel", "give",
        "abandon", "detach", "break", "forget", "__del__", "__exit__")  # fmt: skip
MODULES = (
    connection_messages,
    arena,
    loops,
    registry,
    peer,
    posting,
    queue_pair,
    completion_queue,
    shared_receive_queue,
    segment,
    counters,
    messages,
)


class Interrupted(BaseException):
    """A call waited for long enough."""


waiting = False
"""Whether a call runs that may be interrupted."""


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    if waiting:
        raise Interrupted


def within_reason(call: Callable[[], object]) -> None:
    """Make a call that may raise, and that is interrupted when it waits.

    The interpreter runs no signal handler between the end of a call and a plain assignment: no
    interrupt comes after the inner block.
    """
    global waiting
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
            waiting = True
            call()
        finally:
            waiting = False
    except (Exception, Interrupted, SystemExit):
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)


def half_made() -> Iterator[Any]:
    """Objects whose `__init__` never ran, of every class."""
    classes = {
        kind
        for module in (shmnd, nd, *MODULES)
        for kind in (getattr(module, name, None) for name in dir(module))
        if isinstance(kind, type) and kind.__module__.startswith("shmnd")
    }
    for kind in sorted(classes, key=lambda kind: (kind.__module__, kind.__name__)):
        if issubclass(kind, BaseException | int):
            continue
        for arguments in ((), (None,), (None, None), (b"x",)):
            with contextlib.suppress(Exception):
                yield kind.__new__(kind, *arguments)
                break


def arguments(chance: random.Random, objects: list[Any]) -> tuple[Any, ...]:
    numbers = (-1, 0, 1, 3, 17, 2**40, 2**62 + 1, 2**63, 2**64 - 1, 2**64, -(2**70))
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: chance.choice(numbers),
        lambda: chance.choice(numbers),
        lambda: chance.choice(objects),
        lambda: chance.choice(objects),
        lambda: chance.choice(
            ("", "send", "a\0b", "\ud800", b"", b"bytes", bytearray(300), object())
        ),
        lambda: chance.choice((float("nan"), float("inf"), -1.5, True, np.zeros(3))),
        lambda: [chance.choice(objects) for _ in range(chance.choice((1, 2, 17)))],
        lambda: tuple(chance.choice(numbers) for _ in range(2)),
        lambda: {
            "rbit": 0,
            "ibit": chance.choice(numbers),
            "receives": 1,
            "extents": 1,
            "requests": 1,
            "elements": 1,
        },
        lambda: print,
    )
    return tuple(chance.choice(kinds)() for _ in range(chance.choice((0, 0, 1, 1, 2, 3, 5, 7))))


def is_numpys(thing: object, name: str) -> bool:
    """Whether a method of an array is numpy's own: `repeat`, for one, crashes by a large number."""
    return isinstance(thing, np.ndarray) and name not in vars(type(thing))


def in_order(objects: list[Any], chance: random.Random) -> list[tuple[int, str]]:
    """Each attribute of each object, in any order; what ends something comes last."""
    every = [
        (any(word in name for word in ENDS), place, name)
        for place, thing in enumerate(objects)
        for name in dir(thing)
        if name not in SKIPPED and not is_numpys(thing, name)
    ]
    chance.shuffle(every)
    every.sort(key=lambda item: item[0])
    return [(place, name) for _, place, name in every]


def call_everything(objects: list[Any], chance: random.Random, rounds: int) -> int:
    """Call each attribute of each object."""
    every = in_order(objects, chance)
    calls = 0

    def call(thing: object, name: str) -> None:
        nonlocal calls
        attribute = getattr(thing, name)
        if callable(attribute):
            given = arguments(chance, objects)
            calls += 1
            step(attribute(*given))

    for _ in range(rounds):
        for place, name in every:
            within_reason(functools.partial(call, objects[place], name))
    return calls


def step(result: object) -> None:
    """Take the first step of a coroutine or an iterator that a call returned."""
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        finally:
            result.close()
    elif isinstance(result, Iterator):
        next(result)


def use(objects: list[Any]) -> None:
    """Make ordinary calls, and touch memory: neither crashes after the other calls."""
    for thing in objects:
        if isinstance(thing, memoryview | np.ndarray):
            for place in (0, -1):
                within_reason(functools.partial(operator.getitem, thing, place))
        for name in ("get_results", "flush", "close"):
            within_reason(functools.partial(operator.methodcaller(name), thing))


def main(state: str, seed: int) -> None:
    faulthandler.enable()
    chance = random.Random(seed)
    signal.signal(signal.SIGALRM, interrupt)
    objects = world(state)
    if absent := missing(objects):
        sys.exit(f"no object of {sorted(absent)}")
    half = list(half_made())
    functions = [shmnd, nd, *(module for module in MODULES if module is not segment)]
    if state == "forked":
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            sys.exit(os.waitstatus_to_exitcode(status) & 0x7F)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    calls = call_everything(half, chance, 1)
    calls += call_everything([*objects, *functions], chance, 2)
    use(objects)
    print(f"{calls} calls of {len(objects)} and {len(half)} objects", file=sys.stderr)
    if state == "forked":
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
