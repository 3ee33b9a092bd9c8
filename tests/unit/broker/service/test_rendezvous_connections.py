# SPDX-License-Identifier: Apache-2.0
"""Connect, accept, reject and withdraw at the broker."""

import pytest

from shmnd.broker.protocol import (
    MAX_REASON,
    encode_private,
)
from shmnd.broker.service.records import Limits
from shmnd.status import Status
from unit.broker.world import Fake, World, connected


# --- connect ---
def test_from_connect_to_accept(world: World) -> None:
    active, passive = world.party(), world.party()
    active.segment(3, segment := Fake())
    listener = passive.listen(5000)
    passive.arm(listener, 12)
    fields = active.connect_fields(5000, private=encode_private(b"hi"), offer="A")
    connection = active.ask("connect", **fields)["connection"]
    assert active.take() == []

    (peer, peer_fds), (seg, seg_fds), (offer, _) = passive.take()
    assert peer == {
        "ev": "peer",
        "adapter": active.adapter,
        "process": active.uid,
        "pid": 77,
        "same_user": True,
        "one_user": True,
        "table": {"of": active.uid},
    }
    assert peer_fds[1] is active.pidfd
    assert peer_fds[0].kind() == "0, to ring"
    ((by, (doorbell,)),) = active.doorbells
    assert (by, doorbell.kind()) == (passive.uid, "0, to listen")
    assert seg == {
        "ev": "segment",
        "adapter": active.adapter,
        "seg": 3,
        "size": 4096,
        "writable": False,
    }
    assert seg_fds == (segment,)
    assert offer == {
        "ev": "offer",
        "object": listener,
        "connector": 12,
        "connection": connection,
        "local": ["127.0.0.1", 5000],
        "peer": fields["local"],
        "peer_adapter": active.adapter,
        "private": encode_private(b"hi"),
        "offer": "A",
    }

    link = Fake()
    passive.accept(connection, link, private=encode_private(b"yo"), answer="B")
    (peer, peer_fds), (accepted, accepted_fds) = active.take()
    assert (peer["ev"], peer["adapter"]) == ("peer", passive.adapter)
    assert peer_fds[1] is passive.pidfd
    assert peer_fds[0].kind() == "1, to ring"
    assert accepted_fds == (link,)
    assert accepted == {
        "ev": "accepted",
        "connection": connection,
        "peer_adapter": passive.adapter,
        "private": encode_private(b"yo"),
        "answer": "B",
        "size": 4096,
    }
    assert passive.take() == []
    ((by, (doorbell,)),) = passive.doorbells
    assert (by, doorbell.kind()) == (active.uid, "1, to listen")


def test_processes_learn_of_a_common_user(world: World) -> None:
    for user, same in ((7, True), (8, False)):
        active, passive = world.party(user=7), world.party(user=user)
        passive.arm(passive.listen(5000), 12)
        connection = active.connect(5000)
        (read, _), *_ = passive.take()
        assert (read["same_user"], read["one_user"]) == (same, same)
        passive.accept(connection, Fake())
        (read, _), *_ = active.take()
        assert read["same_user"] is same
        world.state.leave(passive.number)


@pytest.mark.parametrize(("pid", "pidfd_of"), [(7, 8), (7, 0), (7, -1), (0, 0)])
def test_a_process_with_a_doubtful_pidfd_is_of_no_user(
    world: World, pid: int, pidfd_of: int
) -> None:
    passive, active = world.party(), world.party(pid=pid, pidfd_of=pidfd_of)
    passive.arm(passive.listen(5000), 12)
    active.connect(5000)
    (read, _), *_ = passive.take()
    assert read["same_user"] is False
    assert read["one_user"] is True, "the kernel says so of the socket, whatever it gave"


