# SPDX-License-Identifier: Apache-2.0
"""The client of a broker that is slow, malformed, of another user or of another version."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shmnd.broker import client as client_module
from shmnd.broker import posts as posts_module
from shmnd.broker import session as session_module
from shmnd.broker.place import Place
from shmnd.broker.service.server import Server
from shmnd.status import Status
from unit.broker.client_kit import Make, Owner, greeted, listening, puppet, readable
from unit.broker.wire import PATIENCE, serving


def test_hello_identifies_the_client(make: Make, place: Place) -> None:
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


def test_a_refused_client_gets_the_reason(make: Make, place: Place) -> None:
    with puppet(place) as broker, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make)
        broker.accept()
        broker.say(re=0, status=int(Status.INSUFFICIENT_RESOURCES), message="4096 are here")
        broker.hang_up()
        with pytest.raises(MemoryError, match="4096 are here"):
            making.result(PATIENCE)


@pytest.mark.parametrize("unread", [False, True])
def test_events_sent_before_a_loss_are_received(make: Make, place: Place, unread: bool) -> None:
    with greeted(place, make) as (broker, client):
        broker.say(ev="gone", process="0" * 32)
        if unread:
            client.post("close", object=1)
        broker.hang_up()
        assert [event["ev"] for event, _ in client.events()] == ["gone"]
        client.events()
        assert not client.alive


def test_another_version_is_reported(make: Make, place: Place) -> None:
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
                client.call("status")
        assert not client.alive
        assert client.call("status")["listeners"] == 1


def test_nonsense_ends_the_session(make: Make, place: Place) -> None:
    with greeted(place, make) as (broker, client):
        broker.socks[-1].send(b"nonsense")
        assert readable(client, PATIENCE)
        assert client.events() == []
        assert not client.alive


def test_replies_without_a_call_are_left_out(make: Make, place: Place) -> None:
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
        client.events()
        assert not readable(client), "it still waits for room to send, and has nothing to send"


def test_a_post_in_the_midst_of_another_is_sent_after_it(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a finaliser, which may run between any two steps."""
    with greeted(place, make) as (broker, client):
        send = session_module.send
        inner = [2]

        def sending(*args: Any) -> None:
            while inner:
                client.post("close", object=inner.pop())
            send(*args)

        monkeypatch.setattr(session_module, "send", sending)
        # A daemon: one that does not return shall not keep the test from its end.
        posting = threading.Thread(target=client.post, args=("close",), kwargs={"object": 1})
        posting.daemon = True
        posting.start()
        posting.join(PATIENCE)
        assert not posting.is_alive()
        assert [broker.read()["object"] for _ in range(2)] == [1, 2]


def test_a_post_of_a_session_that_began_in_the_midst_of_another_post_is_sent(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a signal handler which meets the next broker."""
    with serving(place):
        client = make(on_reconnect=Owner())
        listening(client)
        send = session_module.send

        def sending(*args: Any) -> None:
            send(*args)
            monkeypatch.undo()
            client._hang_up()
            client.reconnect()
            client.post("close", object=1)

        monkeypatch.setattr(session_module, "send", sending)
        client.post("cancel_request", object=1, connector=5)
        assert client.call("status")["listeners"] == 0


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
    monkeypatch.setattr(posts_module, "_MOST", 100)
    with greeted(place, make) as (_, client):
        for number in range(1, 5001):
            client.post("close", object=number)
        assert not client.alive
        assert not client._posts


def test_a_post_carries_no_descriptors(make: Make, broker: Server) -> None:
    with pytest.raises(ValueError, match="descriptors"):
        make().post("close", [0], object=1)


def test_a_kernel_without_room_is_reported(
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
