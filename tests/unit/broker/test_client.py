# SPDX-License-Identifier: Apache-2.0
"""The client: calls, events, posts, and what it does when the broker is gone, slow or odd."""

import contextlib
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shmnd.broker import client as client_module
from shmnd.broker import session as session_module
from shmnd.broker.client import BrokerClient
from shmnd.broker.place import Place, place_of
from shmnd.broker.protocol import Datagram, decode, encode, name_of, receive, send
from shmnd.broker.service.server import Server
from shmnd.status import NdError, Status
from unit.broker.wire import PATIENCE, Wire, serving

KEY = "ab" * 16
ADAPTER = name_of(KEY)
LISTENER = {"adapter": ADAPTER, "object": 1, "kind": "listener", "host": "127.0.0.1", "port": 5000}


Make = Callable[..., BrokerClient]


@pytest.fixture
def make(place: Place) -> Iterator[Make]:
    """Make clients of this place, and close them at the end."""
    made: list[BrokerClient] = []

    def make(**more: Any) -> BrokerClient:
        more = {"key": os.urandom(16).hex(), **more}
        base = str(place.directory.parent)
        client = BrokerClient("test", base=base, **more)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()
        client.close()


def readable(client: BrokerClient, seconds: float = 0.0) -> bool:
    return bool(select.select([client.fileno()], [], [], seconds)[0])


def listening(client: BrokerClient) -> None:
    client.call("adapter", key=KEY)
    client.call("bind", **LISTENER)
    client.call("listen", object=1, backlog=0)
    client.call("request", object=1, connector=1)


# --- calls ---


def test_a_call_gives_the_reply(make: Make, broker: Server) -> None:
    client = make()
    assert client.alive
    assert client.broker == broker._state.uid
    client.call("adapter", key=KEY)
    assert client.call("bind", **LISTENER)["port"] == 5000
    reply = client.call("status")
    assert (reply["processes"], reply["listeners"]) == (1, 0)


def test_a_refusal_is_an_error_that_names_the_call(make: Make, broker: Server) -> None:
    client = make()
    with pytest.raises(ValueError, match=rf"^broker bind: adapter {ADAPTER}.*\[INVALID_HANDLE\]"):
        client.call("bind", **LISTENER)
    client.call("adapter", key=KEY)
    client.call("bind", **LISTENER)
    with pytest.raises(OSError, match=r"^Listener\.bind: 127\.0\.0\.1:5000 is in use") as caught:
        client.call("bind", caller="Listener.bind", **{**LISTENER, "object": 2})
    assert isinstance(caught.value, NdError)
    assert caught.value.status is Status.SHARING_VIOLATION


def test_a_message_that_is_too_long_is_not_sent(make: Make, broker: Server) -> None:
    client = make()
    with pytest.raises(NdError) as caught:
        client.call("adapter", key=KEY, table={"x": "y" * 40000})
    assert caught.value.status is Status.INVALID_BUFFER_SIZE
    client.call("sync")


def test_many_threads_share_a_client(make: Make, broker: Server) -> None:
    client = make()

    def talk(number: int) -> int:
        for at in range(100):
            key = f"{number * 1000 + at:032x}"
            adapter = name_of(key)
            client.call("adapter", key=key)
            client.events()
            client.post("adapter_close", adapter=adapter)
        return number

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(talk, range(6))) == list(range(6))
    assert client.call("status")["adapters"] == 0