def test_an_adapter_is_introduced_once_with_its_new_segments(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    passive.arm(listener, 1)
    first = active.connect(5000)
    assert passive.names() == ["peer", "offer"]
    active.segment(1)  # during the attempt: at once
    assert passive.names() == ["segment"]
    passive.ask("reject", connection=first)
    active.segment(2)  # nothing between the two: not now
    assert passive.names() == []
    passive.arm(listener, 2)
    active.connect(5000)
    events = passive.events()
    assert [event["ev"] for event in events] == ["segment", "offer"]
    assert events[0]["seg"] == 2


def test_the_port_of_a_connection_is_free_with_the_message_that_ends_it(world: World) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    fields = active.connect_fields(5000)
    connection = active.ask("connect", **fields)["connection"]
    passive.accept(connection)
    process = world.state.processes[active.uid]
    active.ask("closed", connection=connection, object=fields["object"])
    assert process.objects == {}
    assert process.connections == {}
    active.bind("listener", fields["local"][1])  # at once
    active.ask("closed", connection=connection, object=fields["object"])  # harmless twice
    passive.ask("closed", connection=connection)
    assert world.state.connections.records == {}


def test_segments_go_to_established_peers_until_their_end_is_over(world: World) -> None:
    active, passive, connection = connected(world)
    active.segment(1)
    passive.segment(1)
    assert (active.names(), passive.names()) == (["segment"], ["segment"])
    active.ask("segment_close", adapter=active.adapter, seg=1)
    assert passive.events() == [{"ev": "segment_gone", "adapter": active.adapter, "seg": 1}]
    passive.ask("closed", connection=connection)
    active.segment(2)
    assert passive.names() == []


def test_requests_wait_in_the_backlog_oldest_first(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000, backlog=2)
    waiting = [active.connect(5000) for _ in range(2)]
    full = active.connect_fields(5000)
    assert active.refused("connect", **full) is Status.CONNECTION_REFUSED
    assert passive.take() == []
    passive.arm(listener, 1)
    passive.arm(listener, 2)
    offers = [event for event in passive.events() if event["ev"] == "offer"]
    assert [(o["connector"], o["connection"]) for o in offers] == [(1, waiting[0]), (2, waiting[1])]
    active.ask("connect", **full)  # refused before, may try again


def test_armed_connectors_get_requests_oldest_first_beyond_any_backlog(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000, backlog=1)
    for connector in (5, 3, 4):
        passive.arm(listener, connector)
    passive.ask("cancel_request", object=listener, connector=3)
    made = [active.connect(5000) for _ in range(3)]  # the third waits
    offers = [event for event in passive.events() if event["ev"] == "offer"]
    assert [(o["connector"], o["connection"]) for o in offers] == [(5, made[0]), (4, made[1])]


def test_a_request_offered_to_a_connector_that_was_released_is_refused(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    passive.arm(listener, 5)
    passive.arm(listener, 6)
    offered, taken = active.connect(5000), active.connect(5000)
    release = {"object": listener, "connector": 5, "released": True}
    assert passive.ask("cancel_request", **release)["cancelled"] is False
    refused = [event["connection"] for event in active.events() if event["ev"] == "refused"]
    assert refused == [offered]
    passive.ask("reject", connection=taken)  # the other one waits for its answer still


def test_a_request_waits_in_the_backlog_when_a_waiting_connector_is_released(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    passive.arm(listener, 5)
    release = {"object": listener, "connector": 5, "released": True}
    assert passive.ask("cancel_request", **release)["cancelled"] is True
    waiting = active.connect(5000)
    assert active.take() == []
    passive.arm(listener, 6)
    offers = [event for event in passive.events() if event["ev"] == "offer"]
    assert [(offer["connector"], offer["connection"]) for offer in offers] == [(6, waiting)]


def test_only_the_process_that_holds_the_address_is_read_before_a_request(world: World) -> None:
    """One with many objects at that port, on other hosts, delays no request of the others."""
    crowd, passive, active = world.party(), world.party(), world.party()
    for number in range(2, 10):
        crowd.listen(5000, host=f"127.0.0.{number}")
    passive.listen(5000)
    read: list[int] = []
    world.state.take_from = read.append
    active.connect(5000)
    assert read == [passive.number]
    read.clear()
    everywhere = {"kind": "listener", "host": "0.0.0.0", "port": 5000}
    status = active.refused("bind", adapter=active.adapter, object=99, **everywhere)
    assert status is Status.SHARING_VIOLATION
    assert sorted(read) == [crowd.number, passive.number]


def test_the_largest_backlog_is_bounded() -> None:
    world = World(Limits(backlog=3))
    active, passive = world.party(), world.party()
    passive.listen(5000, backlog=0)
    passive.listen(5001, backlog=1000)
    for port in (5000, 5001):
        for _ in range(3):
            active.connect(port)
        status = active.refused("connect", **active.connect_fields(port))
        assert status is Status.CONNECTION_REFUSED


def test_waiting_private_data_is_bounded() -> None:
    world = World(Limits(waiting_bytes=20000))
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    private = encode_private(bytes(6000))
    for _ in range(2):
        active.connect(5000, private=private)
    fields = active.connect_fields(5000, private=private)
    assert active.refused("connect", **fields) is Status.INSUFFICIENT_RESOURCES
    passive.arm(listener, 1)
    active.ask("connect", **fields)


def test_connect_without_a_listener_is_refused(world: World) -> None:
    active, passive = world.party(), world.party()
    fields = active.connect_fields(5000)
    assert active.refused("connect", **fields) is Status.CONNECTION_REFUSED
    passive.bind("listener", 5000)
    assert active.refused("connect", **fields) is Status.CONNECTION_REFUSED
    passive.listen(5001)
    assert active.refused("connect", **fields, protocol=17) is Status.INVALID_PARAMETER
    active.ask("connect", **{**fields, "port": 5001})


def test_connect_binds_an_unbound_connector(world: World) -> None:
    active, passive = world.party(), world.party()
    fields = {
        "adapter": active.adapter,
        "object": 77,
        "local": ["127.0.0.1", 0],
        "host": "127.0.0.1",
        "port": 5000,
    }
    assert active.refused("connect", **fields) is Status.CONNECTION_REFUSED
    assert not world.state.processes[active.uid].objects, "nothing stays bound"
    listener = passive.listen(5000)
    reply = active.ask("connect", **fields)
    assert 49152 <= reply["port"] <= 65535
    passive.arm(listener, 1)
    (offer,) = [event for event in passive.events() if event["ev"] == "offer"]
    assert offer["peer"] == ["127.0.0.1", reply["port"]]
    assert active.refused("connect", **fields) is Status.ADDRESS_ALREADY_ASSOCIATED
    active.ask("close", object=77)
    assert not world.state.processes[active.uid].objects


def test_connect_checks_its_own_side(world: World) -> None:
    active, passive = world.party(), world.party()
    passive.listen(5000)
    fields = active.connect_fields(5000)
    for local in (["127.0.0.1", 1], ["127.0.0.2", fields["local"][1]]):
        status = active.refused("connect", **{**fields, "local": local})
        assert status is Status.INVALID_ADDRESS
    status = active.refused("connect", **{**fields, "adapter": passive.adapter})
    assert status is Status.INVALID_HANDLE
    assert active.refused("connect", **{**fields, "object": 99}) is Status.INVALID_HANDLE
    active.ask("connect", **fields)
    assert active.refused("connect", **fields) is Status.CONNECTION_ACTIVE


def test_a_connection_exists_once(world: World) -> None:
    active, passive, _ = connected(world)
    fields = active.connect_fields(5000)
    number = fields["object"]
    passive.arm(1, 5)
    second = active.ask("connect", **fields)["connection"]
    passive.accept(second)
    active.ask("close", object=number)  # the port is free, the connection is still there
    bind = {"adapter": active.adapter, "object": 50, "kind": "connector"}
    active.ask("bind", **bind, host="127.0.0.1", port=fields["local"][1])
    again = {**fields, "object": 50}
    assert active.refused("connect", **again) is Status.ADDRESS_ALREADY_EXISTS
    passive.ask("closed", connection=second)  # one end says so
    active.ask("connect", **again)


def test_a_listener_at_the_any_address_is_found(world: World) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000, host="0.0.0.0"))
    number = active.bind("connector", 6000, "0.0.0.0")
    active.ask(
        "connect",
        adapter=active.adapter,
        object=number,
        local=["127.0.0.9", 6000],
        host="127.0.0.5",
        port=5000,
    )
    offer = passive.events()[-1]
    assert (offer["local"], offer["peer"]) == (["127.0.0.5", 5000], ["127.0.0.9", 6000])


def test_a_process_may_connect_to_itself(world: World) -> None:
    party = world.party()
    party.arm(party.listen(5000))
    connection = party.connect(5000)
    assert party.names() == ["peer", "offer"]
    party.accept(connection)
    assert party.names() == ["accepted"]
    party.segment(1)
    assert party.names() == ["segment"]
    party.ask("closed", connection=connection)
    assert [n for n, *_ in world.state.connections.records] == [connection]
    party.ask("closed", connection=connection)
    assert world.state.connections.records == {}
    party.ask("closed", connection=connection)


# --- answers ---
def test_reject_brings_its_private_data(world: World) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    fields = active.connect_fields(5000)
    connection = active.ask("connect", **fields)["connection"]
    passive.ask("reject", connection=connection, private=encode_private(b"no"))
    assert active.events() == [
        {
            "ev": "refused",
            "connection": connection,
            "status": Status.CONNECTION_REFUSED,
            "message": "the peer refused or gave up",
            "private": encode_private(b"no"),
        }
    ]
    assert passive.refused("reject", connection=connection) is Status.CONNECTION_ABORTED
    active.ask("connect", **fields)  # with the same connector


def test_only_the_one_it_was_offered_to_answers_and_once(world: World) -> None:
    active, passive, stranger = world.party(), world.party(), world.party()
    listener = passive.listen(5000)
    connection = active.connect(5000)
    accept = {"connection": connection, "size": 1}
    assert passive.refused("accept", [Fake()], **accept) is Status.CONNECTION_ABORTED  # queued
    passive.arm(listener)
    for other in (active, stranger):
        assert other.refused("accept", [Fake()], **accept) is Status.CONNECTION_ABORTED
        assert other.refused("reject", connection=connection) is Status.CONNECTION_ABORTED
    assert passive.refused("accept", [Fake(size=0)], **accept) is Status.INVALID_BUFFER_SIZE
    passive.accept(connection)
    assert passive.refused("accept", [Fake()], **accept) is Status.INVALID_DEVICE_STATE
    assert passive.refused("reject", connection=connection) is Status.INVALID_DEVICE_STATE
    assert active.names() == ["peer", "accepted"]
    stranger.ask("closed", connection=connection)
    stranger.ask("withdraw", connection=connection)
    assert passive.names() == ["peer", "offer"]


def test_withdraw_before_the_offer_is_silent(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    connection = active.connect(5000)
    active.ask("withdraw", connection=connection)
    active.ask("withdraw", connection=connection)
    passive.arm(listener)
    assert passive.take() == []


@pytest.mark.parametrize("accepted", [False, True])
def test_withdraw_after_the_offer_is_an_event(world: World, accepted: bool) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    connection = active.connect(5000)
    if accepted:
        passive.accept(connection)
    passive.take()
    active.ask("withdraw", connection=connection)
    assert passive.events() == [{"ev": "withdrawn", "connection": connection}]
    status = Status.INVALID_DEVICE_STATE if accepted else Status.CONNECTION_ABORTED
    assert passive.refused("accept", [Fake()], connection=connection, size=1) is status


@pytest.mark.parametrize("op", ["reject", "withdraw"])
def test_a_reason_does_not_control_the_terminal_of_the_peer(world: World, op: str) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    connection = active.connect(5000)
    if op == "withdraw":
        passive.accept(connection)
    sender, receiver = (passive, active) if op == "reject" else (active, passive)
    receiver.take()
    sender.ask(op, connection=connection, why="\x1b[31mno\r\nroom\x9b2J: é" + "\x1b" * 1000)
    (event,) = receiver.events()
    text = event["message"] if op == "reject" else event["why"]
    assert text.isprintable()
    assert "\\x1b[31mno\\r\\nroom\\x9b2J: é" in text
    before = "the peer could not accept: " if op == "reject" else ""
    assert len(text) == len(before) + MAX_REASON


def test_closing_a_connector_gives_its_attempt_up(world: World) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    fields = active.connect_fields(5000)
    active.ask("connect", **fields)
    active.ask("close", object=fields["object"])
    assert passive.names() == ["peer", "offer", "withdrawn"]
    assert world.state.connections.records == {}


def test_closing_a_listener_refuses_waiting_but_not_offered_attempts(world: World) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    passive.arm(listener, 1)
    offered, waiting = active.connect(5000), active.connect(5000)
    passive.arm(passive.listen(5001), 2)
    passive.take()
    passive.ask("close", object=listener)
    assert [(e["ev"], e["connection"]) for e in active.events()] == [("refused", waiting)]
    passive.accept(offered)
    assert active.names() == ["peer", "accepted"]
    passive.listen(5000)


def test_closing_an_adapter_takes_all_that_is_its_own(world: World) -> None:
    active, passive, connection = connected(world)
    passive.arm(1, 5)
    offered = active.connect(5000)
    passive.take()
    active.ask("adapter_close", adapter=active.adapter)
    events = [(e["ev"], e.get("connection")) for e in passive.events()]
    assert set(events[:-1]) == {("withdrawn", connection), ("withdrawn", offered)}
    assert events[-1] == ("adapter_gone", None)
    passive.ask("closed", connection=connection)
    assert world.state.connections.records == {}


def test_closing_the_passive_adapter_refuses_offered_attempts(world: World) -> None:
    active, passive, connection = connected(world)
    passive.arm(1, 5)
    offered = active.connect(5000)
    waiting = active.connect(5000)
    passive.ask("adapter_close", adapter=passive.adapter)
    events = [(e["ev"], e.get("connection")) for e in active.events()]
    assert events == [("refused", waiting), ("refused", offered), ("adapter_gone", None)]
    active.ask("closed", connection=connection)
    assert world.state.connections.records == {}
