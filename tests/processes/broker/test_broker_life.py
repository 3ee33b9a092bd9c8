# SPDX-License-Identifier: Apache-2.0
"""The broker dies, is stopped, is replaced: connections are unaffected, all else continues."""

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmnd
from processes.kit import (
    ECHO,
    PATIENCE,
    Child,
    Talk,
    broker_pid,
    end_process,
    listening,
    shared_names,
    stopped,
)
from shmnd import NdError, Status
from shmnd.broker.client import CALL_SECONDS
from shmnd.broker.place import place_of
from shmnd.broker.protocol import VERSION

pytestmark = pytest.mark.slow


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as adapter:
        yield adapter


def exchange(talk: Talk, times: int = 50) -> None:
    for number in range(times):
        data = bytes([number % 256]) * (1 + 977 * number % 60000)
        talk.say(data)
        assert talk.hear() == data


def test_a_connection_outlives_its_broker(adapter: shmnd.Adapter) -> None:
    # A process that listens starts a broker, so it does not listen any more.
    program = ECHO.replace("Talk.of(listener)\n", "Talk.of(listener)\nlistener.close()\n")
    with Child(program) as echo:
        talk = Talk.to(adapter, tuple(echo.hear()))
        exchange(talk)
        end_process(broker_pid())
        exchange(talk)
        assert broker_pid() == 0, "messages need no broker, so none was started"


def test_new_connections_while_an_old_one_continues(adapter: shmnd.Adapter) -> None:
    """A process that needs a broker starts it, and both sides replay their state."""
    program = ECHO.replace(
        "    while True:\n        talk.say(talk.hear())",
        "    while True:\n        what = talk.hear()\n        talk.say(what)\n"
        "        if what == b'more':\n            talks.append(Talk.of(listener))\n"
        "            talks[-1].say(b'another')",
    ).replace("try:", "talks = []\ntry:")
    with Child(program) as echo:
        address = tuple(echo.hear())
        talk = Talk.to(adapter, address)
        others = []
        for _ in range(3):
            end_process(broker_pid() or pytest.fail("no broker"))
            talk.say(b"more")
            assert talk.hear() == b"more"
            others.append(connect_when_back(adapter, address))
            assert others[-1].hear() == b"another"
        exchange(talk, 5)


def connect_when_back(adapter: shmnd.Adapter, address: tuple[str, int]) -> Talk:
    """Connect; as long as the listener's process has not come back, there is no listener."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Talk.to(adapter, address)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_death_is_noticed_without_a_broker(adapter: shmnd.Adapter) -> None:
    with Child(ECHO) as echo:
        talk = Talk.to(adapter, tuple(echo.hear()))
        exchange(talk, 3)
        told = talk.connector.notify_disconnect()
        end_process(broker_pid())
        echo.kill()
        told.result(PATIENCE)
        (result,) = talk.cq.wait(8, PATIENCE)
        assert result.request_context == "in"
        assert result.status is not Status.SUCCESS


@pytest.mark.parametrize("who", ["peer", "broker and peer"])
def test_complete_connect_after_the_peer_died_fails(adapter: shmnd.Adapter, who: str) -> None:
    program = """
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk(adapter)
listener.get_connection_request(talk.connector).result(20)
pending = talk.connector.accept(talk.qp)
say("accepted")
hear()
"""
    with Child(program) as passive:
        talk = Talk(adapter)
        pending = talk.connector.connect(talk.qp, tuple(passive.hear()))
        assert passive.hear() == "accepted"
        pending.result(PATIENCE)
        if who != "peer":
            end_process(broker_pid())
        passive.kill()
        with pytest.raises(ConnectionError):
            talk.connector.complete_connect()


def test_messages_continue_while_the_broker_is_stopped(adapter: shmnd.Adapter) -> None:
    """Nor does the search for another one, which a listener needs, hold them up."""
    with Child(ECHO) as echo, listening(adapter):
        talk = Talk.to(adapter, tuple(echo.hear()))
        broker = broker_pid()
        with stopped(broker):
            adapter._engine.client._timeout = 1.0  # type: ignore[attr-defined]
            with pytest.raises(TimeoutError, match=f"pid {broker}.*stopped"):
                adapter.create_connector().bind(("127.0.0.1", 0))
            adapter._engine.client._timeout = 2 * PATIENCE  # type: ignore[attr-defined]
            started = time.monotonic()
            while time.monotonic() < started + 2.5:  # while it looks for another
                exchange(talk, 5)
                looked = time.monotonic()
                adapter._engine.progress()
                assert time.monotonic() - looked < PATIENCE, "a look waited for the broker"
        adapter._engine.client._timeout = CALL_SECONDS  # type: ignore[attr-defined]
        connect_when_back_to_itself(adapter)


def connect_when_back_to_itself(adapter: shmnd.Adapter) -> None:
    """All is as before once the broker continues."""
    listener = listening(adapter)
    request = adapter.create_connector()
    waiting = listener.get_connection_request(request)
    talk = Talk(adapter)
    talk.connector.connect(talk.qp, listener.get_local_address())
    waiting.result(PATIENCE)


def test_a_stopped_broker_is_named_within_the_bound() -> None:
    """Also by a process that comes new, whose hello is not read."""
    with shmnd.open_adapter():
        broker = broker_pid()
        with stopped(broker), Child("""
started = time.monotonic()
try:
    shmnd.open_adapter()
except shmnd.NdError as err:
    say([str(err), isinstance(err, TimeoutError), time.monotonic() - started])
