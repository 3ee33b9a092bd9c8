# SPDX-License-Identifier: Apache-2.0
"""Meetings and watches that begin while the last one of their kind ends."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from interrupting import Alarm
from shmnd.common.records import Watch
from shmnd.runtime.broker.announcements import Names
from shmnd.runtime.broker.meetings import Meetings


class Engine:
    """A progress engine that notes what the broker hears, and calls something once meanwhile."""

    def __init__(self) -> None:
        self.rpc = threading.RLock()
        self.heard: list[str] = []
        self.before: Callable[[], None] | None = None
        self.behind: Callable[[], None] | None = None

    def post(self, op: str, **fields: object) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        self.heard.append(op)
        behind, self.behind = self.behind, None
        if behind is not None:
            behind()

    call = post

    def sync(self) -> None:
        pass

    def require_peer(self, *which: object) -> object:
        return self


class Owner:
    """The owner of segments, as far as a meeting asks."""

    uid = "own"


@pytest.fixture
def engine() -> Any:
    return Engine()


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_meeting_that_begins_as_the_last_one_ends_is_posted(engine: Any, when: str) -> None:
    meetings, adapter = Meetings(engine), Owner()
    meetings.meet(adapter, "peer", 1, "call")
    # As another thread does, between any two steps.
    setattr(engine, when, lambda: meetings.part(adapter, "peer", 1))
    meetings.meet(adapter, "peer", 2, "call")
    assert engine.heard[-1] == "meet"
    meetings.part(adapter, "peer", 2)
    assert engine.heard[-1] == "part"
    assert not meetings._tokens


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_meeting_that_begins_within_an_end_stays(engine: Any, when: str) -> None:
    meetings, adapter = Meetings(engine), Owner()
    meetings.meet(adapter, "peer", 1, "call")
    setattr(engine, when, lambda: meetings.meet(adapter, "peer", 2, "call"))
    meetings.part(adapter, "peer", 1)
    assert engine.heard[-1] == "meet"
    assert meetings._tokens == {("own", "peer"): {2}}
    assert meetings._own["own"]() is adapter
    meetings.part(adapter, "peer", 2)
    assert engine.heard[-1] == "part"
    assert not meetings._tokens


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_watch_that_begins_within_the_end_of_the_last_one_is_posted(
    engine: Any, when: str, raises: bool
) -> None:
    """Where the handler that begins it raises as well, the first one is ended once more."""
    names = Names(engine)
    first, second = (Watch("kind", "name", lambda: None) for _ in range(2))

    def begin() -> None:
        names._enter(("kind", "name"), second)
        engine.heard.append("watch")
        if raises:
            raise Alarm

    names._enter(("kind", "name"), first)
    setattr(engine, when, begin)
    if raises:
        with pytest.raises(Alarm):
            names._unwatch(first)
    names._unwatch(first)
    assert engine.heard[-1] == "watch"
    assert names._concerned("kind", "name") == [second]
    names._unwatch(second)
    assert engine.heard[-1] == "unwatch"
    assert not names._watches
