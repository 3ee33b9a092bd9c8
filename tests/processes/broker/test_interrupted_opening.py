# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises while an adapter is opened or closed: none stays at the broker."""

import functools
import gc
import itertools
import os
import sys
from collections.abc import Callable

import pytest

import shmnd
from interrupting import Alarm, inside, interrupted
from shmnd.broker.client import BrokerClient
from shmnd.broker.observer import visit
from shmnd.broker.place import place_of
from shmnd.common import steps
from shmnd.runtime.progress import ProgressEngine

_EVERY = 3
"""Of the places where a function of the package begins or has returned, every so many are tried."""


_PLACES = 40
"""Of the end of a life, so many places from its beginning on are tried."""


def _of_the_engine(path: str) -> bool:
    """Whether a file is of those that begin and end a session; others make its descriptors."""
    return path.endswith(("adapter.py", "progress.py", "exchange.py"))


def _open(opened: list[shmnd.Adapter]) -> None:
    opened += [shmnd.open_adapter()]


def adapters() -> int:
    """How many the broker knows."""
    with visit(place_of()) as observer:
        return 0 if observer is None else observer.counts()["adapters"]


@pytest.mark.parametrize("others", [0, 1], ids=["the first", "another"])
@pytest.mark.parametrize("closes", [False, True], ids=["opened", "closed"])
def test_no_adapter_stays(closes: bool, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors
    where = inside(shmnd) if others else _of_the_engine
    client = BrokerClient(key=os.urandom(16).hex())  # one broker serves the whole test
    held = [shmnd.open_adapter() for _ in range(others)]
    for at in itertools.count(0, _EVERY):
        opened = [shmnd.open_adapter()] if closes else []
        act = opened[0].close if closes else functools.partial(_open, opened)
        was = interrupted(at, act, where, Alarm)
        while opened:
            opened.pop().close()
        gc.collect()
        for adapter in held:
            adapter._engine.settle()  # an interrupted call may have ended the session: a new one
        assert bool(ProgressEngine._engines) == bool(others), f"interrupted at {at}"
        assert adapters() == others, f"interrupted at {at}"
        if not was:
            break
    for adapter in held:
        adapter.close()
    client.close()
    assert at > 9


@pytest.mark.parametrize("make", [shmnd.open_adapter, shmnd.listen])
def test_a_dropped_object_does_not_stay(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors
    client = BrokerClient(key=os.urandom(16).hex())
    for at in itertools.count(0):
        made = [make()]
        was = interrupted(at, made.clear, inside(shmnd), Alarm)
        assert not ProgressEngine._engines, f"interrupted at {at}"
        assert adapters() == 0, f"interrupted at {at}"
        if not was or at > _PLACES:
            break
    client.close()
    assert at > 9


def test_an_adapter_that_the_broker_has_just_taken_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handler(name: str) -> None:
        if name == "adapter-announced":
            raise Alarm

    with shmnd.open_adapter() as held:
        monkeypatch.setattr(steps, "reached", handler)
        with pytest.raises(Alarm):
            shmnd.open_adapter()
        held._engine.settle()
        assert adapters() == 1
