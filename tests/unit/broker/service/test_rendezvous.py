# SPDX-License-Identifier: Apache-2.0
"""Every request of the broker, without sockets."""

import gc
import os
from typing import Any

import pytest

from counting import steps_of
from shmnd.broker.protocol import (
    FIRST_FOR_TOOLS,
    MAX_FDS,
    VERSION,
    BadMessage,
)
from shmnd.broker.service.records import Limits
from shmnd.status import Status
from unit.broker.world import Fake, Party, World, connected

HELLO: dict[str, Any] = {"version": VERSION, "key": "ab" * 16, "pid": 1}


# --- hello ---
def test_hello_must_come_first_and_only_once(world: World) -> None:
    world.state.admit(99, 0, 0)
    for op in ("sync", "adapter"):
        world.state.handle(99, {"op": op, "id": 1, "key": "0" * 32}, [])
    world.deliver()
    assert {m["status"] for m, _ in world.said[99]} == {Status.INVALID_DEVICE_STATE}
    party = world.party()
    assert party.refused("hello", [Fake()], **HELLO) is Status.INVALID_DEVICE_STATE


def test_another_version_gets_both_numbers(world: World) -> None:
    party = world.party()
    party.leave()
    reply = party.raw("hello", [Fake()], **{**HELLO, "version": 99})
    assert reply["status"] == Status.NOT_SUPPORTED
    assert f"version {VERSION}" in reply["message"]
    assert "99" in reply["message"]


@pytest.mark.parametrize(
    ("pidfd", "bad"),
    [
        ("anon_inode:[pidfd]", ""),
        ("pidfd:[4026531836]", ""),
        ("", ""),  # no /proc: the kind is unknown
        ("pipe:[12]", "pidfd"),
        ("anon_inode:[eventfd]", "pidfd"),
    ],
)
def test_the_kind_of_a_pidfd_is_checked(world: World, pidfd: str, bad: str) -> None:
    party = world.party()
    party.leave()
    world.state.admit(party.number, 0, 0)
    reply = party.raw("hello", [Fake(pidfd)], **HELLO)
    assert reply["status"] == (Status.INVALID_PARAMETER if bad else Status.SUCCESS)
    assert bad in reply["message"]


def test_a_process_that_comes_back_takes_its_own_place(world: World) -> None:
    old = world.party(pid=5)
    old.listen(5000)
    new = world.party(key=old.key, pid=5)
    assert new.hello["status"] == Status.SUCCESS
    assert world.dropped == [old.number]
    new.listen(5000)


def test_a_process_without_a_visible_pid_comes_back_too(world: World) -> None:
    old = world.party(pid=0)
    new = world.party(key=old.key, pid=0)
    assert new.hello["status"] == Status.SUCCESS
    assert world.dropped == [old.number]


def test_no_process_takes_the_place_of_another(world: World) -> None:
    """What others know of a process and its adapter are names; only their keys claim them."""
    victim = world.party()
    hostile_peer = world.party(key=victim.uid, adapter=False)
    assert hostile_peer.hello["status"] == Status.SUCCESS
    hostile_peer.ask("adapter", key=victim.adapter, table={})
    assert world.dropped == []
    assert len(world.state.processes) == len(world.state.adapters) == 2
    assert world.state.adapters[victim.adapter].process.uid == victim.uid


def test_a_request_without_id_gets_no_reply(world: World) -> None:
    party = world.party()
    world.state.handle(party.number, {"op": "sync"}, [])
    world.state.handle(party.number, {"op": "nonsense"}, [])
    assert party.take() == []
    with pytest.raises(BadMessage):
        world.state.handle(party.number, {"op": "sync", "id": "x"}, [])


# --- adapters and segments ---
def test_an_adapter_belongs_to_one_process(world: World) -> None:
    one, two = world.party(), world.party()
    assert two.refused("adapter", key=one.adapter_key, table={}) is Status.SHARING_VIOLATION
    one.ask("adapter", key=one.adapter_key, table={"told": "again"})
    assert (
        two.refused("bind", adapter=one.adapter, object=1, kind="listener", host="::", port=0)
        is Status.INVALID_HANDLE
    )
    one.ask("adapter_close", adapter=one.adapter)
    two.ask("adapter_close", adapter=one.adapter)  # none of its business, and gone anyway
    two.ask("adapter", key=one.adapter_key, table={})


