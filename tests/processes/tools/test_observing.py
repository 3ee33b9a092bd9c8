# SPDX-License-Identifier: Apache-2.0
"""`shmnd ps`, `top` and `trace`, with real processes: that work, stand still, spin, and die."""

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import psutil
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
    stopped,
    until,
)
from shmnd.broker.observer import visit
from shmnd.broker.place import place_of
from shmnd.broker.protocol import PassedFd
from shmnd.ring import Segment
from shmnd_tools.main import main
from shmnd_tools.observe.counter_reader import CounterReader
from shmnd_tools.observe.snapshot import Process, Scene
from shmnd_tools.verbs import ps, top, trace

ME: Final = os.getpid()

HANGS: Final = """
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk.of(listener)
say("connected")
while True:  # with the interpreter's lock, and without a poll
    pass
"""


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as opened:
        yield opened


@pytest.fixture
def echo() -> Iterator[Child]:
    with Child(ECHO) as child:
        yield child


def look() -> Scene:
    reader = CounterReader(None)
    reader.refresh()
    return Scene.of(reader)


def row_of(pid: int) -> dict[str, Any]:
    """What `shmnd ps connections` tells of the one connection of a process."""
    (row,) = [row for row in ps.connection_rows(look()) if row["pid"] == pid]
    return dict(row)


def test_two_processes_that_talk(adapter: shmnd.Adapter, echo: Child) -> None:
    talk = Talk.to(adapter, tuple(echo.hear()))
    for _ in range(3):
        talk.say(b"x" * 40)
        talk.hear()
    # A Send is counted just after it is on its way.
    until(lambda: row_of(echo.pid)["sent"] == 3)
    mine, theirs = row_of(ME), row_of(echo.pid)
    assert (mine["state"], mine["peer"], theirs["peer"]) == ("connected", echo.pid, ME)
    assert (mine["local"], mine["remote"]) == (theirs["remote"], theirs["local"])
    assert (mine["sent"], mine["sent_bytes"], mine["received"]) == (3, 120, 3)
    assert (theirs["received"], theirs["received_bytes"], theirs["sent"]) == (3, 120, 3)
    assert (mine["outstanding"], mine["unread"], mine["waits"]) == (0, 0, "")
    assert mine["receives"] == 1
    assert abs(mine["since"] - time.time()) < 2 * PATIENCE
    (process,) = [row for row in ps.process_rows(look()) if row["pid"] == echo.pid]
    assert (process["adapters"], process["queue_pairs"], process["connections"]) == (1, 1, 1)
    assert (process["regions"], process["region_bytes"]) == (2, 2 * Talk.ROOM)
    assert sys.executable.rpartition("/")[2] in process["command"]
    until(lambda: asleep(echo.pid))


def asleep(pid: int) -> bool:
    (process,) = [row for row in ps.process_rows(look()) if row["pid"] == pid]
    return process["asleep"] is not None


def test_which_process_waits_for_which(adapter: shmnd.Adapter) -> None:
    """The other process spins with the interpreter's lock: it neither polls nor answers."""
    with Child(HANGS) as child:
        talk = Talk.to(adapter, tuple(child.hear()))
        assert child.hear() == "connected"
        for number in range(3):
            talk.qp.send(talk.regions[0].sge(0, 10), number)
        talk.cq.get_results()
        mine, theirs = row_of(ME), row_of(child.pid)
        # The first met the one receive there.
        assert mine["outstanding"] == 2
        assert mine["waits"].startswith(f"a Receive of {child.pid} for ")
        assert (theirs["receives"], theirs["unread"]) == (1, 3)
        assert theirs["received"] == 0


def test_a_process_that_stands_still(adapter: shmnd.Adapter, echo: Child) -> None:
    talk = Talk.to(adapter, tuple(echo.hear()))
    with stopped(echo.pid):
        until(lambda: row_of(ME)["peer_state"] == "stopped")
        talk.qp.send(talk.regions[0].sge(0, 10), "first")
        talk.qp.send(talk.regions[0].sge(0, 10), "second")
        talk.cq.get_results()
        assert f"{echo.pid} (stopped)" in row_of(ME)["waits"]
        assert row_of(echo.pid)["unread"] == 2


