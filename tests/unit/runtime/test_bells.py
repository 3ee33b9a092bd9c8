# SPDX-License-Identifier: Apache-2.0
"""The segments of bells and marks: announced to the broker of the moment, and to the next one."""

from collections.abc import Iterator

import pytest

from shmnd.ring import Segment
from shmnd.runtime.bells import BellPlace, Bells
from shmnd.status import NdError, Status, error


class Announced:
    """Receives announcements of segments; the n-th may fail."""

    def __init__(self, fails_at: int = 0) -> None:
        self.known: set[int] = set()
        self.fails_at = fails_at
        self.bells = Bells(self.announce, self.known.discard)

    def shared(self) -> set[int]:
        """The segments that would be replayed to a new broker now."""
        every = self.bells.segments() + self.bells.read_only_segments()
        return {number for number, _ in every}

    def announce(self, number: int, _: Segment, call: str) -> None:
        self.fails_at -= 1
        if self.fails_at == 0:
            raise error(Status.INSUFFICIENT_RESOURCES, call, "faked")
        self.known.add(number)
        assert self.known <= self.shared(), "the broker may die now"


@pytest.fixture
def announced() -> Iterator[Announced]:
    announced = Announced()
    yield announced
    announced.bells.close()


def test_a_new_broker_gets_the_segments_of_the_old_one(announced: Announced) -> None:
    bells = [announced.bells.take() for _ in range(100)]
    assert len({bell.where for bell in bells}) == 100
    assert announced.known == announced.shared()
    assert len(announced.known) == 4, "two segments of bells, and two of marks"


@pytest.mark.parametrize("time", [1, 2])
def test_a_segment_without_an_announcement_is_withdrawn(announced: Announced, time: int) -> None:
    announced.fails_at = time
    with pytest.raises(NdError, match=r"^Adapter\.create_completion_queue: faked"):
        announced.bells.take()
    assert announced.known == announced.shared() == set()
    assert announced.bells.take().where == (1, 0), "its number is not used again"


def test_places_that_another_thread_takes_first_are_made_anew(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells, grow = announced.bells, announced.bells._grow
    held: list[BellPlace] = []

    def meanwhile() -> None:
        monkeypatch.undo()
        grow()
        held.extend(bells.take() for _ in range(96))

    monkeypatch.setattr(bells, "_grow", meanwhile)
    held.append(bells.take())
    assert len({bell.where for bell in held}) == 97


def test_bells_that_are_closed_meanwhile_are_refused(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announced.bells, "_announce", lambda *_: announced.bells.close())
    with pytest.raises(NdError, match="closed meanwhile"):
        announced.bells.take()


def test_a_place_of_bells_that_are_closed_meanwhile_is_none(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells = announced.bells
    first, place = bells.take(), bells._place

    def meanwhile() -> tuple[int, int]:
        found = place()
        bells.close()
        return found

    monkeypatch.setattr(bells, "_place", meanwhile)
    with pytest.raises(NdError, match="closed meanwhile") as caught:
        bells.take()
    assert caught.value.status == Status.DEVICE_REMOVED
    assert first.where == (0, 0), "one that is in use keeps its segment"
