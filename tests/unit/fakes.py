# SPDX-License-Identifier: Apache-2.0
"""Two processes in one, without sockets and without the compiled part.

The broker is the real one behind its socket (`Rendezvous`), with every message through its JSON
form, so what the objects say to it is checked as strictly as in earnest. The data plane is a fake:
queue pairs that share a record of which side has opened, rejected or closed a link.
"""

import contextlib
import enum
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shmnd.broker.protocol import VERSION, PassedFd, decode, encode, name_of
from shmnd.broker.service.rendezvous import Rendezvous
from shmnd.common.owned import Owned
from shmnd.handshake.queue_pair_link import QpState
from shmnd.info import LIMITS
from shmnd.runtime.progress import ProgressEngine
from shmnd.status import Status, error
from unit.sealed import sealed_memory

UID_DIGITS = 32


# -- the broker -----------------------------------------------------------------------------------


class FakeBroker:
    """A broker whose clients are objects of this process; it may die and another one come."""

    def __init__(self) -> None:
        self.rendezvous = Rendezvous(place="/tests")
        self.clients: dict[int, FakeClient] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fail: dict[str, Status] = {}
        """Requests that the next time are answered with this status instead."""
        self._last = 0
        self.lock = threading.RLock()
        self.runs = True
        self.room_to_ask = False
        """Take requests whose answers are events."""
        self.slow = False
        """Take those only when their client says or asks more."""

    def admit(self, client: "FakeClient") -> int:
        self._last += 1
        self.runs = True
        self.clients[self._last] = client
        self.rendezvous.admit(self._last, os.getpid(), os.geteuid())
        return self._last

    def handle(self, number: int, message: Mapping[str, Any], fds: Sequence[int]) -> None:
        with self.lock:  # the real one has one thread
            self._handle(number, message, fds)

    def _handle(self, number: int, message: Mapping[str, Any], fds: Sequence[int]) -> None:
        op = message["op"]
        self.calls.append((op, {k: v for k, v in message.items() if k not in ("op", "id")}))
        if op in self.fail and "id" in message:
            answer = {"re": message["id"], "status": int(self.fail.pop(op)), "message": "faked"}
            self.clients[number].inbox.append((answer, []))
            return
        held = [PassedFd(os.dup(fd)) for fd in fds]
        self.rendezvous.handle(number, decode(encode(dict(message))), held)
        del held
        self.pump()

    def pump(self) -> None:
        """Carry out what the broker says."""
        items = self.rendezvous.outbox.items
        while items:
            item = items.popleft()
            client = self.clients.get(item.client)
            if client is not None and item.message is not None:
                copies = [os.dup(fd.fileno()) for fd in item.fds]
                client.inbox.append((decode(encode(item.message)), copies))
                client.wake()

    def leave(self, number: int) -> None:
        with self.lock:
            self._leave(number)

    def _leave(self, number: int) -> None:
        if self.clients.pop(number, None) is not None:
            self.rendezvous.leave(number)
            self.pump()

    def die(self) -> None:
        """Every client loses its session; earlier messages can still be read."""
        self.runs = False
        clients, self.clients = self.clients, {}
        for number, client in clients.items():
            client.alive = False
            client._lose_unheard()
            client.wake()
            self.rendezvous.leave(number)
        self.rendezvous.outbox.items.clear()
        self.rendezvous = Rendezvous(place="/tests")

    def ops(self, *wanted: str) -> list[str]:
        return [op for op, _ in self.calls if not wanted or op in wanted]