def test_a_call_within_a_call(make: Make, broker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a finaliser may make it, at any moment."""
    client = make()
    real = client._send
    nested: list[Any] = []

    def send_and_call(data: bytes, fds: Any = ()) -> bool:
        sent = real(data, fds)
        if not nested:
            nested.append(None)
            client.post("adapter", key="1" * 32)
            nested.append(client.call("status"))
            client.events()
        return sent

    monkeypatch.setattr(client, "_send", send_and_call)
    with pytest.raises(NdError, match=f"adapter {ADAPTER}"):
        client.call("bind", **LISTENER)
    assert nested[1]["adapters"] == 1


# --- events ---


def test_events_come_in_order_with_their_descriptors(
    make: Make, place: Place, broker: Server
) -> None:
    client = make()
    listening(client)
    assert client.events() == []
    assert not readable(client)
    with Wire(place).hello() as other:
        connection = other.connect(1, 5000)
        assert readable(client, PATIENCE)
        other.ask("sync")  # by now all of them are there
        events = client.events()
        assert [event["ev"] for event, _ in events] == ["peer", "offer"]
        assert events[1][0]["connection"] == connection
        for fd in events[0][1]:
            os.close(fd)
        assert not readable(client)


def test_events_met_by_a_call_make_the_descriptor_readable(
    make: Make, place: Place, broker: Server
) -> None:
    client = make()
    listening(client)
    with Wire(place).hello() as other:
        other.connect(1, 5000)
        client.call("sync")  # by now they are here
        assert readable(client)
        events = client.events()
        assert [event["ev"] for event, _ in events] == ["peer", "offer"]
        for fd in events[0][1]:
            os.close(fd)
        assert not readable(client)


def test_events_do_not_wait_for_another_threads_call(make: Make, place: Place) -> None:
    with greeted(place, make) as (broker, client), ThreadPoolExecutor(1) as pool:
        calling = pool.submit(client.call, "sync")
        asked = broker.read()
        assert client.events() == []
        client.post("close", object=1)  # left to the other thread
        broker.say(re=asked["id"], status=0, message="")
        calling.result(PATIENCE)
        assert broker.read() == {"op": "close", "object": 1}


def test_lost_descriptors_are_told(
    make: Make, place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    listening(client)

    def poor(sock: socket.socket) -> Datagram:
        data, fds, _ = receive(sock)
        return Datagram(data, fds[:1], bool(fds))

    with Wire(place).hello() as other:
        monkeypatch.setattr(session_module, "receive", poor)
        other.connect(1, 5000)
        client.call("sync")
        (peer, fds), (offer, _) = client.events()
        assert peer["fds_lost"] is True
        assert fds == []
        assert "fds_lost" not in offer


def test_events_nobody_took_are_closed_with_the_client(
    make: Make, place: Place, broker: Server
) -> None:
    client = make()
    listening(client)
    with Wire(place).hello() as other:
        other.connect(1, 5000)
        client.call("sync")
        client.close()  # the check after each test finds what stays open
        assert client.events() == []


# --- another broker ---


class Owner:
    """Tells a new broker what a process holds."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, client: BrokerClient) -> None:
        self.told.append(client.broker)
        listening(client)


def test_a_call_finds_the_next_broker_and_tells_it_first(make: Make, place: Place) -> None:
    owner = Owner()
    with serving(place):
        client = make(on_reconnect=owner)
        listening(client)
        before = client.fileno()
    assert readable(client, PATIENCE)
    assert client.events() == []
    assert not client.alive
    assert not readable(client), "the loss was told, and must not keep the sleeper awake"
    client.post("close", object=1)  # nobody is there to be told
    with serving(place) as second:
        assert client.call("status")["listeners"] == 1
        assert owner.told == [client.broker] == [second._state.uid]
        assert client.fileno() == before
        with Wire(place).hello() as other:
            other.connect(1, 5000)
            assert readable(client, PATIENCE)
            for _, fds in client.events():
                for fd in fds:
                    os.close(fd)


def test_reconnect_does_so_without_a_call(make: Make, place: Place) -> None:
    owner = Owner()
    with serving(place):
        client = make(on_reconnect=owner)
    client.events()
    with serving(place):
        client.reconnect()
        assert client.alive
        client.reconnect()
    assert len(owner.told) == 1


def test_a_loss_in_the_midst_of_a_call_is_made_good(make: Make, place: Place) -> None:
    """The request reaches a broker that dies before it answers."""
    owner = Owner()
    with puppet(place) as first, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make, on_reconnect=owner)
        first.greet()
        client = making.result(PATIENCE)
        calling = pool.submit(client.call, "status")
        assert first.read()["op"] == "status"
        with serving(place, lock=first.give_way()):
            assert calling.result(PATIENCE)["listeners"] == 1
    assert len(owner.told) == 1


def test_a_loss_in_the_midst_of_the_replay_is_made_good(make: Make, place: Place) -> None:
    owner = Owner()
    with serving(place):
        client = make(on_reconnect=owner)
    client.events()
    with puppet(place) as second, ThreadPoolExecutor(1) as pool:
        calling = pool.submit(client.call, "status")
        second.greet()
        assert second.read()["op"] == "adapter"
        with serving(place, lock=second.give_way()):
            assert calling.result(PATIENCE)["listeners"] == 1
    assert len(owner.told) == 2


def test_a_replay_that_fails_is_not_left_half_done(make: Make, place: Place) -> None:
    def fail(client: BrokerClient) -> None:
        client.call("adapter", key=KEY)
        raise ZeroDivisionError

    with serving(place):
        client = make(on_reconnect=fail)
    client.events()
    with serving(place):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                client.call("sync")
            assert not client.alive
        client.on_reconnect = None
        assert client.call("status")["adapters"] == 0


def test_what_the_last_broker_said_is_not_lost(make: Make, place: Place) -> None:
    with serving(place) as server, Wire(place).hello() as other:
        client = make()
        listening(client)
        other.connect(1, 5000)
        server.stop("test")
        other.hung_up()
    events = client.events()
    assert [event["ev"] for event, _ in events] == ["peer", "offer"]
    assert not client.alive
    for fd in events[0][1]:
        os.close(fd)


