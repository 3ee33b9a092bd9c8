# SPDX-License-Identifier: Apache-2.0
"""Names that processes announce, and meetings of adapters, without sockets."""

import random
from typing import Any

import pytest

from counting import steps_of
from shmnd.broker.service import directory
from shmnd.broker.service.records import Limits
from shmnd.broker.service.validation import MAX_DATA, MAX_NAME
from shmnd.status import Status
from unit.broker.world import Party, World


@pytest.fixture
def world() -> World:
    return World()


def announce(party: Party, number: int, name: str, kind: str = "topic", **data: Any) -> None:
    party.ask("announce", adapter=party.adapter, object=number, kind=kind, name=name, data=data)


def found(party: Party, kind: str = "topic", name: str = "") -> list[str]:
    page: list[str] = []
    after = 0
    while True:
        reply = party.ask("find", kind=kind, name=name, after=after)
        page += [record["name"] for record in reply["page"]]
        after = reply["next"]
        if not after:
            return page


# --- records ---


def test_a_record_is_found_by_kind_and_by_name(world: World) -> None:
    owner, other = world.party(), world.party()
    announce(owner, 1, "image", bits=8)
    announce(owner, 2, "pose")
    announce(owner, 3, "image", kind="service")
    assert sorted(found(other)) == ["image", "pose"]
    assert found(other, name="pose") == ["pose"]
    assert found(other, name="none") == []
    (record,) = other.ask("find", kind="topic", name="image")["page"]
    assert record["adapter"] == owner.adapter
    assert record["process"] == owner.uid
    assert record["data"] == {"bits": 8}


def test_records_are_found_in_the_order_of_their_announcement(world: World) -> None:
    parties = [world.party() for _ in range(3)]
    for number, owner in enumerate([parties[2], parties[0], parties[1]]):
        announce(owner, 1, "image", place=number)
    announce(parties[2], 1, "image", place=3)
    page = parties[0].ask("find", kind="topic", name="image")["page"]
    assert [record["data"]["place"] for record in page] == [1, 2, 3]


def _steps_to_find(world: World, name: str) -> int:
    """How many lines of the directory a search executes; a line of a generator for each record."""

    def find() -> None:
        world.state.directory.find({"kind": "topic", "name": name, "after": 0})

    return steps_of(find, "line", directory.__file__)


def test_a_search_for_a_name_takes_no_longer_with_the_number_of_others(world: World) -> None:
    owner = world.party()
    announce(owner, 1, "image")
    steps = _steps_to_find(world, "image")
    assert steps > 0
    for number in range(2, 100):
        announce(owner, number, f"t{number}")
        announce(owner, 100 + number, "image", kind=f"kind{number}")
    assert _steps_to_find(world, "image") == steps


def test_nothing_stays_of_records_in_any_order(world: World) -> None:
    """They come, are replaced, are retracted, and end with their processes."""
    chance, other = random.Random(3), world.party()
    parties = [world.party() for _ in range(4)]
    there: dict[tuple[int, int], tuple[str, str]] = {}
    for _ in range(2000):
        who, number = chance.randrange(4), chance.randrange(1, 30)
        what = f"kind{number % 3}", f"t{number % 5}"
        if (who, number) in there and chance.random() < 0.4:
            parties[who].ask("retract", object=number)
            del there[who, number]
        else:
            announce(parties[who], number, what[1], what[0], state=chance.random())
            there[who, number] = what
        kind, name = f"kind{chance.randrange(3)}", f"t{chance.randrange(5)}"
        ours = sorted(each for kind_of, each in there.values() if kind_of == kind)
        assert sorted(found(other, kind)) == ours
        assert found(other, kind, name) == [name] * ours.count(name)
    for party in parties:
        party.leave()
    assert not world.state.directory._index


def test_many_records_come_in_pages_that_fit_into_messages(world: World) -> None:
    owner, other = world.party(), world.party()
    for number in range(1, 200):
        announce(owner, number, f"t{number}", padding="x" * 1000)
    assert sorted(found(other)) == sorted(f"t{number}" for number in range(1, 200))