def test_a_process_that_proc_hides_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def hide(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", hide)
    found = [Process.of(pid) for pid in (ME, 0, 1 << 30, 1 << 40)]
    assert [each.state for each in found] == ["hidden", "gone", "gone", "gone"]
    assert found[0].text == str(ME)


def test_a_process_that_ended_and_was_not_waited_for_is_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Process.of(child.pid).text == f"{child.pid} (zombie)"
    finally:
        child.wait()


def test_a_process_that_died(adapter: shmnd.Adapter, echo: Child) -> None:
    talk = Talk.to(adapter, tuple(echo.hear()))
    talk.say(b"x" * 40)
    talk.hear()
    echo.kill()
    until(lambda: not [end for end in look().ends if end.process.pid == echo.pid])
    mine = row_of(ME)
    assert (mine["peer"], mine["peer_state"], mine["sent"]) == (echo.pid, "gone", 1)
    assert mine["unread"] is None
    until(lambda: bool(talk.cq.wait(8, 0.1)))
    assert row_of(ME)["state"] == "down"


def test_a_connect_without_an_answer(adapter: shmnd.Adapter) -> None:
    listener = listening(adapter)
    cq = adapter.create_completion_queue(8)
    pair = adapter.create_queue_pair(cq, cq)
    connector = adapter.create_connector()
    asked = connector.connect(pair, listener.get_local_address())
    (row,) = [row for row in ps.connection_rows(look()) if row["state"] == "asking"]
    assert (row["pid"], row["peer"]) == (ME, ME)
    assert row["waits"] == f"{ME} to take the request"
    passive = adapter.create_connector()
    listener.get_connection_request(passive).result(PATIENCE)
    (row,) = [row for row in ps.connection_rows(look()) if row["state"] == "asking"]
    assert row["waits"] == f"{ME} to accept"
    passive.reject()
    with pytest.raises(ConnectionRefusedError):
        asked.result(PATIENCE)


def test_without_a_broker_and_with_one_that_stands_still(
    adapter: shmnd.Adapter, echo: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Talk.to(adapter, tuple(echo.hear()))
    with_broker = {row["pid"] for row in ps.connection_rows(look())}
    assert with_broker == {ME, echo.pid}
    with stopped(broker_pid()):
        assert main(["ps"]) == 0
    told = capsys.readouterr()
    assert f"{echo.pid}  " in told.out
    assert "did not answer within 1 s; is it stopped?" in told.err
    end_process(broker_pid())
    with stopped(echo.pid):  # it would start another one
        assert {row["pid"] for row in ps.connection_rows(look())} == with_broker
        assert main(["ps", "connections"]) == 0
        assert "no broker runs" in capsys.readouterr().err
    talk.qp.close()


SILENT: Final = """
adapter = shmnd.open_adapter()
talk = Talk.to(adapter, tuple(hear()))
say("connected")
what = hear()
say(what)
while what == "polls":
    talk.cq.get_results()
while what == "computes":
    pass
time.sleep(1000)
"""


def test_a_restart_of_the_broker_hides_no_process(
    adapter: shmnd.Adapter, echo: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process polls, one computes, one sleeps: none of them speaks to the new broker."""
    talk = Talk.to(adapter, tuple(echo.hear()))
    listener = listening(adapter)
    talks = []
    with contextlib.ExitStack() as children:
        silent = {}
        for what in ("polls", "computes", "sleeps"):
            child = silent[what] = children.enter_context(Child(SILENT))
            child.say(listener.get_local_address())
            talks.append(Talk.of(listener))
            assert child.hear() == "connected"
            child.say(what)
            assert child.hear() == what
        everyone = {ME, echo.pid, *(child.pid for child in silent.values())}
        old = broker_pid()
        for stage in ("before", "no broker", "a new broker"):
            if stage == "no broker":
                end_process(old)
            elif stage == "a new broker":
                shmnd.open_adapter().close()
                assert broker_pid() not in (0, old)
            for _ in range(20):
                talk.say(b"x" * 40)
                talk.hear()
            assert everyone == {row["pid"] for row in ps.connection_rows(look())}, stage
            assert main(["ps", "--format", "json"]) == 0
            told = json.loads(capsys.readouterr().out)
            assert everyone == {row["pid"] for row in told["processes"]}, stage
            assert main(["top", "--count", "1", "--interval", "0.01", "--format", "json"]) == 0
            told = json.loads(capsys.readouterr().out)
            assert everyone == {row["pid"] for row in told["connections"]}, stage
            main(["doctor", "--format", "json"])
            told = json.loads(capsys.readouterr().out)
            assert [each["found"] for each in told if each["check"] == "processes"] == [
                "5 processes, 4 connections"
            ], stage

        def knows(pid: int) -> bool:
            with visit(place_of()) as observer:
                assert observer is not None
                return pid in {row["pid"] for row in observer.records("processes")}

        until(lambda: knows(silent["polls"].pid))
        listener.close()


def test_a_namespace_without_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--namespace", "empty", "--format", "json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {"processes": [], "connections": [], "ranks": []}
    assert main(["top", "--namespace", "empty", "--count", "1", "--interval", "0.01"]) == 1
    assert main(["trace", "--namespace", "empty", "--for", "0.01"]) == 1
    told = capsys.readouterr()
    assert "no process uses namespace 'empty'" in told.out
    assert "trace: no queue pair to trace was found" in told.err
    assert main(["trace", "--pid", "4194305", "--for", "0.01"]) == 1
    assert "process 4194305 does not exist" in capsys.readouterr().err


def test_both_forms(
    adapter: shmnd.Adapter, echo: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Talk.to(adapter, tuple(echo.hear()))
    assert main(["ps", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"processes", "connections", "ranks"}
    assert {row["pid"] for row in told["connections"]} == {ME, echo.pid}
    assert main(["ps"]) == 0
    processes, connections = capsys.readouterr().out.split("\n\n")
    assert processes.startswith(" " * processes.index("pid") + "pid")
    assert len(connections.strip().splitlines()) == 4
    assert "127.0.0.1:" in connections
    talk.qp.close()


def test_top_shows_the_rates_of_each_connection(
    adapter: shmnd.Adapter, echo: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Talk.to(adapter, tuple(echo.hear()))
    before = {end.identity: top._counts_of(end) for end in look().ends}
    for _ in range(5):
        talk.say(b"x" * 40)
        talk.hear()
    until(lambda: row_of(echo.pid)["sent"] == 5)
    rows = top.rate_rows(look(), before, 2.0)
    assert {row["pid"] for row in rows} == {ME, echo.pid}
    for row in rows:
        assert (row["sent_per_s"], row["received_bytes_per_s"]) == (2.5, 100.0)
    assert main(["top", "--count", "2", "--interval", "0.01", "--format", "json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [len(json.loads(line)["connections"]) for line in lines] == [2, 2]
    assert main(["top", "--count", "1", "--interval", "0.01"]) == 0
    assert "2 processes, 2 queue pairs" in capsys.readouterr().out


def test_things_are_counted_in_words(adapter: shmnd.Adapter, echo: Child) -> None:
    talk = Talk.to(adapter, tuple(echo.hear()))
    scene = look()
    rows = top.rate_rows(scene, {}, 1.0)
    assert "2 processes, 2 queue pairs" in top._page(scene, rows, screen=False, nothing="")
    scene.ends = [end for end in scene.ends if end.process.pid == ME]
    assert "1 process, 1 queue pair," in top._page(scene, rows[:1], screen=False, nothing="")
    talk.qp.close()


def test_a_connection_is_traced_to_its_end(adapter: shmnd.Adapter) -> None:
    with Child(ECHO) as echo:
        address = tuple(echo.hear())
        with tracing("--address", f"{address[0]}:{address[1]}") as tracer:
            talk = Talk.to(adapter, address)
            happened = follow(tracer, ME, "state", "connected")
            talk.say(b"x" * 40)
            talk.hear()
            happened += follow(tracer, ME, "received")
            with stopped(echo.pid):
                happened += follow(tracer, echo.pid, "process", "stopped")
                talk.qp.send(talk.regions[0].sge(0, 10), "first")
                talk.qp.send(talk.regions[0].sge(0, 10), "second")
                talk.cq.get_results()
                happened += follow(tracer, ME, "waiting")
                echo.kill()
            until(lambda: bool(talk.cq.wait(8, 0.1)))
            happened += follow(tracer, ME, "state", "down")
    mine = [event for event in happened if event["pid"] == ME]
    sent = [event for event in mine if event["event"] == "sent"]
    assert (sum(event["count"] for event in sent[:1]), sent[0]["bytes"]) == (1, 40)
    assert {event["pid"] for event in happened} == {ME, echo.pid}
    ended = [event for event in mine if event["event"] == "failed"]
    assert ended[-1]["detail"] in ("CANCELED", "IO_TIMEOUT")


@contextlib.contextmanager
def tracing(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `shmnd trace` next to the test, which it observes."""
    program = (
        f"import signal, sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main;"
        # A test run in the background of a shell inherits an ignored SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "trace", "--format", "json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
            assert process.returncode == 130  # as any command that Ctrl-C ends


_BEGINNINGS: Final = ("came", "present")
"""The first line about a connection; it may be connected by then."""


def follow(
    tracer: subprocess.Popen[bytes], pid: int, event: str, detail: str = ""
) -> list[dict[str, Any]]:
    """Read events until one comes; give all."""
    assert tracer.stdout is not None
    happened = []
    deadline = time.monotonic() + PATIENCE
    while select.select([tracer.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
        happened.append(json.loads(tracer.stdout.readline()))
        last = happened[-1]
        if (
            last["pid"] == pid
            and last["event"] in (event, *_BEGINNINGS)
            and detail in last["detail"]
        ):
            return happened
    raise AssertionError(f"no {event!r} {detail!r}: {happened}")


def test_a_hostile_peer_is_shown_and_no_more(
    adapter: shmnd.Adapter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process may write what it likes into its own counters."""
    for _ in range(50):
        forged = Segment.create(4096, label="tally")
        honest = os.pread(adapter._counter_table.segments()[0][1].fd, 64, 0)
        os.pwrite(forged.fd, honest + os.urandom(4096 - 64), 0)
        os.pwrite(forged.fd, bytes(8), 48)  # the first segment: its head counts
        fd = forged.fd

        def refresh(self: CounterReader, fd: int = fd) -> None:
            self._known = dict(self._map([(ME, PassedFd(os.dup(fd)))]))

        monkeypatch.setattr(CounterReader, "refresh", refresh)
        assert main(["ps"]) == 0
        assert "waits for" in capsys.readouterr().out
        options = argparse.Namespace(
            namespace=None, pid=None, address=None, seconds=0.01, interval=0.001
        )
        for event in trace.Watcher(options).events(time.monotonic() + 0.01):
            assert event.line()
