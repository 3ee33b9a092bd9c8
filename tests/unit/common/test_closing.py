# SPDX-License-Identifier: Apache-2.0
"""The end of an object: handlers of signals that raise, however often, lose none of it."""

import gc
import itertools
import os
import signal
import sys
import weakref
from collections.abc import Iterator
from types import FrameType

import pytest

from interrupting import Alarm, Interrupted, interrupted
from shmnd.common import interruption
from shmnd.common.closing import Closing, Ending, surely, when_dropped


def anywhere(path: str) -> bool:
    """Whether a file is not of those that stand for the handler."""
    return not path.endswith("interrupting.py")


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Have the handlers of SIGUSR1 and SIGUSR2 raise; the second signal comes behind the first."""
    left: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1 and left and left.pop():
            os.kill(os.getpid(), signal.SIGUSR2)  # its handler runs in the first code behind
        raise Interrupted

    before = {each: signal.signal(each, handler) for each in (signal.SIGUSR1, signal.SIGUSR2)}
    yield left
    for number, old in before.items():
        signal.signal(number, old)


def count_end(calls: list[int], interruptions: int) -> None:
    """Count a call of an end, and interrupt the first ones behind that."""
    calls.append(1)
    if len(calls) <= interruptions:
        signal.raise_signal(signal.SIGUSR1)


class Dropped(Ending):
    """Counts its ends."""

    def __init__(self, calls: list[int], interruptions: int) -> None:
        self.calls, self.interruptions = calls, interruptions

    def _end_of_life(self) -> None:
        count_end(self.calls, self.interruptions)


class Closed(Closing):
    """The same, by its `close`."""

    def __init__(self, calls: list[int], interruptions: int) -> None:
        self.calls, self.interruptions = calls, interruptions

    def close(self) -> None:
        count_end(self.calls, self.interruptions)


@pytest.mark.parametrize("kind", [Dropped, Closed])
@pytest.mark.parametrize("behind", [0, 1], ids=["one", "a second one behind each"])
@pytest.mark.parametrize("interruptions", [0, 1, 2, 5])
def test_an_end_is_called_until_no_handler_interrupts_it(
    kind: type[Dropped] | type[Closed],
    behind: int,
    interruptions: int,
    handled: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: reported.append(found.exc_type))
    handled += [behind] * interruptions
    calls: list[int] = []
    kind(calls, interruptions)
    assert len(calls) == interruptions + 1
    assert reported == ([Interrupted] if interruptions else []), "the last one, once"


@pytest.mark.parametrize("kind", [Dropped, Closed])
def test_an_end_begins_whatever_its_first_instruction_meets(
    kind: type[Dropped] | type[Closed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)
    for at in itertools.count():
        calls: list[int] = []
        made = [kind(calls, 0)]
        came = interrupted(at, made.clear, anywhere, Alarm)
        assert calls, f"interrupted at {at}"
        if not came:
            break
    assert at > 0


def test_a_fault_ends_it_and_an_endless_interruption_too() -> None:
    calls: list[int] = []

    def fails(error: type[BaseException]) -> None:
        calls.append(1)
        raise error

    with pytest.raises(ZeroDivisionError):
        surely(fails, ZeroDivisionError)
    assert len(calls) == 1
    with pytest.raises(KeyboardInterrupt):
        surely(fails, KeyboardInterrupt)
    assert 10 < len(calls) < 1000


@pytest.mark.parametrize("kind", [MemoryError, RecursionError])
def test_a_want_of_memory_or_of_stack_is_a_fault(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for a handler would want the same, and fail too."""
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise kind

    class Dropped(Ending):
        def _end_of_life(self) -> None:
            fails()

    def search(_exc: BaseException) -> bool:
        raise kind

    monkeypatch.setattr(interruption, "_handles_a_signal", search)
    with pytest.raises(kind):
        surely(fails)
    assert len(calls) == 1
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: reported.append(found.exc_type))
    Dropped()
    assert len(calls) == 2
    assert reported == [kind], "it has not ended"


def test_a_fault_after_an_interruption_does_not_hide_it() -> None:
    outcomes = [Alarm(), ZeroDivisionError()]

    def fails() -> None:
        raise outcomes.pop(0)

    with pytest.raises(Alarm) as caught:
        surely(fails)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_an_end_holds_is_freed_with_it_by_one_collection() -> None:
    class Held:
        """What the end holds."""

    class InCycle:
        """Found by the collector."""

        def __init__(self) -> None:
            self.itself = self

    calls: list[int] = []

    def end(_held: Held) -> None:
        calls.append(1)

    held, found = Held(), InCycle()
    gone = weakref.ref(held)
    when_dropped(found, end, held)
    del held, found
    gc.collect()
    assert calls == [1]
    assert gone() is None


def test_the_end_of_a_dropped_object_is_called_wherever_an_interruption_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)
    for at in itertools.count():
        calls: list[str] = []

        def end(word: str, calls: list[str] = calls) -> None:
            calls.append(word)

        made = [Dropped([], 0)]
        when_dropped(made[0], end, "gone")
        assert not calls
        came = interrupted(at, made.clear, anywhere, Alarm)
        assert calls[:1] == ["gone"], f"interrupted at {at}"
        if not came:
            break
    assert at > 1