""") as other:  # fmt: skip
            text, timeout, took = other.hear()
        assert timeout
        assert f"pid {broker}" in text
        assert "broker.sock" in text
        # No more than the documented bound; how much more a busy machine takes is not ours.
        assert took < 2 * CALL_SECONDS + PATIENCE


def test_a_stopped_broker_is_named_by_the_call_that_asks_again(adapter: shmnd.Adapter) -> None:
    """The second call begins a new session; its error names that call and not open_adapter."""
    client: Any = adapter._engine.client
    client._timeout = 0.2
    with stopped(broker_pid()):
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"^Adapter\.allocate: the broker at .*pid"):
                adapter.allocate(1 << 20)


def test_a_stop_between_request_and_reply_is_not_a_timeout(adapter: shmnd.Adapter) -> None:
    """A process that was stopped itself finds its answer there, however late."""
    client = adapter._engine.client
    client._timeout = 0.0  # type: ignore[attr-defined]
    real = client._send  # type: ignore[attr-defined]

    def send_and_sleep(*what: object) -> object:
        done = real(*what)
        time.sleep(0.3)
        return done

    client._send = send_and_sleep  # type: ignore[attr-defined]
    adapter._engine.call("sync")
    del client._send  # type: ignore[attr-defined]
    client._timeout = CALL_SECONDS  # type: ignore[attr-defined]


# -- a new version takes over --


def run_broker(*arguments: str, source: str = "") -> "subprocess.Popen[str]":
    program = f"import sys; sys.path[:0] = {[source, *sys.path]!r}; sys.argv[0] = 'broker'\n"
    program += "import runpy; runpy.run_module('shmnd.broker', run_name='__main__')"
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, text=True
    )


def test_a_broker_is_replaced_in_place(adapter: shmnd.Adapter) -> None:
    """The clients replay the state of the old broker to the new one; messages continue."""
    with Child(ECHO) as echo:
        talk = Talk.to(adapter, tuple(echo.hear()))
        old = broker_pid()
        with run_broker("--replace") as new:
            try:
                assert new.stderr is not None
                assert f"pid {new.pid} serves" in new.stderr.readline()
                assert broker_pid() == new.pid != old
                exchange(talk, 5)
                adapter._engine.sync()
                reply = adapter._engine.call("status")
                assert reply["processes"] >= 1
                assert reply["connections"] == 1
            finally:
                new.send_signal(signal.SIGTERM)
                new.communicate(timeout=PATIENCE)


def test_a_stopped_broker_is_replaced_too(adapter: shmnd.Adapter) -> None:
    old = broker_pid()
    os.kill(old, signal.SIGSTOP)
    with run_broker("--daemon", "--replace", "--idle", "0.5") as new:
        _, said = new.communicate(timeout=2 * PATIENCE)
        assert new.returncode == 0, said
    assert broker_pid() not in (0, old)
    adapter._engine.sync()


def test_a_broker_of_another_version_is_recognized(adapter: shmnd.Adapter, tmp_path: Path) -> None:
    """An older release still runs: the message says which versions, and how to end it.

    Connections continue, and when the other one is replaced, all is as before.
    """
    root = Path(shmnd.__file__).parent
    other = tmp_path / "shmnd"
    shutil.copytree(
        root,
        other,
        ignore=shutil.ignore_patterns("__pycache__", "*.c", "ring", "nd1", "mpi", "ipc"),
    )
    (other / "__init__.py").write_text("")
    protocol = other / "broker" / "protocol.py"
    text = protocol.read_text()
    current = f"VERSION: Final = {VERSION}"
    assert current in text
    protocol.write_text(text.replace(current, f"VERSION: Final = {VERSION - 1}"))
    with Child(ECHO) as echo:
        talk = Talk.to(adapter, tuple(echo.hear()))
        with run_broker("--replace", source=str(tmp_path)) as older:
            assert older.stderr is not None
            assert "serves" in older.stderr.readline()
            pattern = rf"version {VERSION - 1} .*version {VERSION}.*--replace"
            with pytest.raises(NdError, match=pattern) as caught:
                listening(adapter)
            assert caught.value.status is Status.NOT_SUPPORTED
            exchange(talk, 5)
            with run_broker("--daemon", "--replace", "--idle", "1") as newer:
                newer.communicate(timeout=PATIENCE)
                assert newer.returncode == 0
            older.communicate(timeout=PATIENCE)
        listening(adapter).close()
        exchange(talk, 5)


def test_threads_that_all_need_a_broker_get_one(adapter: shmnd.Adapter) -> None:
    end_process(broker_pid())
    failed: list[BaseException] = []

    def need() -> None:
        try:
            listening(adapter).close()
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=need) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failed
    assert broker_pid()


def test_nothing_stale_remains_of_a_broker(tmp_path: Path) -> None:
    """The last broker of a namespace leaves nothing, and another one can take its place."""
    before = shared_names()
    with shmnd.open_adapter(namespace="passing"):
        place = place_of("passing")
        pid = broker_pid(place)
    fd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    assert select.select([fd], [], [], PATIENCE)[0]
    os.close(fd)
    assert not place.directory.exists()
    lock = place.try_lock()
    assert lock is not None
    os.close(lock)
    assert shared_names() <= before


def test_a_broker_that_is_slow_is_waited_for(adapter: shmnd.Adapter) -> None:
    """Nothing is lost or done twice when it answers late, in the midst of a connect."""
    broker = broker_pid()
    for _ in range(3):
        os.kill(broker, signal.SIGSTOP)
        timer = threading.Timer(0.4, os.kill, (broker, signal.SIGCONT))
        timer.start()
        try:
            connect_when_back_to_itself(adapter)
        finally:
            timer.join()
    assert broker_pid() == broker
    adapter._engine.sync()
    status = adapter._engine.call("status")
    assert (status["connections"], status["listeners"]) == (0, 0)
