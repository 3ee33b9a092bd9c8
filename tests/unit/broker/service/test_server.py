# SPDX-License-Identifier: Apache-2.0
"""The broker's sockets: good clients are served whatever bad ones do."""

import contextlib
import errno
import json
import os
import random
import select
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shmnd.broker.place import Place
from shmnd.broker.protocol import MAX_FDS, MAX_MESSAGE, VERSION, decode, encode, receive, split
from shmnd.broker.service import client_queues
from shmnd.broker.service import server as server_module
from shmnd.broker.service.rendezvous import Rendezvous
from shmnd.broker.service.server import Server, ServerLimits
from shmnd.broker.service.validation import REQUESTS
from shmnd.status import Status
from unit.broker.wire import PATIENCE, Wire, serving
from unit.sealed import sealed_memory


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def eventually(what: Any) -> None:
    """Wait until something is true; the broker runs in another thread."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- service ---


def test_a_connection_with_its_descriptors(place: Place, broker: Server) -> None:
    with Wire(place).hello() as active, Wire(place).hello() as passive:
        port = passive.listen(1)
        passive.ask("request", object=1, connector=5)
        segment = sealed_memory(8192)
        active.ask("segment", [segment], adapter=active.adapter, seg=1, size=8192, writable=False)
        connection = active.connect(1, port)
        (peer, (ringing, pidfd)), (seg, (got,)) = passive.event("peer"), passive.event("segment")
        assert peer["process"] == active.uid
        doorbell, (listening,) = active.event("doorbell")
        assert doorbell["process"] == passive.uid
        os.write(ringing.fileno(), b"!")
        assert os.read(listening.fileno(), 9) == b"!"
        ringing.close()
        assert os.read(listening.fileno(), 9) == b"", "no other process has kept it"
        assert "pidfd" in pidfd.kind()
        assert os.path.sameopenfile(got.fileno(), segment)
        assert seg["size"] == 8192
        assert passive.event("offer")[0]["connection"] == connection
        link = sealed_memory()
        passive.ask("accept", [link], connection=connection, size=4096, answer="X")
        accepted, (got_link,) = active.event("accepted")
        assert accepted["answer"] == "X"
        assert os.path.sameopenfile(got_link.fileno(), link)
        os.close(segment)
        os.close(link)


def test_the_broker_keeps_no_descriptor_of_a_past_client(place: Place, broker: Server) -> None:
    with Wire(place).hello() as bystander:
        before = descriptors()
        with Wire(place).hello() as wire:
            fd = sealed_memory()
            for seg in range(5):
                wire.ask("segment", [fd], adapter=wire.adapter, seg=seg, size=1, writable=False)
            os.close(fd)
            assert descriptors() >= before + 5
        eventually(lambda: descriptors() == before)
        bystander.ask("sync")


def test_status_needs_no_hello(place: Place, broker: Server) -> None:
    with Wire(place) as tool, Wire(place).hello():
        assert tool.ask("status")["processes"] == 1
        (entry,) = tool.ask("status", kind="processes")["page"]
        assert entry["pid"] == os.getpid()


def test_a_thousand_posts_and_requests_at_once(place: Place, broker: Server) -> None:
    with Wire(place).hello() as wire:
        for number in range(1, 1001):
            wire.send({"op": "close", "object": number})
        wire.ask("sync")


# --- bad clients ---


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"{",
        b"[]",
        b'{"op":"sync","id":"x"}',
        b'{"op":"sync","id":-1}',
        b"[" * 30000,
        b"x" * MAX_MESSAGE,
        b" " * (MAX_MESSAGE + 100) + b"{}",
    ],
)
def test_unanswerable_clients_are_dropped(place: Place, broker: Server, data: bytes) -> None:
    with Wire(place).hello() as good, Wire(place).hello() as bad:
        bad.send(data)
        assert bad.hung_up()
        good.ask("sync")


def test_descriptors_of_bad_messages_are_closed(place: Place, broker: Server) -> None:
    with Wire(place).hello() as good:
        before = descriptors()
        with Path(os.devnull).open() as null:
            fds = [null.fileno()] * MAX_FDS
            with Wire(place).hello() as bad:
                assert bad.raw("sync", fds)["status"] == Status.INVALID_PARAMETER
                assert bad.raw("hello", fds)["status"] == Status.INVALID_PARAMETER
                assert bad.raw("nonsense", fds)["status"] == Status.NOT_SUPPORTED
                seg = {"adapter": bad.adapter, "seg": 1, "size": 1, "writable": False}
                assert bad.raw("segment", fds[:1], **seg)["status"] == Status.INVALID_BUFFER_SIZE
                bad.send(b"nonsense", fds)
                assert bad.hung_up()
        eventually(lambda: descriptors() == before)
        good.ask("sync")


def test_too_many_descriptors_are_answered_and_closed(place: Place, broker: Server) -> None:
    with Wire(place).hello() as wire:
        before = descriptors()
        with Path(os.devnull).open() as null:
            reply = wire.raw("sync", [null.fileno()] * 200)
        assert reply["status"] == Status.INSUFFICIENT_RESOURCES
        eventually(lambda: descriptors() == before)


def test_an_empty_datagram_ends_the_session(place: Place, broker: Server) -> None:
    with Wire(place).hello() as wire:
        wire.sock.send(b"")
        assert wire.hung_up()


def test_a_client_without_a_hello_is_dropped(place: Place) -> None:
    with (
        serving(place, limits=ServerLimits(hello_seconds=0.05)),
        Wire(place).hello() as good,
        Wire(place) as mute,
    ):
        assert mute.hung_up()
        good.ask("sync")


def test_another_user_is_turned_away_with_the_reason(
    place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(place).hello() as good:
        with monkeypatch.context() as patch:
            patch.setattr(server_module.os, "geteuid", lambda: 12345)
            with Wire(place) as other:
                reply, _ = other.read()
                assert (reply["re"], reply["status"]) == (0, Status.ACCESS_VIOLATION)
                assert "12345" in reply["message"]
                assert other.hung_up()
        good.ask("sync")


def test_too_many_clients_are_turned_away_with_the_reason(place: Place) -> None:
    with serving(place, limits=ServerLimits(clients=2)), Wire(place).hello() as one:
        with Wire(place).hello(), Wire(place) as third:
            reply, _ = third.read()
            assert reply["re"] == 0
            assert reply["status"] == Status.INSUFFICIENT_RESOURCES
            assert third.hung_up()
        one.ask("sync")
        eventually(lambda: one.ask("status")["processes"] == 1)
        with Wire(place) as now:
            now.hello()


def test_one_process_cannot_take_all_places(place: Place) -> None:
    limits = ServerLimits(sockets_per_process=3)
    with serving(place, limits=limits), contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(place)) for _ in range(3)]
        wires[0].hello()
        with Wire(place) as fourth:
            reply, _ = fourth.read()
            assert reply["status"] == Status.INSUFFICIENT_RESOURCES
            assert str(os.getpid()) in reply["message"]
        wires[1].sock.close()
        wires[0].ask("sync")
        with Wire(place) as again:
            again.hello()


def test_a_client_that_only_sends_holds_itself_up(place: Place, broker: Server) -> None:
    with Wire(place).hello() as good, Wire(place).hello() as talker:
        sent = 0
        request = encode({"op": "status", "id": 1, "kind": "processes"})
        with contextlib.suppress(BlockingIOError):
            while sent < 100000:
                talker.sock.send(request)
                sent += 1
        assert sent < 100000, "the broker reads on, though its replies are not read"
        for _ in range(20):
            good.ask("sync")
        for _ in range(sent):
            assert talker.read()[0]["re"] == 1
        talker.ask("sync")


def test_a_client_that_does_not_read_events_is_dropped_alone(place: Place) -> None:
    with (
        serving(place, limits=ServerLimits(queued_bytes=50000)),
        Wire(place).hello() as sleeper,
        Wire(place).hello() as active,
    ):
        port = sleeper.listen(1, backlog=0)
        for connector in range(1, 301):
            sleeper.send({"op": "request", "object": 1, "connector": connector})
        sleeper.ask("sync")
        lost = False
        for number in range(1, 301):
            local = ["127.0.0.1", active.bind(number, "connector")]
            fields = {"adapter": active.adapter, "object": number, "local": local}
            peer = {"host": "127.0.0.1", "port": port, "offer": "y" * 8000}
            if active.raw("connect", **fields, **peer)["status"]:
                lost = True
                break
        assert lost, "the broker keeps any number of messages"
        active.event("refused")
        active.event("gone")
        active.ask("sync")
        # What the kernel had taken before is still there to be read, and then the end.
        with contextlib.suppress(EOFError):
            while sleeper.read():
                pass
        with pytest.raises(EOFError):
            sleeper.read()


def test_events_wait_for_a_slow_reader_in_order(place: Place, broker: Server) -> None:
    with Wire(place).hello() as slow, Wire(place).hello() as active:
        port = slow.listen(1)
        for connector in range(1, 201):
            slow.send({"op": "request", "object": 1, "connector": connector})
        slow.ask("sync")
        made = [active.connect(n, port, offer="y" * 8000) for n in range(1, 201)]
        assert [slow.event("offer")[0]["connection"] for _ in made] == made
        slow.ask("sync")


def test_an_internal_error_drops_one_client(
    place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(place).hello() as good, Wire(place).hello() as unlucky:
        real = Rendezvous.handle

        def handle(self: Rendezvous, client: int, message: Any, fds: Any) -> None:
            if message.get("trip"):
                raise ZeroDivisionError
            real(self, client, message, fds)

        monkeypatch.setattr(Rendezvous, "handle", handle)
        unlucky.send({"op": "sync", "id": 1, "trip": True})
        assert unlucky.hung_up()
        good.ask("sync")


def test_messages_are_handled_in_order(
    place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the one that speaks second has just been heard, and the broker was busy with it."""
    heard: list[tuple[int, Any]] = []
    busy, go_on = threading.Event(), threading.Event()
    real = Rendezvous.handle

    def handle(self: Rendezvous, client: int, message: dict[str, Any], fds: Any) -> None:
        heard.append((client, message.get("id")))
        if message.get("linger"):
            busy.set()
            assert go_on.wait(PATIENCE)
        real(self, client, message, fds)

    with Wire(place).hello() as early, Wire(place).hello() as late:
        monkeypatch.setattr(Rendezvous, "handle", handle)
        late.send({"op": "sync", "id": 101, "linger": True})
        assert busy.wait(PATIENCE)
        early.send({"op": "sync", "id": 201})
        late.send({"op": "sync", "id": 102})
        go_on.set()
        early.read()
        late.read()
        late.read()
    assert [ident for _, ident in heard] == [101, 201, 102]


