# SPDX-License-Identifier: Apache-2.0
"""Two adapters in two processes of a fake world, and the way to every state of a connector."""

from collections.abc import Callable
from typing import Any

from shmnd.connector import Connector
from shmnd.handshake.attempt import State
from shmnd.listener import Listener
from shmnd.overlapped import Overlapped, OverlappedFile
from shmnd.status import NdError, Status
from unit.fakes import FakeAdapter, FakeQueuePair, World

STATES = {
    "A0": State.NEW,
    "A1": State.BOUND,
    "A2": State.CONNECTING,
    "A3": State.ACCEPTED,
    "A4": State.CONNECTED,
    "A5": State.DOWN,
    "A6": State.CLOSED,
    "P0": State.NEW,
    "P1": State.WAITING,
    "P2": State.OFFERED,
    "P3": State.ACCEPTING,
    "P4": State.CONNECTED,
    "P5": State.DOWN,
    "P6": State.CLOSED,
}


def outcome(call: Callable[..., Any], *args: Any) -> Status:
    """The status of a call: what it raised, or what its operation has now."""
    try:
        result = call(*args)
    except NdError as exc:
        return exc.status
    return result.status if isinstance(result, Overlapped) else Status.SUCCESS


class End:
    """One side: a process of its own with a connector and a queue pair."""

    def __init__(self, world: World, host: str) -> None:
        self.adapter: FakeAdapter = world.adapter(host=host)
        self.file = OverlappedFile(self.adapter)
        self.connector = self.new_connector()
        self.qp = self.adapter.queue_pair()
        self.kept: list[object] = []

    def new_connector(self) -> Connector:
        return Connector(self.adapter, self.file)

    def new_qp(self) -> FakeQueuePair:
        """A queue pair that lives on, as if a program kept it."""
        qp = self.adapter.queue_pair()
        self.kept.append(qp)
        return qp

    def new_listener(self) -> Listener:
        return Listener(self.adapter, self.file)

    @property
    def state(self) -> State:
        self.adapter._engine.progress()
        self.connector._tick()
        return self.connector._state

    @property
    def engine(self) -> Any:
        return self.adapter._engine


class Sides:
    """The active and the passive side, and the steps between their states."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.active = End(world, "127.0.0.1")
        self.passive = End(world, "127.0.0.2")
        self.listener = self.passive.new_listener()
        self.listener.bind(("127.0.0.2", 0))
        self.listener.listen()
        self.address = self.listener.get_local_address()
        self.connecting: Any = None
        self.requesting: Any = None
        self.accepting: Any = None
        self.notified: dict[str, Any] = {}

    def bind(self) -> None:
        self.active.connector.bind(("127.0.0.1", 0))

    def connect(self, private: Any = b"the offer") -> Any:
        end = self.active
        self.connecting = end.connector.connect(end.qp, self.address, 5, 7, private)
        return self.connecting

    def request(self) -> Any:
        self.requesting = self.listener.get_connection_request(self.passive.connector)
        return self.requesting

    def offer(self) -> None:
        """A2, P2."""
        self.connect()
        self.request()
        assert self.requesting.status is Status.SUCCESS

    def offer_slowly(self, heard: Callable[["Sides"], None]) -> None:
        """A2, P2 by a broker that has to be waited for."""
        self.connect()
        self.request()
        heard(self)
        assert self.requesting.status is Status.SUCCESS
        assert self.active.state is State.CONNECTING

    def accept(self, private: Any = b"the answer") -> Any:
        end = self.passive
        self.accepting = end.connector.accept(end.qp, 9, 3, private)
        return self.accepting

    def offer_and_accept(self) -> None:
        """A3, P3."""
        self.offer()
        self.accept()
        assert self.connecting.status is Status.SUCCESS

    def complete(self) -> None:
        """A4, P4."""
        self.offer_and_accept()
        assert self.active.connector.complete_connect().status is Status.SUCCESS
        assert self.accepting.status is Status.SUCCESS

    def active_down(self) -> None:
        """A5, P6."""
        self.complete()
        assert self.passive.connector.disconnect().status is Status.SUCCESS

    def passive_down(self) -> None:
        """A6, P5."""
        self.complete()
        assert self.active.connector.disconnect().status is Status.SUCCESS

    def to(self, state: str) -> None:
        """Bring the side that the letter names to a state."""
        steps: dict[str, Callable[[], Any]] = {
            "A1": self.bind,
            "A2": self.offer,
            "A3": self.offer_and_accept,
            "A4": self.complete,
            "A5": self.active_down,
            "A6": self.passive_down,
            "P1": self.request,
            "P2": self.offer,
            "P3": self.offer_and_accept,
            "P4": self.complete,
            "P5": self.passive_down,
            "P6": self.active_down,
        }
        if state in steps:
            steps[state]()
        assert self.side(state).state is STATES[state]

    def side(self, state: str) -> End:
        return self.active if state[0] == "A" else self.passive

    def assert_nothing_undecided(self) -> None:
        """The broker and both progress engines know of no connection, and of nothing but the
        listener.
        """
        rendezvous = self.world.broker.rendezvous
        assert not rendezvous.connections.records
        for end in (self.active, self.passive):
            assert not end.engine._ends
            assert not end.engine.broker_state.live
            assert not end.engine.broker_state.armed
        bound = [b for p in rendezvous.processes.values() for b in p.objects.values()]
        assert [b.kind for b in bound] in (["listener"], [])
        assert not self.active.engine.broker_state.bound
