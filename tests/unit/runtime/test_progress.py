# SPDX-License-Identifier: Apache-2.0
"""The progress engine: peers and their deaths, segments, mail, replay, fork, and the real
broker.
"""

import errno
import functools
import gc
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmnd.address import Address
from shmnd.common.held import Held
from shmnd.common.owned import Owned
from shmnd.connector import Connector
from shmnd.listener import Listener
from shmnd.runtime.broker.state import BrokerState, Live
from shmnd.status import NdError, Status, error
from unit.fakes import FakeClient, World
from unit.opened import is_open
from unit.runtime.progress_kit import WAIT
from unit.sides import End, Sides


def peer_of(end: End, other: End) -> Any:
    end.engine.progress()
    return end.engine.peer_adapter(other.adapter.uid)


# -- peers and segments ---------------------------------------------------------------------------
def test_peers_are_introduced_when_they_are_needed(sides: Sides) -> None:
    assert peer_of(sides.passive, sides.active) is None
    sides.to("A2")
    known = peer_of(sides.passive, sides.active)
    assert (known.uid, known.pid) == (sides.active.adapter.uid, os.getpid())
    assert known.table == {"made": "for a test"}
    assert peer_of(sides.active, sides.passive) is None
    sides.accept()
    assert peer_of(sides.active, sides.passive) is not None
    assert peer_of(sides.passive, sides.active) is known


def test_segments_are_mapped_before_and_after(sides: Sides) -> None:
    sides.active.adapter.add_segment(1, 4096)
    sides.to("A2")
    known = peer_of(sides.passive, sides.active)
    assert {n: (s.size, s.writable) for n, s in known.segments.items()} == {1: (4096, True)}
    sides.active.adapter.add_segment(2, 8192, writable=False)
    assert 2 not in known.segments
    sides.passive.engine.sync()
    assert known.segments[2].writable is False
    sides.active.engine.withdraw_segment(sides.active.adapter, 1)
    sides.passive.engine.sync()
    assert set(known.segments) == {2}


def test_a_segment_that_differs_from_its_description_is_left_out(sides: Sides) -> None:
    sides.to("A2")
    sides.passive.engine.data_plane.fail["attach_segment"] = Status.INTERNAL_ERROR
    sides.active.adapter.add_segment(1)
    sides.active.adapter.add_segment(2)
    sides.passive.engine.sync()
    assert set(peer_of(sides.passive, sides.active).segments) == {2}


def test_a_peer_that_makes_no_sense_cannot_be_accepted(sides: Sides) -> None:
    sides.passive.engine.data_plane.fail["peer_adapter"] = Status.INVALID_PARAMETER
    sides.to("P2")
    with pytest.raises(NdError, match="the active side's process is gone"):
        sides.passive.connector.accept(sides.passive.qp)


def test_the_record_of_a_peer_lasts_as_long_as_a_queue_pair_needs_it(sides: Sides) -> None:
    sides.to("A4")
    known = peer_of(sides.passive, sides.active)
    doorbell = known.doorbell_fd
    sides.active.connector.close()
    sides.active.adapter.close()
    assert peer_of(sides.passive, sides.active) is None
    assert sides.passive.qp._peer is known
    assert is_open(doorbell), "the queue pair may still ring it"
    sides.passive.connector.close()
    sides.passive.qp.close()
    del sides.passive.qp, known
    gc.collect()
    assert not is_open(doorbell)
    assert not sides.passive.engine._peers._processes