def test_a_record_ends_when_it_is_retracted_or_its_adapter_closes_or_its_process_leaves(
    world: World,
) -> None:
    first, second, other = world.party(), world.party(), world.party()
    announce(first, 1, "retracted")
    announce(first, 2, "closed")
    announce(second, 1, "left")
    first.ask("retract", object=1)
    first.ask("retract", object=1)
    assert sorted(found(other)) == ["closed", "left"]
    first.ask("adapter_close", adapter=first.adapter)
    assert found(other) == ["left"]
    second.leave()
    assert found(other) == []


def test_a_record_is_announced_by_the_owner_of_its_adapter(world: World) -> None:
    owner, other = world.party(), world.party()
    fields = {"object": 1, "kind": "topic", "name": "x"}
    assert other.refused("announce", adapter=owner.adapter, **fields) is Status.INVALID_HANDLE


def test_an_announcement_that_is_made_again_replaces_the_data(world: World) -> None:
    owner, other = world.party(), world.party()
    announce(owner, 1, "x", size=1)
    announce(owner, 1, "x", size=2)
    (record,) = other.ask("find", kind="topic")["page"]
    assert record["data"] == {"size": 2}
    fields = {"adapter": owner.adapter, "object": 1, "kind": "topic", "name": "y"}
    assert owner.refused("announce", **fields) is Status.SHARING_VIOLATION


def test_records_are_bounded() -> None:
    world = World(Limits(records=2, watches=2, meetings=2))
    owner = world.party()
    announce(owner, 1, "a")
    announce(owner, 2, "b")
    fields = {"adapter": owner.adapter, "object": 3, "kind": "topic", "name": "c"}
    assert owner.refused("announce", **fields) is Status.INSUFFICIENT_RESOURCES
    announce(owner, 2, "b", again=True)
    for name in "ab":
        owner.ask("watch", kind="topic", name=name)
        owner.ask("meet", adapter=owner.adapter, peer=name * 32)
    assert owner.refused("watch", kind="topic", name="c") is Status.INSUFFICIENT_RESOURCES
    refused = owner.refused("meet", adapter=owner.adapter, peer="c" * 32)
    assert refused is Status.INSUFFICIENT_RESOURCES


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": ""},
        {"kind": "Topic"},
        {"kind": "x" * 33},
        {"name": "x" * (MAX_NAME + 1)},
        {"name": 7},
        {"data": []},
        {"data": {"x": "y" * MAX_DATA}},
        {"object": 0},
    ],
)
def test_a_malformed_announcement_is_refused(world: World, wrong: dict[str, Any]) -> None:
    owner = world.party()
    fields = {"adapter": owner.adapter, "object": 1, "kind": "topic", "name": "x", **wrong}
    assert owner.refused("announce", **fields) is Status.INVALID_PARAMETER
    assert found(owner) == []


# --- watching ---


def test_a_watcher_is_notified_of_new_and_ended_names(world: World) -> None:
    owner, all_of_it, one_name = world.party(), world.party(), world.party()
    all_of_it.ask("watch", kind="topic")
    one_name.ask("watch", kind="topic", name="a")
    announce(owner, 1, "a", x=1)
    announce(owner, 2, "b")
    announce(owner, 3, "a", kind="service")
    owner.ask("retract", object=1)
    heard = [(event["ev"], event["name"]) for event in all_of_it.events()]
    assert heard == [("record", "a"), ("record", "b"), ("record_gone", "a")]
    heard = [(event["ev"], event["name"]) for event in one_name.events()]
    assert heard == [("record", "a"), ("record_gone", "a")]
    owner.leave()
    assert [event["name"] for event in all_of_it.events() if event["ev"] == "record_gone"] == ["b"]


