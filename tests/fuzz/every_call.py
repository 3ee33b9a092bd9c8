# SPDX-License-Identifier: Apache-2.0
"""Call whatever Python can reach of the objects of the interface, with arguments of every kind.

A program of its own, since what it looks for ends the process: `every_call.py STATE SEED`.
"""

import contextlib
import faulthandler
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

import shmnd
import shmnd.nd1 as nd
from shmnd import MrFlag
from shmnd.messaging import messages as connection_messages
from shmnd.nd1 import messages
from shmnd.ring import loops
from shmnd.ring.process import counters, peer
from shmnd.ring.queues import completion_queue, posting, queue_pair, shared_receive_queue
from shmnd.ring.shared_memory import arena, registry, segment

WAIT = 10.0
PATIENCE = 0.05
"""Seconds after which a call that waits is interrupted."""
STATES = ("fresh", "connecting", "connected", "busy", "disconnected", "closed", "adapter", "forked")
SKIPPED = {"__class__", "__dict__", "__doc__", "__getattribute__", "__init_subclass__",
           "__module__", "__subclasshook__", "__weakref__", "__annotations__", "__sizeof__",
           "__setattr__", "__delattr__", "__orig_bases__", "__parameters__",
           "__class_getitem__"}  # fmt: skip
ENDS = ("close", "shut", "disconnect", "release", "withdraw", "deregister", "cancel", "give",
        "abandon", "detach", "break", "linger", "forget", "__del__", "__exit__")  # fmt: skip
COMPILED = ("shmnd.ring", "shmnd.nd1.messages", "shmnd.messaging.messages")
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


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise Interrupted


@contextlib.contextmanager
def within_reason() -> Iterator[None]:
    """Let the block raise, and wait no longer than it must."""
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
    try:
        yield
    except (Exception, Interrupted, SystemExit):
        pass
    finally:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except Interrupted:
                pass


class End:
    """One end of a connection, and everything else that an adapter makes."""

    def __init__(self, host: str) -> None:
        self.adapter = shmnd.open_adapter(host)
        self.file = self.adapter.create_overlapped_file()
        self.cq = self.adapter.create_completion_queue(64, overlapped_file=self.file)
        self.srq = self.adapter.create_shared_receive_queue(16, 4, 2)
        self.qp = self.adapter.create_queue_pair(self.cq, self.cq, inline_size=64)
        self.sharing = self.adapter.create_queue_pair_with_srq(self.cq, self.cq, self.srq)
        self.region = self.adapter.create_memory_region()
        self.array = self.adapter.allocate(4096)
        self.flags = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
        self.region.register(self.array, self.flags)
        self.private = self.adapter.create_memory_region()
        self.private.register(bytearray(1 << 20), self.flags)
        self.window = self.adapter.create_memory_window()
        self.connector = self.adapter.create_connector(overlapped_file=self.file)
        self.listener = self.adapter.create_listener()
        self.sge = self.region.sge(0, 64)
        self.notified = self.cq.notify()


def world(state: str) -> list[Any]:
    """Make the objects, and bring them into a state."""
    here, there = End("127.0.0.1"), End("127.0.0.1")
    there.listener.bind(("127.0.0.1", 0))
    there.listener.listen()
    if state != "fresh":
        asked = there.listener.get_connection_request(there.connector)
        connecting = here.connector.connect(here.qp, there.listener.get_local_address())
        asked.result(WAIT)
        if state != "connecting":
            accepted = there.connector.accept(there.qp)
            connecting.result(WAIT)
            here.connector.complete_connect().result(WAIT)
            accepted.result(WAIT)
    if state in ("busy", "disconnected", "closed", "adapter", "forked"):
        for end in (here, there):
            end.qp.receive(end.region.sge(64, 64), end)
            end.qp.bind(end.region, end.window, end.region.address, 64, flags=3)
            end.qp.send(end.sge, end)
            end.qp.send(end.private.sge(), "long")
            end.qp.write(end.sge, 4096, 4711)
    if state == "disconnected":
        here.connector.disconnect()
    taken = [result for end in (here, there) for result in end.cq.get_results(2)]
    if state == "closed":
        for closing in (here.qp, here.cq, here.srq, here.region, here.private, here.window):
            closing.close()
    if state == "adapter":
        here.adapter.close()
    objects: list[Any] = [here, there]
    found = [
        thing
        for end in (here, there)
        for thing in (*vars(end).values(), *reached(end))
        if type(thing).__module__.startswith("shmnd")
    ]
    found += taken
    carried = connection_messages.Messages(here.adapter, 4096, 2) if state != "adapter" else None
    if carried is not None and state == "fresh":
        carried.post(here.sharing if here.sharing.context else here.qp, here.cq)
        carried.agree(2, 4096)
    found += [carried]
    first = nd.Provider().open_adapter("127.0.0.1")
    entries = first.create_completion_queue(16)
    connector = first.create_connector()
    endpoint = connector.create_endpoint(entries, entries, 4, 4, 1, 1)
    array = first.allocate(4096)
    handle, _ = first.register_memory(array)
    found += [first, entries, connector, endpoint, first.create_memory_window(), nd.Result()]
    found += [nd.Sge(array, 64, handle), nd.MwDescriptor(1, 2, 3), first.listen(), endpoint._pair]
    objects[0].others = found  # kept
    return found


def reached(end: End) -> Iterator[Any]:
    """Compiled objects behind those of the interface."""
    seen: set[int] = set()
    todo: list[tuple[Any, int]] = [(thing, 0) for thing in vars(end).values()]
    while todo:
        thing, depth = todo.pop()
        if id(thing) in seen or depth > 5:
            continue
        seen.add(id(thing))
        if type(thing).__module__.startswith(COMPILED):
            yield thing
        if isinstance(thing, list | tuple | dict):
            items = thing.values() if isinstance(thing, dict) else thing
            todo += [(item, depth + 1) for item in items]
        elif type(thing).__module__.startswith("shmnd."):
            for name in dir(thing):
                if not name.startswith("__"):
                    with contextlib.suppress(Exception):
                        todo.append((getattr(thing, name), depth + 1))


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
        lambda: chance.choice(("", "send", "a\0b", b"", b"bytes", bytearray(300), object())),
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


def call_everything(objects: list[Any], chance: random.Random, rounds: int) -> int:
    """Call each attribute of each object; what ends something comes last."""
    every = [
        (any(word in name for word in ENDS), place, name)
        for place, thing in enumerate(objects)
        for name in dir(thing)
        if name not in SKIPPED and not is_numpys(thing, name)
    ]
    chance.shuffle(every)
    every.sort(key=lambda item: item[0])
    calls = 0
    for _ in range(rounds):
        for _, place, name in every:
            with within_reason():
                attribute = getattr(objects[place], name)
                if callable(attribute):
                    given = arguments(chance, objects)
                    calls += 1
                    attribute(*given)
    return calls


def use(objects: list[Any]) -> None:
    """Whatever was done to them, ordinary calls do not crash either."""
    for thing in objects:
        for name in ("get_results", "flush", "close"):
            with within_reason():
                getattr(thing, name)()


def main(state: str, seed: int) -> None:
    faulthandler.enable()
    chance = random.Random(seed)
    signal.signal(signal.SIGALRM, interrupt)
    objects = world(state)
    half = list(half_made())
    functions = [module for module in MODULES if module is not segment]
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