# --- odd brokers ---


class Puppet:
    """A broker that does what the test says."""

    def __init__(self, place: Place) -> None:
        lock = place.try_lock()
        assert lock is not None
        self.lock = lock
        self.place = place
        self.listener = place.listen()
        self.socks: list[socket.socket] = []

    def accept(self) -> None:
        assert select.select([self.listener], [], [], PATIENCE)[0], "nobody comes"
        self.socks.append(self.listener.accept()[0])

    def read(self) -> dict[str, Any]:
        assert select.select([self.socks[-1]], [], [], PATIENCE)[0], "nobody talks"
        return decode(receive(self.socks[-1]).data)

    def say(self, **message: Any) -> None:
        send(self.socks[-1], encode(message))

    def greet(self, **more: Any) -> dict[str, Any]:
        self.accept()
        hello = self.read()
        reply = {"re": hello["id"], "status": 0, "message": "", "broker": "puppet", **more}
        self.say(**reply)
        return hello

    def hang_up(self) -> None:
        self.socks.pop().close()

    def give_way(self) -> int:
        """Be no broker any more; give the lock, or whoever misses the broker starts another."""
        self.place.socket.unlink()
        self.listener.close()
        for sock in self.socks:
            sock.close()
        lock, self.lock = self.lock, -1
        return lock

    def leave(self) -> None:
        if self.lock >= 0:
            os.close(self.give_way())


@contextlib.contextmanager
def puppet(place: Place) -> Iterator[Puppet]:
    made = Puppet(place)
    try:
        yield made
    finally:
        made.leave()


@contextlib.contextmanager
def greeted(place: Place, make: Make, **more: Any) -> Iterator[tuple[Puppet, BrokerClient]]:
    """Return a puppet and a client that it has greeted."""
    with puppet(place) as broker, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make, **more)
        broker.greet()
        yield broker, making.result(PATIENCE)


def test_hello_says_who_comes(make: Make, place: Place) -> None:
    with puppet(place) as broker, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make, key="c" * 32)
        hello = broker.greet()
        assert (hello["key"], hello["pid"], hello["holds"]) == ("c" * 32, os.getpid(), False)
        making.result(PATIENCE)


def test_a_broker_that_was_about_to_leave_is_tried_again(make: Make, place: Place) -> None:
    with puppet(place) as broker, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make)
        for _ in range(3):
            broker.accept()
            broker.hang_up()
        broker.greet()
        assert making.result(PATIENCE).alive


def test_who_is_turned_away_hears_why(make: Make, place: Place) -> None:
    with puppet(place) as broker, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make)
        broker.accept()
        broker.say(re=0, status=int(Status.INSUFFICIENT_RESOURCES), message="4096 are here")
        broker.hang_up()
        with pytest.raises(MemoryError, match="4096 are here"):
            making.result(PATIENCE)


@pytest.mark.parametrize("unread", [False, True])
def test_what_was_said_before_a_loss_is_heard(make: Make, place: Place, unread: bool) -> None:
    with greeted(place, make) as (broker, client):
        broker.say(ev="gone", process="0" * 32)
        if unread:
            client.post("close", object=1)
        broker.hang_up()
        assert [event["ev"] for event, _ in client.events()] == ["gone"]
        client.events()
        assert not client.alive


def test_another_version_is_told(make: Make, place: Place) -> None:
    with puppet(place) as broker, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make)
        broker.greet(status=int(Status.NOT_SUPPORTED), message="version 2, not 1")
        with pytest.raises(NotImplementedError, match="version 2, not 1"):
            making.result(PATIENCE)