def test_an_adapter_that_is_closed_while_its_process_lives_on(world: World) -> None:
    server = world.adapter(host="127.0.0.2")
    engine = world.engine()
    keeper = world.adapter(engine=engine)
    listener = Listener(server)
    listener.bind(("127.0.0.2", 0))
    listener.listen()
    for _ in range(3):
        client = world.adapter(engine=engine)
        client.add_segment(1)
        connector, partner = Connector(client), Connector(server)
        qp, partner_qp = client.queue_pair(), server.queue_pair()
        pending = connector.connect(qp, listener.get_local_address())
        listener.get_connection_request(partner).result(WAIT)
        partner.accept(partner_qp)
        pending.result(WAIT)
        connector.complete_connect()
        for obj in (connector, partner, qp, partner_qp, client):
            obj.close()
        del connector, partner, qp, partner_qp, client, obj
        gc.collect()
        server._engine.progress()
        assert not server._engine._peers._adapters
        assert not server._engine._peers._processes
    keeper.close()
    listener.close()


def test_both_processes_meet_again_at_a_new_broker(sides: Sides) -> None:
    """Known segments are kept, and new ones are added."""
    sides.active.adapter.add_segment(1)
    sides.to("A4")
    known = peer_of(sides.passive, sides.active)
    segment = known.segments[1]
    fds = set(Path("/proc/self/fd").iterdir())
    sides.world.broker.die()
    sides.active.adapter.add_segment(2)
    sides.passive.engine.sync()
    sides.active.engine.sync()
    sides.passive.engine.sync()
    assert peer_of(sides.passive, sides.active) is known
    assert known.segments[1] is segment
    assert set(known.segments) == {1, 2}
    sides.active.engine.progress()  # it finds that the new doorbell is not needed
    assert len(set(Path("/proc/self/fd").iterdir()) - fds) <= 2, "the new segment, here and there"


def test_events_that_lost_their_descriptors(sides: Sides) -> None:
    engine, client = sides.active.engine, sides.active.engine.client
    for event in (
        {"ev": "peer", "adapter": "a", "process": "p", "pid": 1, "table": {}},
        {"ev": "segment", "adapter": "a", "seg": 1, "size": 1, "writable": True},
    ):
        client.inbox.append(({**event, "fds_lost": True}, []))
    client.wake()
    engine.progress()
    sides.to("A2")
    attempt: Any = sides.active.connector._attempt
    number = attempt.connection
    lost: dict[str, Any] = {
        "ev": "accepted",
        "connection": number,
        "peer_adapter": "a",
        "private": "",
        "answer": "",
        "size": 1,
        "fds_lost": True,
    }
    client.inbox.append((lost, []))
    client.wake()
    assert sides.connecting.status is Status.INSUFFICIENT_RESOURCES
    assert sides.passive.connector.get_private_data() == b"the offer"