def test_a_segment_must_be_as_large_as_announced(world: World) -> None:
    party = world.party()
    fields = {"adapter": party.adapter, "seg": 1, "size": 4096, "writable": False}
    for size in (4095, -1):
        status = party.refused("segment", [Fake(size=size)], **fields)
        assert status is Status.INVALID_BUFFER_SIZE
    party.ask("segment", [Fake(size=4096)], **fields)
    party.ask("segment", [Fake(size=4096)], **fields)  # told again
    status = party.refused("segment", [Fake()], **{**fields, "size": 8})
    assert status is Status.SHARING_VIOLATION


def test_limits_of_a_process() -> None:
    world = World(Limits(adapters=2, segments=1, objects=1, armed=1))
    party = world.party()
    party.ask("adapter", key="1" * 32)
    assert party.refused("adapter", key="2" * 32) is Status.INSUFFICIENT_RESOURCES
    party.segment(1)
    fields = {"adapter": party.adapter, "seg": 2, "size": 1, "writable": True}
    assert party.refused("segment", [Fake()], **fields) is Status.INSUFFICIENT_RESOURCES
    party.ask("segment_close", adapter=party.adapter, seg=1)
    party.ask("segment", [Fake()], **fields)
    listener = party.listen(5000)
    bind = {"adapter": party.adapter, "object": 9, "kind": "connector", "host": "::1", "port": 0}
    assert party.refused("bind", **bind) is Status.INSUFFICIENT_RESOURCES
    party.arm(listener, 1)
    status = party.refused("request", object=listener, connector=2)
    assert status is Status.INSUFFICIENT_RESOURCES


# --- bind, listen, request ---
def test_bind_returns_the_port_and_refuses_a_used_one(world: World) -> None:
    one, two = world.party(), world.party()
    one.listen(5000)
    fields = {"adapter": two.adapter, "object": 1, "kind": "connector", "host": "127.0.0.1"}
    assert two.refused("bind", **fields, port=5000) is Status.SHARING_VIOLATION
    assert two.ask("bind", **fields, port=0)["port"] in range(49152, 65536)
    assert two.refused("bind", **fields, port=0) is Status.ADDRESS_ALREADY_ASSOCIATED
    two.ask("close", object=1)
    two.ask("close", object=1)
    assert two.ask("bind", **fields, port=5001)["port"] == 5001


def test_a_listener_that_listens_again_has_the_backlog_of_the_last_time(world: World) -> None:
    """A process whose call was interrupted does not know of the first time."""
    party, active = world.party(), world.party()
    listener = party.listen(5000)
    party.ask("listen", object=listener, backlog=1)
    active.connect(5000)
    full = active.connect_fields(5000)
    assert active.refused("connect", **full) is Status.CONNECTION_REFUSED
    party.ask("listen", object=listener, backlog=2)
    active.ask("connect", **full)


def test_only_a_listener_listens(world: World) -> None:
    party = world.party()
    assert party.refused("listen", object=77, backlog=0) is Status.INVALID_HANDLE
    connector = party.bind("connector")
    assert party.refused("listen", object=connector, backlog=0) is Status.INVALID_HANDLE
    bound = party.bind("listener", 5001)
    status = party.refused("request", object=bound, connector=1)
    assert status is Status.INVALID_DEVICE_STATE


def test_a_request_is_armed_once_per_connector_and_can_be_cancelled(world: World) -> None:
    party = world.party()
    listener = party.listen(5000)
    party.arm(listener, 1)
    status = party.refused("request", object=listener, connector=1)
    assert status is Status.INVALID_PARAMETER_1
    cancel = {"object": listener, "connector": 1}
    assert party.ask("cancel_request", **cancel)["cancelled"] is True
    assert party.ask("cancel_request", **cancel)["cancelled"] is False
    assert party.refused("cancel_request", object=99, connector=1) is Status.INVALID_HANDLE


# --- lost descriptors ---
def test_an_unheard_introduction_is_repeated_at_need(world: World) -> None:
    active, passive, _ = connected(world)
    active.segment(3)
    passive.take()
    passive.ask("unheard", adapter=active.adapter)
    assert passive.take() == []
    passive.ask("sync")
    assert passive.names() == ["peer", "segment"]
    passive.ask("sync")
    assert passive.take() == []
    passive.ask("unheard", adapter="0" * 32)
    passive.ask("unheard", adapter=active.adapter)
    active.ask("adapter_close", adapter=active.adapter)
    passive.take()
    passive.ask("sync")
    assert passive.take() == []