class FakeClient:
    """What BrokerClient is, for a FakeBroker."""

    def __init__(self, broker: FakeBroker, engine: ProgressEngine) -> None:
        self.broker = broker
        self.engine = engine
        self.alive = False
        self.inbox: deque[tuple[dict[str, Any], list[int]]] = deque()
        self.unsorted: list[Any] = []
        self._asked: list[int] = []
        self._unheard: deque[tuple[dict[str, Any], list[int]]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        self._pidfd = self._pidfd_of()
        self._next_id = 0
        self._replaying = False
        self._open = True
        self._hello(holds=False)

    def _pidfd_of(self) -> int:
        return os.pidfd_open(os.getpid())

    def _hello(self, *, holds: bool) -> None:
        self.number = self.broker.admit(self)
        self.alive = True
        self._ask(
            "hello",
            (self._pidfd,),
            {"version": VERSION, "key": self.engine.key, "pid": os.getpid(), "holds": holds},
        )

    def fileno(self) -> int:
        return self._event

    def wake(self) -> None:
        if self._open:
            os.eventfd_write(self._event, 1)

    def ask(self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any) -> int:
        if not (self.broker.room_to_ask and self.alive and self._open):
            return 0  # the caller waits for its reply instead
        self._next_id += 1
        self._asked.append(self._next_id)
        message = {"op": op, "id": self._next_id, **fields}
        if self.broker.slow:
            self._unheard.append((message, [os.dup(fd) for fd in fds]))
        else:
            self.broker.handle(self.number, message, fds)
            self.wake()
        return self._next_id

    def be_heard(self) -> None:
        """Have the broker take the requests that it was slow to take."""
        while self._unheard:
            message, fds = self._unheard.popleft()
            self.broker.handle(self.number, message, fds)
            for fd in fds:
                os.close(fd)
            self.wake()

    def call(
        self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        assert self._open, "a call after close()"
        self.reconnect()
        reply = self._ask(op, fds, fields)
        if reply["status"]:
            raise error(reply["status"], caller or op, reply["message"])
        return reply

    def _ask(self, op: str, fds: Sequence[int], fields: Mapping[str, Any]) -> dict[str, Any]:
        self.be_heard()
        self._next_id += 1
        self.broker.handle(self.number, {"op": op, "id": self._next_id, **fields}, fds)
        (reply,) = self._take(lambda message: message.get("re") == self._next_id)
        return reply[0]

    def _take(
        self, wanted: Callable[[dict[str, Any]], bool]
    ) -> list[tuple[dict[str, Any], list[int]]]:
        with self.broker.lock:
            taken = [item for item in self.inbox if wanted(item[0])]
            for item in taken:
                self.inbox.remove(item)
            return taken

    def post(self, op: str, **fields: Any) -> None:
        if self.alive and self._open:
            self.be_heard()
            self.broker.handle(self.number, {"op": op, **fields}, ())

    def events(self) -> list[tuple[dict[str, Any], list[int]]]:
        if self._open:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event)
        taken = self._take(lambda message: "ev" in message or message["re"] in self._asked)
        for message, _ in taken:
            message.setdefault("ev", "answer")
        return taken

    def _lose_unheard(self) -> None:
        while self._unheard:
            for fd in self._unheard.popleft()[1]:
                os.close(fd)

    def broker_runs(self) -> bool:
        return self.broker.runs

    def reconnect(self) -> None:
        if self.alive or self._replaying:
            return
        self._hello(holds=True)
        self._replaying = True
        try:
            self.engine.on_reconnect(self)
            self._ask("holds", (), {"done": True})
        finally:
            self._replaying = False

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._lose_unheard()
        self.broker.leave(self.number)
        for _, fds in self.inbox:
            for fd in fds:
                os.close(fd)
        self.inbox.clear()
        os.close(self._event)
        os.close(self._pidfd)


# -- the data plane -------------------------------------------------------------------------------


class Memory:
    """What the two sides of a link share."""

    def __init__(self) -> None:
        self.state = {True: LinkState.ATTACHED, False: LinkState.ATTACHED}
        self.opened = {True: False, False: False}


class FakeLink:
    memories: dict[int, Memory] = {}  # noqa: RUF012 - stands for the kernel's table of files

    def __init__(self, fd: int, size: int, active: bool) -> None:
        self.fd = fd
        self.size = size
        self.memory = self.memories.setdefault(os.fstat(fd).st_ino, Memory())
        if active:
            self.close_fd()

    def close_fd(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close_fd()


class FakeSegment:
    def __init__(self, fd: int, size: int, writable: bool) -> None:
        os.close(fd)
        self.size = size
        self.writable = writable

    def close_fd(self) -> None:
        pass


class FakePeer:
    def __init__(
        self,
        uid: str,
        pid: int,
        doorbell_fd: int,
        pidfd: int,
        table: Mapping[str, Any],
        same_user: bool,
    ) -> None:
        self.uid = uid
        self.pid = pid
        self.doorbell_fd = doorbell_fd
        self.pidfd = pidfd
        self.table = table
        self.same_user = same_user
        self.dead = False
        self.segments: dict[int, FakeSegment] = {}

    def add_segment(self, seg: int, segment: FakeSegment) -> None:
        self.segments[seg] = segment

    def remove_segment(self, seg: int) -> None:
        del self.segments[seg]

    def mark_dead(self) -> None:
        self.dead = True

    def mute(self) -> None:
        self.doorbell_fd = -1

    def ring(self) -> None:
        pass

    def segment(self, seg: int) -> Any:
        return self.segments.get(seg)


class FakeDataPlane:
    """The makers of the data plane; any of them can be made to fail."""

    def __init__(self) -> None:
        self.fail: dict[str, Status] = {}

    def _maybe_fail(self, what: str) -> None:
        if what in self.fail:
            raise error(self.fail.pop(what), what, "faked")

    def create_link(self, local: tuple[int, ...], remote: tuple[int, ...]) -> FakeLink:
        self._maybe_fail("create_link")
        assert len(local) == len(remote) == 1
        return FakeLink(sealed_memory(), 4096, active=False)

    def attach_link(
        self, fd: int, size: int, local: tuple[int, ...], remote: tuple[int, ...]
    ) -> FakeLink:
        self._maybe_fail("attach_link")
        assert local != remote
        return FakeLink(os.dup(fd), size, active=True)

    def peer_adapter(
        self,
        uid: str,
        pid: int,
        doorbell_fd: int,
        pidfd: int,
        table: Mapping[str, Any],
        same_user: bool,
    ) -> Any:
        self._maybe_fail("peer_adapter")
        return FakePeer(uid, pid, doorbell_fd, pidfd, table, same_user)

    def attach_segment(self, fd: Owned, size: int, writable: bool) -> FakeSegment:
        self._maybe_fail("attach_segment")
        return FakeSegment(fd.detach(), size, writable)


class LinkState(enum.IntEnum):
    """What one side of a link shows to the other."""

    ATTACHED = 0
    OPEN = 1
    REJECTED = 2
    CLOSED = 3
    FAULT = 4
    DEAD = 5


class FakeQueuePair:
    """A queue pair with the states and the manners of the real one, and no queues."""

    made = os.getpid() % 100_000 * 1000
    """Numbers begin elsewhere in each process, since those of the two ends of a link differ."""

    def __init__(self, adapter: "FakeAdapter") -> None:
        FakeQueuePair.made += 1
        self.name = FakeQueuePair.made
        self._adapter = adapter
        self._state = QpState.IDLE
        self.read_limit: int | None = None
        self.attached_read_limit: int | None = None
        self.steps_to_disconnect = 0
        """How many steps a disconnect takes besides the first."""
        self._link: FakeLink | None = None
        self._peer: FakePeer | None = None
        self._active = False
        self._released: Callable[[], None] | None = None

    # what a connector uses

    @property
    def _peer_state(self) -> int:
        assert self._link is not None
        assert self._peer is not None
        if self._peer.dead:
            return LinkState.DEAD
        return self._link.memory.state[not self._active]

    @property
    def _peer_gave_up(self) -> bool:
        assert self._link is not None
        return self._peer_state > LinkState.OPEN and not self._link.memory.opened[True]

    def _moved_from(self, state: int) -> bool:
        return (
            self._link is None
            or self._state != state
            or self._peer_state > LinkState.OPEN
            or (self._state is QpState.ATTACHED and self._link.memory.opened[True])
        )

    def _describe(self) -> tuple[int, ...]:
        return (self.name,)

    def _begin_connect(self) -> None:
        assert self._state is QpState.IDLE
        self._state = QpState.CONNECTING

    def _end_connect(self) -> None:
        assert self._state in (QpState.CONNECTING, QpState.IDLE)
        self._state = QpState.IDLE

    def _set_outbound_read_limit(self, limit: int) -> None:
        assert self._state is QpState.CONNECTING
        self.read_limit = limit

    def _attach(
        self,
        link: FakeLink,
        peer: FakePeer,
        remote: tuple[int, ...],
        active: bool,
        ends: tuple[Any, Any] | None = None,
    ) -> None:
        assert self._state is QpState.CONNECTING
        assert remote
        self._link, self._peer, self._active = link, peer, active
        self.attached_read_limit = self.read_limit
        self._state = QpState.ATTACHED

    def _open(self) -> None:
        assert self._active
        assert self._state is QpState.ATTACHED
        assert self._link is not None
        self._link.memory.opened[True] = True
        self._state = QpState.CONNECTED
        self._show(LinkState.OPEN)

    def _abandon(self, rejected: bool) -> None:
        assert self._state is QpState.ATTACHED
        self._show(LinkState.REJECTED if rejected else LinkState.CLOSED)

    def _detach(self) -> None:
        assert self._state is QpState.ATTACHED
        self._link = self._peer = None
        self._state = QpState.IDLE

    def _disconnect(self) -> bool:
        assert self._state in (QpState.CONNECTED, QpState.DOWN, QpState.CLOSED)
        self._state = QpState.CLOSED
        return self._disconnect_step()

    def _disconnect_step(self) -> bool:
        if self.steps_to_disconnect:
            self.steps_to_disconnect -= 1
            return False
        self._show(LinkState.CLOSED)
        return True

    def _progress(self) -> None:
        if self._link is None:
            return
        opened = self._link.memory.opened[True]
        if self._state is QpState.ATTACHED and not self._active and opened:
            self._state = QpState.CONNECTED
        if self._state is QpState.CONNECTED and self._peer_state > LinkState.OPEN:
            self._state = QpState.DOWN

    def _on_release(self, callback: Callable[[], None] | None) -> None:
        self._released = callback

    # what tests use

    def fault(self) -> None:
        """A request of this side ended with an error."""
        self._state = QpState.DOWN
        self._show(LinkState.FAULT)

    def close(self) -> None:
        released, self._released = self._released, None
        if released is not None:
            released()
        if self._state in (QpState.ATTACHED, QpState.CONNECTED, QpState.DOWN):
            self._show(LinkState.CLOSED)
        self._state = QpState.CLOSED

    def __del__(self) -> None:
        self.close()

    def _show(self, state: LinkState) -> None:
        assert self._link is not None
        assert self._peer is not None
        self._link.memory.state[self._active] = state
        try:
            os.write(self._peer.doorbell_fd, b"\0")
        except OSError:
            pass  # the other progress engine is gone


# -- the ends -------------------------------------------------------------------------------------


class FakeAdapter:
    """An adapter with a host, limits and as many segments as a test wants."""

    def __init__(
        self, engine: ProgressEngine, host: str = "127.0.0.1", limits: Any = LIMITS
    ) -> None:
        self._engine = engine
        self._host = host
        self._limits = limits
        self._key = os.urandom(UID_DIGITS // 2).hex()
        self.uid = name_of(self._key)
        self.owned: list[tuple[int, int, int, bool]] = []
        self.open = True
        engine._users.add(self.uid)
        engine.register_adapter(self, {"made": "for a test"})

    def _segments(self) -> list[tuple[int, int, int, bool]]:
        return self.owned

    def add_segment(self, seg: int, size: int = 4096, writable: bool = True) -> None:
        fd = sealed_memory(size)
        self.owned.append((seg, size, fd, writable))
        self._engine.announce_segment(self, seg, size, fd, writable, "Adapter.allocate")

    def _check_open(self, call: str) -> None:
        if not self.open:
            raise error(Status.DEVICE_REMOVED, call, "its adapter is closed")
        self._engine.check(call)

    @property
    def _closed(self) -> bool:
        return not self.open

    def queue_pair(self) -> FakeQueuePair:
        return FakeQueuePair(self)

    def close(self) -> None:
        if self.open:
            self.open = False
            self._engine.unregister_adapter(self)
            for _, _, fd, _ in self.owned:
                os.close(fd)


class World:
    """A broker and as many processes as a test wants; closed at the end of the test."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.planes: list[FakeDataPlane] = []
        self._adapters: list[weakref.ref[FakeAdapter]] = []
        self._engines: list[ProgressEngine] = []

    def engine(self) -> ProgressEngine:
        plane = FakeDataPlane()
        engine = ProgressEngine(lambda new: FakeClient(self.broker, new), plane)
        engine._reconnection.run_in_thread = lambda step: step()  # the fakes know one thread
        self.planes.append(plane)
        self._engines.append(engine)
        return engine

    def adapter(self, engine: ProgressEngine | None = None, **options: Any) -> FakeAdapter:
        """An adapter of a process of its own, or of one that is there."""
        adapter = FakeAdapter(engine or self.engine(), **options)
        self._adapters.append(weakref.ref(adapter))
        return adapter

    def progress(self) -> None:
        for engine in self._engines:
            engine.progress()

    def close(self) -> None:
        for ref in self._adapters:
            adapter = ref()
            if adapter is not None:
                adapter.close()
        for engine in self._engines:
            engine.close()
        FakeLink.memories.clear()