def test_a_broker_of_another_user_is_refused(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with puppet(place):
        monkeypatch.setattr(client_module.os, "geteuid", lambda: 12345)
        monkeypatch.setattr(client_module, "place_of", lambda *_: place)
        with pytest.raises(PermissionError, match="runs as uid"):
            make()


def test_a_broker_that_does_not_answer_is_a_timeout_that_names_it(make: Make, place: Place) -> None:
    with greeted(place, make) as (_, client):
        client._timeout = 0.05
        with pytest.raises(TimeoutError, match=r"sock \(pid \d+\) did not answer") as caught:
            client.call("sync", caller="Listener.bind")
        assert "Listener.bind" in str(caught.value)
        assert not client.alive, "whether it was done is unknown, so the session is over"


def test_after_a_timeout_the_next_call_starts_afresh(make: Make, place: Place) -> None:
    owner = Owner()
    with greeted(place, make, on_reconnect=owner) as (broker, client):
        client._timeout = 0.05
        with pytest.raises(TimeoutError):
            client.call("sync")
        client._timeout = PATIENCE
        broker.leave()
        with serving(place):
            assert client.call("status")["listeners"] == 1


def test_an_interrupted_call_starts_afresh(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(place):
        client = make(on_reconnect=Owner())
        listening(client)

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(client, "_drain", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.call("sync")
        assert not client.alive
        assert client.call("status")["listeners"] == 1


def test_nonsense_ends_the_session(make: Make, place: Place) -> None:
    with greeted(place, make) as (broker, client):
        broker.socks[-1].send(b"nonsense")
        assert readable(client, PATIENCE)
        assert client.events() == []
        assert not client.alive


def test_replies_for_nobody_are_left_out(make: Make, place: Place) -> None:
    with greeted(place, make) as (broker, client), ThreadPoolExecutor(1) as pool:
        broker.say(re=12345, status=0, message="")
        calling = pool.submit(client.call, "sync")
        ident = broker.read()["id"]
        broker.say(re=ident - 1, status=0, message="late")
        broker.say(re=ident, status=0, message="", mine=True)
        assert calling.result(PATIENCE)["mine"] is True


def test_posts_wait_for_a_broker_that_does_not_read(make: Make, place: Place) -> None:
    with greeted(place, make) as (broker, client), ThreadPoolExecutor(1) as pool:
        count = 3000
        for number in range(1, count + 1):
            client.post("close", object=number)
        assert client._posts, "the socket takes more than expected"
        assert client.alive
        assert [broker.read()["object"] for _ in range(5)] == [1, 2, 3, 4, 5]
        calling = pool.submit(client.call, "sync")
        read = [broker.read() for _ in range(count - 5)]
        assert [message["object"] for message in read] == list(range(6, count + 1))
        last = broker.read()
        assert last["op"] == "sync"
        broker.say(re=last["id"], status=0, message="")
        calling.result(PATIENCE)


def test_waiting_posts_wake_their_owner_when_there_is_room(make: Make, place: Place) -> None:
    with greeted(place, make) as (broker, client):
        sent = 0
        while not client._posts:
            client.post("close", object=1)
            sent += 1
        client.events()
        assert not readable(client)
        for _ in range(sent - 1):
            broker.read()
        assert readable(client, PATIENCE)
        client.events()
        assert not client._posts
        assert not readable(client)


def test_posts_are_not_kept_without_end(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_POSTS_MAX", 100)
    with greeted(place, make) as (_, client):
        for number in range(1, 5001):
            client.post("close", object=number)
        assert not client.alive
        assert not client._posts


def test_a_post_carries_no_descriptors(make: Make, broker: Server) -> None:
    with pytest.raises(ValueError, match="descriptors"):
        make().post("close", [0], object=1)


def test_a_kernel_without_room_is_told(
    make: Make, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()

    def fail(*_: Any) -> None:
        raise OSError(errno.ETOOMANYREFS, "Too many references")

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "send", fail)
        with pytest.raises(MemoryError, match="Too many references"):
            client.call("sync")
    client.call("sync")


# --- ends ---


def test_a_closed_client_refuses(make: Make, broker: Server) -> None:
    client = make()
    client.close()
    with pytest.raises(NdError, match="closed") as caught:
        client.call("sync")
    assert caught.value.status is Status.DEVICE_REMOVED
    client.post("sync")
    assert client.events() == []
    with Wire(place_of("test", str(Path(client.path).parent.parent))) as tool:
        deadline = time.monotonic() + PATIENCE
        while tool.ask("status")["processes"]:
            assert time.monotonic() < deadline


def in_child(what: Callable[[], Any]) -> str:
    """Return what a function of a forked child says."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            text = str(what())
        except BaseException as exc:
            text = repr(exc)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_a_forked_child_refuses_and_disturbs_nothing(make: Make, place: Place) -> None:
    broker = Puppet(place)  # no thread, so a fork is harmless
    done: Future[BrokerClient] = Future()

    def connect() -> None:
        done.set_result(make())

    thread = threading.Thread(target=connect)
    thread.start()
    broker.greet()
    thread.join(PATIENCE)
    client = done.result(0)

    def child() -> str:
        client.post("close", object=1)
        assert client.events() == []
        try:
            client.call("sync")
        except NdError as exc:
            text = str(exc)
        client.close()
        client.close()
        return text

    assert "belongs to the parent" in in_child(child)
    assert client.alive
    assert not readable(client)
    broker.say(ev="gone", process="0" * 32)
    assert readable(client, PATIENCE), "the child took the registration along"
    assert client.events()[0][0]["ev"] == "gone"
    client.close()
    broker.leave()


def test_a_start_that_fails_leaves_nothing_open(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise NdError(Status.DEVICE_NOT_READY, "no")

    monkeypatch.setattr(client_module, "reach", fail)
    with pytest.raises(NdError, match="no"):
        make()