def test_an_unheard_segment_is_repeated_alone_however_often(world: World) -> None:
    """A repeated introduction has a doorbell for the owner, and few wait for it."""
    active, passive, _ = connected(world)
    active.segment(3)
    active.segment(4)
    passive.take()
    active.doorbells.clear()
    for _ in range(100):
        passive.ask("unheard", adapter=active.adapter, seg=4)
        assert passive.ask("sync")["unheard"] == []
        ((told, (fd,)),) = passive.take()
        assert (told["ev"], told["seg"]) == ("segment", 4)
        del fd
    assert active.doorbells == []
    passive.ask("unheard", adapter=active.adapter, seg=4)
    active.ask("segment_close", adapter=active.adapter, seg=4)
    assert passive.ask("sync")["unheard"] == []
    assert passive.take() == [], "it was withdrawn meanwhile"
    passive.ask("unheard", adapter=active.adapter)
    passive.ask("unheard", adapter=active.adapter, seg=3)
    passive.ask("sync")
    assert passive.names() == ["peer", "segment"]


def test_a_repeated_introduction_precedes_the_answer_to_its_request(world: World) -> None:
    """A client that has the answer has the rest: it need not ask again."""
    active, passive, _ = connected(world)
    active.segment(3)
    passive.take()
    passive.ask("unheard", adapter=active.adapter)
    world.state.handle(passive.number, {"op": "sync", "id": 7777}, [])
    world.deliver()
    said = [message.get("ev", "the answer") for message, _ in world.said.pop(passive.number)]
    assert said == ["peer", "segment", "the answer"]


# --- death ---
def test_when_the_passive_process_dies_its_peers_are_notified(world: World) -> None:
    active, passive, connection = connected(world)
    passive.arm(1, 5)
    offered, waiting = active.connect(5000), active.connect(5000)
    bystander = world.party()
    passive.leave()
    events = active.events()
    assert {(e["ev"], e.get("connection")) for e in events[:-1]} == {
        ("refused", waiting),
        ("refused", offered),
    }
    assert events[-1] == {"ev": "gone", "process": passive.uid}
    assert bystander.take() == []
    bystander.listen(5000)
    active.ask("closed", connection=connection)
    assert world.state.connections.records == {}


def test_when_the_active_process_dies_its_peers_are_notified(world: World) -> None:
    active, passive, connection = connected(world)
    active.connect(5000)
    listener = 1
    passive.arm(listener, 5)
    offered = active.connect(5000)
    passive.arm(listener, 6)
    passive.take()
    active.connect(5000)
    active.connect(5000)  # in the backlog
    passive.take()
    active.leave()
    events = [(e["ev"], e.get("connection")) for e in passive.events()]
    assert ("withdrawn", offered) in events
    assert events[-1] == ("gone", None)
    assert ("withdrawn", connection) not in events  # gone, and its pidfd, say it all
    passive.arm(listener, 7)
    assert passive.take() == []
    assert [n for n, *_ in world.state.connections.records] == [connection]
    passive.ask("closed", connection=connection)
    assert world.state.connections.records == {}


@pytest.mark.parametrize("words", [("closed", "withdraw"), ("withdraw", "closed")])
def test_both_ends_of_one_process_end_in_any_order(world: World, words: tuple[str, ...]) -> None:
    """The passive end's `closed` and the active end's `withdraw` cross on their ways."""
    party = world.party()
    party.arm(party.listen(5000))
    connection = party.connect(5000)
    party.accept(connection)
    for word in words:
        party.ask(word, connection=connection)
    assert world.state.connections.records == {}


def test_both_die_and_nothing_stays(world: World) -> None:
    active, passive, _ = connected(world)
    both = world.party()
    both.segment(1)
    both.arm(both.listen(5001))
    both.accept(both.connect(5001))
    for party in (active, passive, both):
        party.leave()
        party.leave()
    state = world.state
    assert (state.processes, state.adapters, state.connections.records) == ({}, {}, {})
    assert state.connections._tuples == {}
    assert state.connections._vacant == {}
    assert state._ports._holders == {}


