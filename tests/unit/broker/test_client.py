# SPDX-License-Identifier: Apache-2.0
"""The client: calls, events, posts, and what it does when the broker is gone, slow or odd."""

import contextlib
import fcntl
import functools
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import shmnd.broker
from interrupting import Alarm, Interrupted, inside, interrupted
from shmnd.broker import client as client_module
from shmnd.broker import session as session_module
from shmnd.broker.client import BrokerClient
from shmnd.broker.place import Place, place_of
from shmnd.broker.protocol import Arrived, contents, name_of
from shmnd.broker.service.server import Server
from shmnd.broker.untaken import close_all
from shmnd.status import NdError, Status
from unit.broker.client_kit import (
    ADAPTER,
    KEY,
    LISTENER,
    Make,
    Owner,
    Puppet,
    greeted,
    listening,
    puppet,
    readable,
)
from unit.broker.wire import PATIENCE, Wire, serving

_CLIENT = inside(shmnd.broker)


def _extend(found: list[Any], client: BrokerClient) -> None:
    found += client.events()  # no call takes them over


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

    def send_and_call(*arguments: Any, **more: Any) -> bool:
        sent = real(*arguments, **more)
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


def test_a_handler_that_raises_keeps_no_other_thread_out(make: Make, broker: Server) -> None:
    """A profile function raises where a signal handler may: at each function, and after each."""
    client = make()
    for at in itertools.count():
        was = interrupted(at, lambda: (client.call("sync"), client.events()), _CLIENT)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(client.call, "sync").result(PATIENCE)
        if not was:
            break
    assert at > 50


def test_events_read_when_a_handler_raised_wake_their_reader(make: Make, broker: Server) -> None:
    """The socket does not: nothing is in it any more."""
    client = make()
    listening(client)
    for at in itertools.count():
        client.ask("status")
        assert readable(client, PATIENCE)
        found: list[Any] = []
        was = interrupted(at, lambda: _extend(found, client), _CLIENT)  # noqa: B023 - called at once
        assert found or readable(client), at
        found += client.events()
        assert [event["ev"] for event, _ in found] == ["answer"]
        if not was:
            break
    assert at > 30


