# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal runs at each place of a `close`: a second `close` ends the rest."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmnd
from census import open_files
from interrupting import Alarm, handled, inside, interrupted
from shmnd import ipc
from shmnd.ipc.common.namespace_adapter import NamespaceAdapter

PATIENCE = 30.0
WITHIN = inside(shmnd)
Case = tuple[Any, list[Any]]
"""An object that has been used, and those at its other side."""


@pytest.fixture(autouse=True)
def _other_adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have an engine that outlives the objects: it would end what they left."""
    faults: list[object] = []

    def in_destructor(what: Any) -> None:
        if not isinstance(what.exc_value, Alarm):
            faults.append(what.exc_value)

    monkeypatch.setattr(sys, "unraisablehook", in_destructor)
    with shmnd.open_adapter():
        yield
    assert not faults


def _first(make: Callable[[str], tuple[Any, Any]]) -> Callable[[str], Case]:
    """Return a case in which the first one of a pair is closed."""

    def case(name: str) -> Case:
        first, second = make(name)
        return first, [second]

    return case


def _second(make: Callable[[str], tuple[Any, Any]]) -> Callable[[str], Case]:
    """Return a case in which the second one is closed."""
    return _first(lambda name: make(name)[::-1])


def _topic(name: str) -> tuple[ipc.Publisher, ipc.Subscriber]:
    pub, sub = ipc.Publisher(name, "f8"), ipc.Subscriber(name, "f8")
    pub.wait_for_subscribers(1, PATIENCE)
    pub.send(np.zeros(100))
    sub.receive(PATIENCE).release()
    sub.fileno()
    return pub, sub


def _service(name: str) -> tuple[ipc.Server, ipc.Client]:
    server, client = ipc.Server(name), ipc.Client(name)
    pending = client.send(1)
    server.receive(PATIENCE).respond(2)
    assert pending.result(PATIENCE).value == 2
    server.fileno()
    client.fileno()
    return server, client


def _event(name: str) -> tuple[ipc.Notifier, ipc.Listener]:
    notifier, listener = ipc.Notifier(name), ipc.Listener(name)
    notifier.notify(3)
    assert listener.wait(PATIENCE) == {3}
    listener.fileno()
    return notifier, listener


def _board(name: str) -> tuple[ipc.Blackboard, ipc.BlackboardReader]:
    board, reader = ipc.Blackboard(name, {"x": "f8"}), ipc.BlackboardReader(name)
    board["x"] = 1.0
    assert reader.wait("x", timeout=PATIENCE) == 1
    reader.fileno()
    return board, reader


def _queues(name: str) -> tuple[Any, Any]:
    queue, other = ipc.Queue(name=name), ipc.Queue(name=name)
    queue.put(1)
    assert other.get(timeout=PATIENCE) == 1
    queue.fileno()
    return queue, other


def _wait_set(name: str) -> Case:
    sub, queue = ipc.Subscriber(name), ipc.Queue()
    made = ipc.WaitSet(sub, queue)
    assert not made.wait(0)
    return made, [sub, queue]


def _watch(name: str) -> Case:
    made = ipc.watch()
    return made, []


CASES: dict[str, Callable[[str], Case]] = {
    "publisher": _first(_topic),
    "subscriber": _second(_topic),
    "server": _first(_service),
    "client": _second(_service),
    "notifier": _first(_event),
    "listener": _second(_event),
    "writer": _first(_board),
    "reader": _second(_board),
    "queue": _first(_queues),
    "wait set": _wait_set,
    "watch": _watch,
}
LISTS = (ipc.topics, ipc.services, ipc.events, ipc.blackboards)
UNLISTED = ("reader", "queue", "wait set", "watch")


def _listed(name: str, role: str) -> bool:
    return any(role in each.counts for find in LISTS for each in find() if each.name == name)


def _raises(at: int, made: Any) -> bool:
    return interrupted(at, made.close, WITHIN, Alarm)


def _closes(at: int, made: Any) -> bool:
    return handled(at, made.close, WITHIN, made.close)


@pytest.mark.parametrize(
    ("handler", "step"), [(_raises, 1), (_closes, 4)], ids=["raises", "closes"]
)
@pytest.mark.parametrize("role", CASES)
def test_a_second_close_continues(
    role: str, handler: Callable[[int, Any], bool], step: int
) -> None:
    def left(at: int) -> tuple[list[str], bool]:
        """Have the handler run there; return the files open after the second close, and `came`."""
        name = f"closed-{os.getpid()}-{at}"
        made, others = CASES[role](name)
        assert _listed(name, role) or role in UNLISTED
        came = handler(at, made)
        made.close()
        assert not _listed(name, role), at
        for each in others:
            each.close()
        assert not NamespaceAdapter._all, at
        return open_files(), came

    never = 1 << 20
    left(never)  # what a process opens once is there from now on
    usual, _ = left(never)
    for at in itertools.count(0, step):
        files, came = left(at)
        assert len(files) <= len(usual), at
        if not came:
            break
    assert at > 5