def test_descriptors_of_the_dead_are_let_go(world: World) -> None:
    released: list[None] = []

    class Counted(Fake):
        __slots__ = ()

        def __del__(self) -> None:
            released.append(None)

    active, passive, _ = connected(world)
    active.segment(1, Counted())
    passive.take()
    gc.collect()
    gc.disable()
    try:
        active.leave()
        assert len(released) == 1, "closed at once, not when the collector comes by"
    finally:
        gc.enable()


# --- status ---
def test_status_pages_through_everything(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    made = [active.connect(5000) for _ in range(100)]
    passive.arm(listener, 1)
    tool = Tool(world)
    counts = tool.status()
    assert (counts["processes"], counts["adapters"]) == (2, 2)
    assert (counts["listeners"], counts["connections"]) == (1, 100)
    assert "page" not in counts
    seen, after = [], 0
    while True:
        reply = tool.status(kind="connections", after=after)
        seen += reply["page"]
        after = reply["next"]
        if not after:
            break
    assert [entry["connection"] for entry in seen] == made
    assert seen[0]["stage"] == "offered"
    assert seen[1]["stage"] == "queued"
    (entry,) = tool.status(kind="listeners")["page"]
    assert (entry["waiting"], entry["armed"], entry["address"]) == (99, 0, ["127.0.0.1", 5000])
    assert len(tool.status(kind="processes")["page"]) == 2
    assert len(tool.status(kind="adapters")["page"]) == 2
    assert tool.status(kind="adapters", after=500)["page"] == []


def test_a_page_of_the_longest_records_fits_into_a_message() -> None:
    world = World()
    host = "fd00:1111:2222:3333:4444:5555:6666:7777"
    party = world.party()
    party.arm(party.listen(50001, host=host))
    for _ in range(60):
        party.ask("connect", **party.connect_fields(50001, host))
    assert Tool(world).status(kind="connections")["next"] == 48


def test_a_connection_costs_no_more_where_its_adapters_have_many_segments(world: World) -> None:
    active, passive, _ = connected(world)
    listener = passive.listen(5001)

    def connect() -> None:
        passive.arm(listener)
        passive.accept(active.connect(5001))

    few = steps_of(connect, "line")
    for number in range(1, 100):
        active.segment(number)
        passive.segment(number)
    assert active.names().count("segment") == passive.names().count("segment") == 99
    assert steps_of(connect, "line") == few


def test_a_segment_costs_no_more_where_its_adapter_has_many_connections(world: World) -> None:
    active, passive, _ = connected(world)
    passive.segment(1)
    active.take()
    few = steps_of(lambda: passive.segment(2), "line")
    listener = passive.listen(5001)
    for _ in range(100):
        passive.arm(listener)
        passive.accept(active.connect(5001))
    active.take()
    passive.take()
    assert steps_of(lambda: passive.segment(3), "line") == few
    assert active.names() == ["segment"]


def test_segments_for_tools_go_to_tools_only(world: World) -> None:
    active, passive, _ = connected(world)
    mine = [Fake() for _ in range(6)]
    for number, fd in enumerate(mine):
        passive.segment(FIRST_FOR_TOOLS + number, fd)
    passive.segment(7)
    assert [event["seg"] for event in active.events() if event["ev"] == "segment"] == [7]

    tool = Tool(world)
    first = tool.status(kind="counters")
    given = tool.given
    assert [row["adapter"] for row in first["page"]] == [passive.adapter] * MAX_FDS
    assert {row["size"] for row in first["page"]} == {4096}
    rest = tool.status(kind="counters", after=first["next"])
    assert [*given, *tool.given] == mine
    assert (len(rest["page"]), rest["next"]) == (2, 0)


class Tool:
    """A client that has not said hello."""

    def __init__(self, world: World) -> None:
        self.world = world

    def status(self, **fields: Any) -> dict[str, Any]:
        self.world.state.admit(1000, os.getpid(), 0)
        self.world.state.handle(1000, {"op": "status", "id": 1, **fields}, [])
        self.world.deliver()
        ((reply, given),) = self.world.said.pop(1000)
        self.given = list(given)
        assert reply["status"] == 0
        self.world.state.leave(1000)
        return reply


def test_parties_are_distinguished(world: World) -> None:
    """The helper itself: a message to one is not seen by another."""
    one, two = world.party(), world.party()
    assert isinstance(one, Party)
    assert one.take() == two.take() == []
