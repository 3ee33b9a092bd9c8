# SPDX-License-Identifier: Apache-2.0
"""A fault that the library answers itself keeps nothing alive until a collection of garbage."""

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from interrupting import interrupted
from shmnd.common.interruption import pass_on


class Kept:
    """What a call above the fault holds."""


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def of_one(name: str) -> str:
    try:
        raise FileNotFoundError(name)
    except OSError as exc:
        pass_on(exc)
        return ""


def of_two(name: str, other: object) -> str:
    try:
        raise FileNotFoundError(name)
    except OSError as exc:
        pass_on(exc)
        return str(other)


def of_any(*names: object) -> str:
    try:
        raise FileNotFoundError(*names)
    except OSError as exc:
        pass_on(exc)
        return str(names)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "swallow", [lambda: of_one("a"), lambda: of_two("a", 1), lambda: of_any("a", 1)]
)
def test_a_swallowed_fault_keeps_no_objects_of_its_callers(
    swallow: Callable[[], str],
) -> None:
    def caller() -> "weakref.ref[Kept]":
        kept = Kept()
        swallow()
        return weakref.ref(kept)

    assert caller()() is None


class Limit(OSError):
    """What a handler of a signal raises."""


def step() -> None:
    """A place for the handler."""


def of_a_step() -> None:
    try:
        step()
    except OSError as exc:
        pass_on(exc)


@pytest.mark.usefixtures("no_collection")
def test_an_interrupted_call_keeps_no_objects_of_its_callers() -> None:
    held: list[weakref.ref[Kept]] = []

    def caller() -> None:
        kept = Kept()
        held.append(weakref.ref(kept))
        of_a_step()

    places = 0
    while interrupted(places, caller, lambda path: path == __file__, Limit):
        places += 1
        assert not any(each() for each in held), places
    assert places > 2