@pytest.mark.parametrize("times", [1, 2])
def test_a_peer_whose_process_cannot_be_watched_now(
    sides: Sides, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sides.passive.engine
    include, faults = engine._wait_set.include, [OSError(errno.ENOSPC, "no room")] * times

    def with_no_room(fd: int) -> None:
        if faults:
            raise faults.pop()
        include(fd)

    monkeypatch.setattr(engine._wait_set, "include", with_no_room)
    sides.offer()
    assert engine.peer_adapter(sides.active.adapter.uid) is None
    if times == 2:
        with pytest.raises(NdError, match="max_user_watches") as caught:
            sides.accept()
        assert caught.value.status is Status.INSUFFICIENT_RESOURCES
    sides.accept()
    assert sides.connecting.status is Status.SUCCESS


@pytest.mark.parametrize("lost", ["its descriptor", "its mapping"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_segment_of_a_peer_for_which_there_is_no_room_now(
    sides: Sides, lost: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sides.passive.engine
    faults = ["segment"] * times
    events, attach = engine.client.events, engine._peers._data_plane.attach_segment

    def losing() -> list[Any]:
        found = []
        for event, fds in events():
            if event["ev"] == "segment" and lost == "its descriptor" and faults:
                faults.pop()
                event = {**event, "fds_lost": True}
                os.close(fds.pop())
            found.append((event, fds))
        return found

    def unmappable(fd: Owned, size: int, writable: bool) -> Any:
        if lost == "its mapping" and faults:
            faults.pop()
            raise error(Status.INSUFFICIENT_RESOURCES, "Segment.map", "no address space")
        return attach(fd, size, writable)

    monkeypatch.setattr(engine.client, "events", losing)
    monkeypatch.setattr(engine._peers._data_plane, "attach_segment", unmappable)
    sides.active.adapter.add_segment(1)
    sides.offer()
    assert engine.peer_adapter(sides.active.adapter.uid) is not None
    if times == 2:
        with pytest.raises(NdError, match="ulimit") as caught:
            sides.accept()
        assert caught.value.status is Status.INSUFFICIENT_RESOURCES
    sides.accept()
    assert sides.connecting.status is Status.SUCCESS
    assert not faults
    assert 1 in engine.peer_adapter(sides.active.adapter.uid).segments


def test_a_poll_in_the_midst_of_a_connect_takes_nothing_of_it(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler polls: in the same thread, before the request of the answer is known."""
    engine = sides.active.engine
    ask, call = engine.client.ask, engine.client.call

    def interrupted(real: Any, *arguments: Any, **keywords: Any) -> Any:
        done = real(*arguments, **keywords)
        if arguments[0] == "connect" and done:
            sides.request()
            sides.passive.engine.progress()
            sides.accept()
            engine.progress()
        return done

    monkeypatch.setattr(engine.client, "ask", functools.partial(interrupted, ask))
    monkeypatch.setattr(engine.client, "call", functools.partial(interrupted, call))
    sides.connect()
    assert sides.connecting.status is Status.SUCCESS
    assert sides.active.connector.complete_connect().status is Status.SUCCESS
    assert sides.accepting.status is Status.SUCCESS


def test_a_handler_that_raises_while_events_are_sorted_loses_none(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sides.passive.engine
    sides.active.adapter.add_segment(1)
    meet, faults = engine._peers.meet, [KeyboardInterrupt()]

    def interrupted(event: Any, fds: list[int]) -> None:
        if faults:
            raise faults.pop()
        meet(event, fds)

    monkeypatch.setattr(engine._peers, "meet", interrupted)
    sides.connect()
    sides.requesting = sides.listener.get_connection_request(sides.passive.connector)
    with pytest.raises(KeyboardInterrupt):
        engine.progress()
    engine.progress()
    assert sides.requesting.status is Status.SUCCESS
    sides.accept()
    assert sides.connecting.status is Status.SUCCESS
    assert 1 in engine.peer_adapter(sides.active.adapter.uid).segments


def test_answers_without_an_end_are_answered(sides: Sides) -> None:
    """A connector that is gone without a word (an interrupted call) leaves no peer waiting."""
    sides.to("A2")
    sides.active.engine._ends.clear()
    sides.accept()
    sides.active.engine.progress()
    assert sides.accepting.status is Status.CONNECTION_REFUSED


# -- deaths ---------------------------------------------------------------------------------------
@pytest.fixture
def killable() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()


def test_a_death_is_noticed_without_the_broker(
    world: World, killable: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FakeClient, "_pidfd_of", lambda self: os.pidfd_open(killable.pid))
        doomed = End(world, "127.0.0.2")
    survivor = End(world, "127.0.0.1")
    listener = doomed.new_listener()
    listener.bind(("127.0.0.2", 0))
    listener.listen()
    pending = survivor.connector.connect(survivor.qp, listener.get_local_address())
    listener.get_connection_request(doomed.connector).result(WAIT)
    accepting = doomed.connector.accept(doomed.qp)
    pending.result(WAIT)
    survivor.connector.complete_connect()
    accepting.result(WAIT)
    known = peer_of(survivor, doomed)
    notice = survivor.connector.notify_disconnect()
    assert notice._seen() is Status.PENDING
    killable.kill()
    assert select.select([survivor.engine.epoll_fd], [], [], WAIT)[0]
    notice.result(WAIT)
    assert known.dead
    assert peer_of(survivor, doomed) is None
    survivor.engine.progress()
    assert not select.select([survivor.engine.epoll_fd], [], [], 0)[0], "noticed once"
    assert "gone" not in [op for op, _ in world.broker.calls]
    survivor.connector.close()
    listener.close()
    doomed.connector.close()


# -- speaking and being interrupted ---------------------------------------------------------------
def test_an_event_that_comes_before_its_reply(sides: Sides) -> None:
    """The answer to a connect may be read by another thread before the connect returned."""
    sides.request()
    seen: list[Any] = []
    engine, how = sides.active.engine, "ask" if sides.world.broker.room_to_ask else "call"
    call = getattr(engine.client, how)

    def slow(op: str, *args: Any, **fields: Any) -> Any:
        reply = call(op, *args, **fields)
        if op == "connect":
            sides.requesting.result(WAIT)
            sides.accept()
            other = threading.Thread(target=lambda: seen.append(engine.progress()))
            other.start()
            other.join(WAIT)
        return reply

    setattr(engine.client, how, slow)
    sides.connect()
    assert seen == [None]
    assert sides.connecting.status is Status.SUCCESS


def test_progress_never_waits_for_a_call_to_the_broker(sides: Sides) -> None:
    gate = threading.Event()
    engine, call = sides.active.engine, sides.active.engine.client.call

    def stuck(op: str, *args: Any, **fields: Any) -> Any:
        assert gate.wait(WAIT)
        return call(op, *args, **fields)

    sides.to("A2")
    engine.client.call = stuck
    thread = threading.Thread(target=engine.sync)
    thread.start()
    sides.passive.connector.reject()
    for _ in range(3):
        engine.progress()
    assert sides.connecting._seen() is Status.PENDING
    gate.set()
    sides.connecting._wait(WAIT)
    thread.join(WAIT)
    assert sides.connecting._seen() is Status.CONNECTION_REFUSED


def test_a_busy_connector_is_polled_later(sides: Sides) -> None:
    sides.to("A2")
    sides.passive.connector.reject()
    released = threading.Event()
    held = threading.Event()

    def hold() -> None:
        with Held(sides.active.connector._lock):
            held.set()
            released.wait(WAIT)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(WAIT)
    sides.active.connector._tick()
    assert select.select([sides.active.engine.epoll_fd], [], [], WAIT)[0]
    released.set()
    holder.join(WAIT)
    assert sides.connecting.status is Status.CONNECTION_REFUSED


def test_progress_within_progress_does_nothing(world: World) -> None:
    adapter = world.adapter()

    class Nosy:
        polls = 0

        def _tick(self) -> None:
            self.polls += 1
            adapter._engine.progress()

    nosy = Nosy()
    adapter._engine.pending_operations.add(nosy)
    adapter._engine.progress()
    assert nosy.polls == 1
    adapter._engine.pending_operations.remove(nosy)
    adapter._engine.progress()
    assert nosy.polls == 1
    adapter._engine.pending_operations.add(nosy)
    del nosy
    adapter._engine.progress()
    assert not adapter._engine.pending_operations._tickers


def test_a_ring_that_comes_with_a_message_of_the_broker_is_not_lost(world: World) -> None:
    engine = world.adapter()._engine
    polls: list[int] = []

    class Pending:
        def _tick(self) -> None:
            polls.append(len(calls))

    waits = Pending()
    engine.pending_operations.add(waits)
    calls: list[None] = []

    def ring_once() -> bool:
        calls.append(None)
        if len(calls) == 1:  # behind the poll before the sleep: one sleep finds both
            engine.client.wake()
            engine.ring()
        return len(calls) == 2

    assert engine.wait(ring_once, WAIT)
    assert polls == [0, 1]
    calls.clear()
    polls.clear()

    def broker_alone() -> bool:
        calls.append(None)
        if len(calls) == 1:
            engine.client.wake()
        return len(calls) == 2

    assert engine.wait(broker_alone, WAIT)
    assert polls == [0], "the broker alone changes no link"
    engine.pending_operations.remove(waits)


def test_use_from_several_threads(world: World) -> None:
    """Connections are made and ended by many threads of two processes at once (rule G6)."""
    server, client = world.adapter(host="127.0.0.2"), world.adapter()
    listener = Listener(server)
    listener.bind(("127.0.0.2", 0))
    listener.listen()
    address = listener.get_local_address()
    failures: list[BaseException] = []
    width, rounds = 4, 12

    def serve() -> None:
        for _ in range(rounds):
            connector, qp = Connector(server), server.queue_pair()
            listener.get_connection_request(connector).result(WAIT)
            connector.accept(qp, 0, 0, connector.get_private_data()).result(WAIT)
            connector.notify_disconnect().result(WAIT)
            connector.disconnect().result(WAIT)
            connector.close()

    def ask(number: int) -> None:
        for turn in range(rounds):
            connector, qp = Connector(client), client.queue_pair()
            private = b"%d %d" % (number, turn)
            connector.connect(qp, address, 0, 0, private).result(WAIT)
            assert connector.get_private_data() == private
            connector.complete_connect().result(WAIT)
            connector.disconnect().result(WAIT)
            connector.close()

    def body(call: Any, *args: Any) -> None:
        try:
            call(*args)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=body, args=(serve,)) for _ in range(width)]
    threads += [threading.Thread(target=body, args=(ask, n)) for n in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * WAIT)
        assert not thread.is_alive(), failures
    assert not failures
    listener.close()
    client._engine.progress()
    assert not world.broker.rendezvous.connections.records
    for engine in (server._engine, client._engine):
        assert not engine._ends
        assert not engine.pending_operations._tickers
        assert not engine.broker_state.live


# -- the broker state
# -----------------------------------------------------------------------------------
def test_replay_goes_in_pages() -> None:
    broker_state = BrokerState()
    for number in range(1, 151):
        key: Address = "127.0.0.1", number
        broker_state.live["active", number] = Live(
            number, "a" * 32, "b" * 32, key, key, "active", 6
        )
    told: list[Any] = []

    class Client:
        def call(self, op: str, fds: Any = (), **fields: Any) -> dict[str, Any]:
            told.append((op, len(fields["connections"])))
            return {}

    assert broker_state.replay(Client()) == []  # type: ignore[arg-type]
    assert told == [("holds", 64), ("holds", 64), ("holds", 22)]


def test_a_replay_that_fails_is_tried_again(sides: Sides) -> None:
    sides.to("P1")
    sides.world.broker.die()
    sides.world.broker.fail["bind"] = Status.INSUFFICIENT_RESOURCES
    sides.passive.engine.progress()
    assert sides.requesting._seen() is Status.PENDING
    sides.passive.engine.client.alive = False
    sides.passive.engine._reconnection.not_before = 0.0
    sides.passive.engine.ring()
    sides.passive.engine.progress()
    sides.connect()
    assert sides.requesting.status is Status.SUCCESS


def test_a_process_that_does_not_listen_joins_a_broker_but_starts_none(world: World) -> None:
    adapter = world.adapter()
    world.broker.die()
    adapter._engine.progress()
    assert not adapter._engine.client.alive
    world.adapter()  # another process starts a broker
    adapter._engine.ring()
    adapter._engine.progress()
    assert not adapter._engine.client.alive, "there is a pause between two attempts"
    adapter._engine._reconnection.not_before = 0.0
    adapter._engine.ring()
    adapter._engine.progress()
    assert adapter._engine.client.alive
    assert adapter.uid in world.broker.rendezvous.adapters


def test_a_replay_without_an_adapter_that_is_just_dying(world: World) -> None:
    adapter = world.adapter()
    gone: Any = lambda: None  # noqa: E731 - a weak reference that is dead
    adapter._engine.broker_state.adapters["f" * 32] = (gone, {})
    world.broker.die()
    adapter._engine.sync()
    assert set(world.broker.rendezvous.adapters) == {adapter.uid}
    adapter._engine.broker_state.adapters.pop("f" * 32)