@pytest.mark.parametrize(("op", "same"), [("sync", True), ("status", False)])
def test_an_interrupted_call_ends_no_session_that_need_not_end(
    make: Make, broker: Server, op: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler raises while the reply is awaited; the reply comes later, and answers nothing."""
    client = make()
    wait = client._wait

    def waits(*arguments: Any, **keywords: Any) -> Any:
        handler(signal.SIGALRM, sys._getframe())

    def handler(number: int, frame: FrameType) -> None:
        raise Interrupted

    before = client._sock
    for _ in range(3):
        monkeypatch.setattr(client, "_wait", waits)
        with pytest.raises(Interrupted):
            client.call(op)
        monkeypatch.setattr(client, "_wait", wait)
        assert (client._sock is before) is same
        assert client.call("status")["processes"] == 1
        assert not client._replies
        assert not client._expected
        before = client._sock


def test_a_session_that_a_second_handler_leaves_in_doubt_is_renewed(
    make: Make, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises in the clean-up that follows the first one."""

    def handle(*_: object, **__: object) -> None:
        raise Alarm

    client = make()
    before = client._sock
    with monkeypatch.context() as patch:
        patch.setattr(client, "_wait", handle)
        patch.setattr(session_module, "is_interruption", handle)
        with pytest.raises(Alarm):
            client.call("status")
    assert not client.alive
    client.events()
    assert client._sock is None, "a poll ends it: what it says wakes all sleepers"
    assert client.call("status")["processes"] == 1
    assert client._sock is not before
    assert not client._unsure
    assert before is not None
    assert before.fileno() == -1, "the old one was closed"


@pytest.mark.parametrize("at", ["the wait", "the read"])
def test_a_call_within_a_call_that_reads_its_reply(
    make: Make, broker: Server, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler runs between the look for a reply and the wait for it, or after a read."""
    client = make()
    name = {"the wait": "_wait", "the read": "_read"}[at]
    step, nested = getattr(client, name), []

    def interrupted(*arguments: Any, **keywords: Any) -> Any:
        done = step(*arguments, **keywords) if at == "the read" else None
        if not nested:
            nested.append(None)
            nested[0] = client.call("status")["processes"]
        return done if at == "the read" else step(*arguments, **keywords)

    monkeypatch.setattr(client, name, interrupted)
    client.call("sync")
    assert nested == [1]


def test_a_call_within_a_question_that_reads_the_answer(
    make: Make, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    send = client._send

    def interrupted(data: bytes, fds: Any = ()) -> bool:
        sent = send(data, fds)
        monkeypatch.undo()
        client.call("sync")
        return sent

    monkeypatch.setattr(client, "_send", interrupted)
    asked = client.ask("status")
    assert asked
    ((answer, _),) = client.events()
    assert (answer["ev"], answer["re"]) == ("answer", asked)


def test_events_stay_in_their_order_when_a_call_interrupts_their_reading(
    make: Make, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    asked = [client.ask("status") for _ in range(3)]
    assert readable(client, PATIENCE)
    time.sleep(0.1)  # all three answers are there
    read = client._read

    def interrupted() -> Any:
        found = read()
        monkeypatch.undo()
        client.call("sync")
        return found

    monkeypatch.setattr(client, "_read", interrupted)
    answers = client.events() + client.events()
    assert [answer["re"] for answer, _ in answers] == asked


@pytest.mark.parametrize("kind", ["answers", "segments"])
def test_a_handler_that_raises_loses_no_event(
    make: Make, place: Place, broker: Server, kind: str
) -> None:
    """It raises behind each call in turn that the taking of events makes."""
    client = make()
    listening(client)
    memory = os.memfd_create("segment", os.MFD_ALLOW_SEALING)
    os.truncate(memory, 4096)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with Wire(place).hello() as other, contextlib.closing(os.fdopen(memory)):
        other.connect(1, 5000)
        client.call("sync")
        for _, fds in client.events():
            close_all(fds)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for at in itertools.count():
            if kind == "answers":
                asked = [client.ask("status") for _ in range(3)]
            else:
                asked = [3 * at + each for each in range(3)]
                for number in asked:
                    other.ask(
                        "segment", [memory], adapter=other.adapter, seg=number, size=4096,
                        writable=False,
                    )  # fmt: skip
            assert readable(client, PATIENCE)
            found: list[Any] = []
            was = interrupted(at, functools.partial(_extend, found, client), _CLIENT)
            client.call("sync")
            found += client.events()
            assert [event["re" if kind == "answers" else "seg"] for event, _ in found] == asked
            for _, fds in found:
                assert len(fds) == (kind == "segments")
                close_all(fds)
            theirs = 3 * (at + 1) if kind == "segments" else 0  # the broker is in this process
            assert len(list(Path("/proc/self/fd").iterdir())) == before + theirs
            if not was:
                break
    assert at > 10


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


def test_lost_descriptors_are_reported(
    make: Make, place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    listening(client)

    def poor(arrived: Arrived) -> tuple[bytes, list[int], bool]:
        data, fds, _ = contents(arrived)
        cut = bool(fds)
        while len(fds) > 1:
            os.close(fds.pop())
        return data, fds, cut

    with Wire(place).hello() as other:
        monkeypatch.setattr(session_module, "contents", poor)
        other.connect(1, 5000)
        client.call("sync")
        (peer, fds), (offer, _) = client.events()
        assert peer["fds_lost"] is True
        assert fds == []
        assert "fds_lost" not in offer


def test_events_that_were_not_taken_are_closed_with_the_client(
    make: Make, place: Place, broker: Server
) -> None:
    client = make()
    listening(client)
    with Wire(place).hello() as other:
        other.connect(1, 5000)
        client.call("sync")
        client.close()  # the check after each test finds open descriptors
        assert client.events() == []


def test_a_call_finds_the_next_broker_and_reports_to_it_first(make: Make, place: Place) -> None:
    owner = Owner()
    with serving(place):
        client = make(on_reconnect=owner)
        listening(client)
        before = client.fileno()
    assert readable(client, PATIENCE)
    assert client.events() == []
    assert not client.alive
    assert not readable(client), "the loss was reported, and must not keep the sleeper awake"
    client.post("close", object=1)  # no broker receives it
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


def test_events_of_the_last_broker_are_not_lost(make: Make, place: Place) -> None:
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
