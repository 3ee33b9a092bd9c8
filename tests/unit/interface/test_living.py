# SPDX-License-Identifier: Apache-2.0
"""Objects that several threads add, end and go through."""

import sys
import weakref
from types import FrameType
from typing import Any

import pytest

from shmnd import ipc
from shmnd.common.weak import Living, without_owner


class Thing:
    pass


def test_a_living_object_is_there_once() -> None:
    living: Living[Thing] = Living()
    one, two = Thing(), Thing()
    for each in (one, two, one):
        living.add(each)
    assert set(living.snapshot()) == {one, two}
    assert len(living) == 2
    living.discard(one)
    living.discard(one)
    assert living.snapshot() == [two]
    del two
    assert len(living) == 0
    living.add(one)
    living.clear()
    assert not living


@pytest.mark.parametrize("adds", [True, False], ids=["adds", "takes out"])
def test_a_loop_while_another_thread(adds: bool) -> None:
    """Between any two of its instructions. It has each object that lives all the time."""
    living: Living[Thing] = Living()
    stay = {Thing() for _ in range(5)}
    others = [Thing() for _ in range(1000)]
    for each in (*stay, *(() if adds else others)):
        living.add(each)
    left = iter(others)

    def change(frame: FrameType, event: str, what: object) -> Any:
        frame.f_trace_opcodes = True
        if (one := next(left, None)) is not None:
            (living.add if adds else living.discard)(one)
        return change

    sys.settrace(change)
    try:
        found = living.snapshot()
    finally:
        sys.settrace(None)
    assert stay <= set(found)
    assert next(left, None) is not others[0], "nothing was changed meanwhile"


def test_a_hook_of_another_library_keeps_its_object() -> None:
    found: list[int] = []
    without_owner(found.append)(7)
    assert found == [7]
    kept = without_owner({1}.copy)  # nothing else refers to this set
    assert kept() == {1}


def test_a_compiled_method_does_not_keep_its_object() -> None:
    with ipc.Publisher("living") as publisher:
        gone, hook = weakref.ref(publisher), without_owner(publisher._has_room)
        assert hook() is True
    del publisher
    assert gone() is None
    assert hook() is None