def test_a_watcher_of_a_name_and_its_kind_is_notified_once(world: World) -> None:
    owner, watcher = world.party(), world.party()
    watcher.ask("watch", kind="topic")
    watcher.ask("watch", kind="topic", name="a")
    announce(owner, 1, "a")
    assert watcher.names() == ["record"]


def test_a_watch_ends_when_it_is_taken_back_or_its_process_leaves(world: World) -> None:
    owner, watcher, gone = world.party(), world.party(), world.party()
    watcher.ask("watch", kind="topic")
    gone.ask("watch", kind="topic")
    watcher.ask("unwatch", kind="topic")
    watcher.ask("unwatch", kind="topic")
    gone.leave()
    announce(owner, 1, "a")
    assert watcher.names() == []


# --- meetings ---


def test_a_meeting_introduces_both_adapters(world: World) -> None:
    first, second = world.party(), world.party()
    first.segment(0)
    second.segment(0)
    assert first.ask("meet", adapter=first.adapter, peer=second.adapter)["met"]
    for party, other in ((first, second), (second, first)):
        events = party.events()
        assert [event["ev"] for event in events] == ["peer", "segment"]
        assert {event["adapter"] for event in events} == {other.adapter}
        assert [process for process, _ in party.doorbells] == [other.uid]


def test_later_segments_are_shared_with_the_adapters_met(world: World) -> None:
    first, second, stranger = world.party(), world.party(), world.party()
    first.ask("meet", adapter=first.adapter, peer=second.adapter)
    first.take(), second.take()
    first.segment(5)
    second.segment(6)
    assert [event["seg"] for event in second.events()] == [5]
    assert [event["seg"] for event in first.events()] == [6]
    assert stranger.events() == []


def test_a_meeting_waits_for_an_adapter_that_is_not_there_yet(world: World) -> None:
    first, late = world.party(), world.party(adapter=False)
    first.segment(0)
    assert not first.ask("meet", adapter=first.adapter, peer=late.adapter)["met"]
    assert first.events() == []
    late.ask("adapter", key=late.adapter_key)
    assert [event["ev"] for event in first.events()] == ["peer"]
    assert [event["ev"] for event in late.events()] == ["peer", "segment"]


def test_after_parting_no_segment_is_shared(world: World) -> None:
    first, second = world.party(), world.party()
    first.ask("meet", adapter=first.adapter, peer=second.adapter)
    first.ask("part", adapter=first.adapter, peer=second.adapter)
    first.ask("part", adapter=first.adapter, peer=second.adapter)
    first.take(), second.take()
    first.segment(1)
    second.segment(1)
    assert first.events() == second.events() == []


def test_an_adapter_that_left_meets_no_other(world: World) -> None:
    first, second = world.party(), world.party()
    first.ask("meet", adapter=first.adapter, peer=second.adapter)
    first.leave()
    second.take()
    second.segment(1)
    assert second.events() == []
    assert not world.state.directory._meeting
    second.leave()
    assert not world.state.directory._members


def test_nothing_is_kept_of_names_that_no_process_watches(world: World) -> None:
    stays, gone = world.party(), world.party()
    for party in stays, gone:
        party.ask("watch", kind="topic")
        party.ask("watch", kind="topic", name=party.uid)
    gone.leave()
    directory_of = world.state.directory
    assert set(directory_of._watchers) == {("topic", ""), ("topic", stays.uid)}
    assert len(directory_of._watchers["topic", ""]) == 1
    stays.ask("unwatch", kind="topic")
    stays.ask("unwatch", kind="topic", name=stays.uid)
    assert not directory_of._watchers


def test_an_adapter_meets_on_behalf_of_its_own_process(world: World) -> None:
    first, second = world.party(), world.party()
    refused = first.refused("meet", adapter=second.adapter, peer=first.adapter)
    assert refused is Status.INVALID_HANDLE


def test_two_adapters_of_one_process_meet(world: World) -> None:
    party = world.party()
    assert party.ask("meet", adapter=party.adapter, peer=party.adapter)["met"]
    assert [event["ev"] for event in party.events()] == ["peer"]