def test_a_kernel_without_room_is_tried_again(
    place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(place).hello() as wire:
        real, failures = client_queues.send, iter([errno.ETOOMANYREFS, errno.ENOBUFS])

        def send(sock: socket.socket, data: bytes, fds: Any = ()) -> None:
            number = next(failures, None)
            if number is not None:
                raise OSError(number, os.strerror(number))
            real(sock, data, fds)

        monkeypatch.setattr(client_queues, "send", send)
        assert [wire.ask("sync")["re"] for _ in range(3)] == [3, 4, 5]


def test_a_lack_of_descriptors_does_not_end_it(
    place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(place).hello() as good:
        failures = iter([errno.EMFILE, errno.ENFILE])

        class Poor:
            """A listener without descriptors, twice."""

            def __init__(self, listener: socket.socket) -> None:
                self.listener = listener

            def accept(self) -> Any:
                number = next(failures, None)
                if number is not None:
                    raise OSError(number, os.strerror(number))
                return self.listener.accept()

            def __getattr__(self, name: str) -> Any:
                return getattr(self.listener, name)

        poor = Poor(broker._listener)
        broker._selector.unregister(broker._listener)
        broker._listener = poor  # type: ignore[assignment]
        broker._selector.register(poor, 1)  # type: ignore[arg-type]
        good.ask("sync")
        with Wire(place) as late:
            late.hello()
        good.ask("sync")


# --- leaving ---


def test_a_broker_leaves_without_a_client(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = place.try_lock()
    assert lock is not None
    monkeypatch.setattr(server_module, "_FIRST_CLIENT", 0.0)
    server = Server(place, lock, idle=0.05)
    server.run()
    assert not place.socket.exists()
    again = place.try_lock()
    assert again is not None
    os.close(again)


def test_a_broker_stays_as_long_as_it_has_a_client(place: Place) -> None:
    with serving(place, idle=0.05) as server:
        with Wire(place).hello() as wire:
            time.sleep(0.2)
            wire.ask("sync")
        eventually(lambda: not place.socket.exists())
        assert "no client" in server._stop_reason


def test_a_client_of_the_last_moment_is_served(place: Place) -> None:
    lock = place.try_lock()
    assert lock is not None
    server = Server(place, lock, idle=0.01)
    wire = Wire(place)  # waits in the kernel
    time.sleep(0.05)
    server._leave_if_no_client_comes()
    assert not server._stop_reason
    wire.sock.close()
    server.run()


@pytest.mark.parametrize("what", ["lock", "socket"])
def test_a_broker_leaves_when_others_cannot_find_it(
    place: Place, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_PLACE_CHECK_SECONDS", 0.05)
    with serving(place), Wire(place).hello() as wire:
        getattr(place, what).unlink()
        assert wire.hung_up()
    # Files that another broker made in the meantime are its own.
    assert place.socket.exists() is (what == "lock")


def test_a_broker_removes_no_file_that_is_not_its_own(place: Place) -> None:
    with serving(place) as first:
        place.lock.unlink()
        with serving(place), Wire(place).hello() as wire:
            first.stop("test")
            wire.ask("sync")
            with Wire(place).hello():
                pass


def test_stop_ends_every_session(place: Place, broker: Server) -> None:
    with Wire(place).hello() as one, Wire(place).hello() as two:
        broker.stop("test")
        assert one.hung_up()
        assert two.hung_up()


# --- fuzz ---


def mutated(random_: random.Random, data: bytes) -> bytes:
    """Damage a datagram a little."""
    kind = random_.randrange(6)
    at = random_.randrange(len(data) + 1)
    if kind == 0:
        return data[:at] + bytes([random_.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + random_.randbytes(random_.randrange(1, 40)) + data[at:]
    if kind == 3:
        end = at + random_.randrange(20)
        return data[:at] + data[end:]
    if kind == 4:
        return data[:at] + data[random_.randrange(len(data) + 1) :]
    return data.replace(b"1", random_.choice([b"-1", b"1e400", b"null", b"[[]]", b"9" * 30]))


ODD: list[Any] = [0, -1, 2**31, 2**63, 2**70, 0.5, None, True, "", "x", [], {}, [[]], "\ud800"]


def fitting(random_: random.Random, uids: list[str]) -> dict[str, Any]:
    """Return a value for every field of any request that may well be right."""
    number = random_.randrange(1, 6)
    host = random_.choice(["127.0.0.1", "127.0.0.1", "0.0.0.0", "::", "::1"])
    return {
        "version": VERSION,
        "key": random_.choice(uids),
        "pid": 1,
        "adapter": random_.choice(uids[-2:]),
        "peer_adapter": random_.choice(uids),
        "table": {"a": [1, {"b": "c"}]},
        "seg": number,
        "size": random_.choice([1, 4096, 4097]),
        "writable": False,
        "object": number,
        "connector": number,
        "kind": random_.choice(["listener", "connector"]),
        "host": host,
        "port": random_.choice([0, 5000, 5001, 49152]),
        "protocol": 6,
        "backlog": number,
        "local": [host, random_.choice([5000, 49152, 49153])],
        "private": "QUJD",
        "offer": "",
        "answer": "",
        "connection": number,
        "connections": [],
        "holds": False,
        "done": True,
        "after": 0,
    }


def odd_request(random_: random.Random, uids: list[str]) -> dict[str, Any]:
    """Return a request that is nearly right, or right."""
    op = random_.choice(list(REQUESTS))
    message: dict[str, Any] = {"op": op, "id": random_.randrange(1, 1000)}
    good = fitting(random_, uids)
    for name in REQUESTS[op].fields:
        if random_.random() < 0.97:
            message[name] = random_.choice(ODD) if random_.random() < 0.05 else good.get(name)
    if op == "status" and message.get("kind") not in ("none", "adapters"):
        message["kind"] = "connections"
    return message


class Vandal:
    """A client that says anything, and comes back when it is dropped."""

    def __init__(self, place: Place, random_: random.Random, uids: list[str]) -> None:
        self.place = place
        self.random = random_
        self.uids = uids
        self.dropped = 0
        self.obeyed = 0
        self.fds = [sealed_memory(), os.pidfd_open(os.getpid())]
        self.seen = [1]
        self.wire = self._come()

    def _come(self) -> Wire:
        wire = Wire(self.place)
        self.mine = [wire.key, wire.uid, wire.adapter]
        if self.random.random() < 0.9:
            wire.hello()
            self.uids[:] = [*self.uids[-8:], *self.mine]
        return wire

    def act(self) -> None:
        message = odd_request(self.random, [*self.uids, *self.mine])
        if message.get("connection") and self.random.random() < 0.7:
            message["connection"] = self.random.choice(self.seen)
        data = encode(message)
        if self.random.random() < 0.15:
            data = mutated(self.random, data) or b"\0"
        shape = REQUESTS[message["op"]]
        right = self.random.random() < 0.9
        wanted = shape.fds if right else self.random.choice([0, 1, 2, 3, 9])
        fds = [self.fds[message["op"] == "hello"]] * wanted
        try:
            self.wire.send(data, fds)
            if self.random.random() < 0.9:
                self._read()
        except (ConnectionError, EOFError):
            self.wire.sock.close()
            self.dropped += 1
            self.wire = self._come()

    def _read(self) -> None:
        """Take the arrived messages, sometimes all, and note names for later."""
        select.select([self.wire.sock], [], [], 0.002)  # most often an answer is on its way
        with contextlib.suppress(BlockingIOError):
            while True:
                data, _, _ = receive(self.wire.sock)
                if not data:
                    raise EOFError
                for message in map(decode, split(data)):
                    self.obeyed += message.get("status") == 0 and "re" in message
                    if "connection" in message:
                        self.seen[:] = [*self.seen[-5:], message["connection"]]

    def close(self) -> None:
        self.wire.sock.close()
        for fd in self.fds:
            os.close(fd)


@pytest.mark.slow
def test_vandals_disturb_no_client(place: Place) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    said: list[str] = []
    with serving(place, log=said.append), Wire(place).hello() as good:
        port = good.listen(1, 7777)
        before = descriptors()
        # Not its process too: they are of the same one, and so may take its place.
        uids: list[str] = [good.adapter]
        vandals = [Vandal(place, random_, uids) for _ in range(4)]
        for round_ in range(6000):
            random_.choice(vandals).act()
            if round_ % 50 == 0:
                good.ask("request", object=1, connector=round_ + 1)
                number = round_ + 2
                connection = good.connect(number, port)
                assert good.event("offer")[0]["connection"] == connection
                good.ask("reject", connection=connection)
                assert good.event("refused")[0]["connection"] == connection
                good.ask("close", object=number)
        assert sum(vandal.dropped for vandal in vandals) > 20
        assert sum(vandal.obeyed for vandal in vandals) > 500
        for vandal in vandals:
            vandal.close()
        counts = {"processes": 1, "adapters": 1, "listeners": 1, "connections": 0}
        eventually(lambda: counts.items() <= good.ask("status").items())
        eventually(lambda: descriptors() == before)
    assert not [text for text in said if "internal" in text], f"seed {seed}"


@pytest.mark.slow
def test_arbitrary_bytes_disturb_no_client(place: Place, broker: Server) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    with Wire(place).hello() as good:
        for round_ in range(1500):
            with Wire(place) as wire, contextlib.suppress(ConnectionError):
                for _ in range(3):
                    wire.send(random_.randbytes(random_.choice([1, 2, 8, 100, 5000])))
            if round_ % 100 == 0:
                good.ask("sync")
        good.ask("sync")


def test_messages_are_plain_json(place: Place, broker: Server) -> None:
    """What a client in another language would see."""
    with Wire(place) as wire:
        wire.sock.send(b'{"op": "status", "id": 7}')
        wire._wait(1)
        reply = json.loads(wire.sock.recv(MAX_MESSAGE))
        assert (reply["re"], reply["status"], reply["message"]) == (7, 0, "")


def test_the_kernel_names_the_server(place: Place, broker: Server) -> None:
    with Wire(place) as wire:
        packed = wire.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        assert struct.unpack("3i", packed)[:2] == (os.getpid(), os.geteuid())
