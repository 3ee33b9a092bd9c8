# SPDX-License-Identifier: Apache-2.0
"""Brokers as processes: how they start, how they leave, how they die, and that processes notice."""

import argparse
import contextlib
import errno
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmnd.broker.__main__ as broker_program
from processes.kit import broker_pid, end_broker, end_process
from shmnd.broker import spawn
from shmnd.broker.client import BrokerClient
from shmnd.broker.place import Place, place_of
from shmnd.broker.protocol import name_of
from shmnd.broker.spawn import START_SECONDS, reach
from shmnd.status import NdError, Status
from unit.broker.wire import PATIENCE, Wire
from unit.sealed import sealed_memory

pytestmark = pytest.mark.slow

KEY = "ab" * 16


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = place_of("test", str(tmp_path))
    yield place
    end_broker(place)


Make = Callable[..., BrokerClient]


@pytest.fixture
def make(place: Place) -> Iterator[Make]:
    made: list[BrokerClient] = []

    def make(**more: Any) -> BrokerClient:
        more = {"key": os.urandom(16).hex(), "idle": 30.0, **more}
        base = str(place.directory.parent)
        client = BrokerClient("test", base=base, **more)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


CLIENT = """
import os, sys
sys.path[:0] = sys.argv[2:]
from shmnd.broker.client import BrokerClient
from shmnd.broker.protocol import name_of
def client(**more):
    return BrokerClient("test", key=os.urandom(16).hex(), base=sys.argv[1], idle=30.0,
                        **more)
def say(*words):
    print(*words, flush=True)
def hear():
    return sys.stdin.readline().strip()
"""


class Child:
    """A process with a client of its own, that does what its program says."""

    def __init__(self, place: Place, program: str) -> None:
        base = str(place.directory.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT + program, base, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 3 * PATIENCE)[0], "it keeps silent"
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def children(place: Place, count: int, program: str) -> Iterator[list[Child]]:
    made = [Child(place, program) for _ in range(count)]
    try:
        yield made
    finally:
        for child in made:
            child.process.kill()
            child.process.communicate()


def brokers_of(place: Place) -> list[int]:
    """Return every process that was started as a broker of a place."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if str(place.directory) in command and command[3].endswith("__main__.py"):
                found.append(process.pid)
    return found


# --- start ---


def test_twenty_processes_start_one_broker(place: Place) -> None:
    program = """
say("ready")
hear()
say(client().broker)
hear()
"""
    with children(place, 20, program) as all_of_them:
        for child in all_of_them:
            assert child.hear() == "ready"
        for child in all_of_them:
            child.say("go")
        names = {child.hear() for child in all_of_them}
        assert len(names) == 1
        assert brokers_of(place) == [broker_pid(place)]


def test_twenty_threads_start_one_broker(place: Place) -> None:
    socks: list[socket.socket] = []
    start = threading.Barrier(20)

    def ask() -> None:
        start.wait()
        socks.append(spawn.reach(place, time.monotonic() + PATIENCE))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(socks) == 20
    assert len(brokers_of(place)) == 1
    for sock in socks:
        sock.close()


def test_a_stale_socket_and_a_free_lock_are_not_a_broker(place: Place) -> None:
    place.listen().close()
    place.lock.write_text("")
    reach(place, time.monotonic() + START_SECONDS).close()
    assert broker_pid(place)


def test_a_broker_that_a_client_starts_is_a_daemon(place: Place, make: Make) -> None:
    marker = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(marker, True)
    make()
    os.close(marker)
    process = psutil.Process(broker_pid(place))
    assert process.cwd() == "/"
    assert os.getsid(process.pid) not in (os.getsid(0), process.pid + 1)
    assert process.terminal() is None
    assert process.pid not in [child.pid for child in psutil.Process().children(recursive=True)]
    links = {}
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it lets go of a client meanwhile
            links[int(fd.name)] = str(fd.readlink())
    assert [links[fd] for fd in (0, 1, 2)] == ["/dev/null"] * 3
    assert list(links.values()).count("/dev/null") == 3
    assert not any(link.startswith("pipe:") for link in links.values())


def test_a_broker_loads_no_site_packages(place: Place, make: Make) -> None:
    make()
    maps = Path(f"/proc/{broker_pid(place)}/maps").read_text()
    assert "numpy" not in maps
    assert "site-packages" not in maps


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho one >&2; echo no room >&2; exit 3\n", "no room"),
        ("#!/bin/sh\nexit 3\n", "ended with 3"),
        (None, "cannot start"),
    ],
)
def test_a_failed_start_reports_the_reason_and_lets_others_try(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, said: str
) -> None:
    program = tmp_path / "python"
    if script is not None:
        program.write_text(script)
        program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(program))
        with pytest.raises(NdError, match=said) as caught:
            spawn.reach(place, time.monotonic() + PATIENCE)
        assert caught.value.status is Status.DEVICE_NOT_READY
        patch.setattr(sys, "executable", "")
        with pytest.raises(NdError, match="embedded"):
            spawn.reach(place, time.monotonic() + PATIENCE)
    spawn.reach(place, time.monotonic() + PATIENCE).close()


def test_the_limit_of_processes_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(NdError, match=r"cannot start the broker: .*ulimit -u"):
            spawn.reach(place, time.monotonic() + PATIENCE)
    lock = place.try_lock()
    assert lock is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", refuse)
        with pytest.raises(OSError, match="unavailable; ulimit -u"):
            broker_program._daemon(place, lock, argparse.Namespace(idle=None))
    os.close(lock)


def test_a_start_that_hangs_is_a_timeout(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(TimeoutError, match="did not start"):
        spawn.reach(place, time.monotonic() + 0.1)


def test_a_lock_without_a_broker_is_a_timeout_that_names_both(place: Place) -> None:
    lock = place.try_lock()
    assert lock is not None
    with pytest.raises(TimeoutError) as caught:
        spawn.reach(place, time.monotonic() + 0.1)
    assert str(place.socket) in str(caught.value)
    assert str(place.lock) in str(caught.value)
    os.close(lock)


def test_a_fork_during_a_start_inherits_no_lock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child drops it as soon as it runs, which may be after the broker's start and end."""
    reader, writer = os.pipe()
    runs, run = os.pipe()
    child = 0

    def start_and_fork(*arguments: Any) -> Any:
        nonlocal child
        child = os.fork()
        if not child:
            os.write(run, b"x")
            os.read(reader, 1)  # lives on
            os._exit(0)
        return real(*arguments)

    real = spawn._start
    monkeypatch.setattr(spawn, "_start", start_and_fork)
    spawn.reach(place, time.monotonic() + PATIENCE).close()
    assert select.select([runs], [], [], PATIENCE)[0], "the forked child does not run"
    end_process(broker_pid(place))
    lock = place.try_lock()
    assert lock is not None, "the forked child holds the broker's lock"
    os.close(lock)
    os.write(writer, b"x")
    os.waitpid(child, 0)
    for each in reader, writer, runs, run:
        os.close(each)


# --- leave ---


def test_clients_that_come_while_it_leaves_are_not_lost(place: Place, make: Make) -> None:
    """Brokers with next to no patience: every client comes in the last moments of one."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    brokers = set()
    for _ in range(25):
        client = make(idle=0.01)
        brokers.add(client.broker)
        client.call("adapter", key=KEY)
        client.close()
        time.sleep(random_.uniform(0.0, 0.025))
    assert len(brokers) > 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(place: Place, make: Make, number: int) -> None:
    client = make()
    end_process(broker_pid(place), number)
    assert not place.socket.exists()
    assert client.call("sync")["status"] == 0
    assert broker_pid(place)


def run(place: Place, *arguments: str) -> subprocess.Popen[str]:
    program = f"import sys; sys.path[:0] = {sys.path!r}; import runpy; sys.argv[0] = 'broker';"
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{program} runpy.run_module('shmnd.broker', run_name='__main__')",
            "--namespace",
            place.directory.name,
            *arguments,
        ],
        env={**os.environ, "SHMND_RUNTIME_DIR": str(place.directory.parent)},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_broker_started_by_hand_logs_and_has_no_idle_limit(place: Place, make: Make) -> None:
    with run(place) as process:
        assert process.stderr is not None
        assert f"pid {process.pid} serves {place.socket}" in process.stderr.readline()
        client = make()
        assert broker_pid(place) == process.pid
        with run(place) as second:
            assert second.wait(PATIENCE) == 1
            assert second.stderr is not None
            assert "running already" in second.stderr.read()
        with run(place, "--daemon") as third:
            assert third.wait(PATIENCE) == 0
        client.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        log = process.stderr.read()
        assert "came, pid" in log
        assert "leaving: SIGINT" in log


def test_a_broker_that_cannot_serve_prints_one_line(place: Place) -> None:
    place.socket.mkdir()  # no broker can make a socket of that name
    with pytest.raises(NdError, match=r"did not start: \[Errno \d+\] .*broker\.sock'"):
        spawn.reach(place, time.monotonic() + PATIENCE)
    with run(place) as process:
        assert process.wait(PATIENCE) == 1
        assert process.stderr is not None
        (line,) = process.stderr.read().splitlines()
        assert line.startswith("shmnd broker: [Errno ")
    place.socket.rmdir()


def test_a_daemon_leaves_when_idle(place: Place) -> None:
    with run(place, "--daemon", "--idle", "0.2") as process:
        assert process.wait(PATIENCE) == 0
    pid = broker_pid(place)
    assert pid
    fd = os.pidfd_open(pid)
    assert select.select([fd], [], [], PATIENCE)[0]
    os.close(fd)
    assert not place.socket.exists()


@pytest.mark.parametrize("arguments", [("--idle", "-1"), ("--idle", "nan"), ("--what",)])
def test_bad_options_are_refused(place: Place, arguments: tuple[str, ...]) -> None:
    with run(place, *arguments) as process:
        assert process.wait(PATIENCE) == 2
    with run(place, "--namespace", "a/b") as process:
        assert process.wait(PATIENCE) == 2
        assert process.stderr is not None
        assert "namespace" in process.stderr.read()
    assert not broker_pid(place)


# --- die ---


class Holder:
    """A process that holds a listener and a connection to itself, and tells so."""

    def __init__(self) -> None:
        self.key = os.urandom(16).hex()
        self.adapter = name_of(self.key)
        self.port = 0
        self.connection: dict[str, Any] | None = None
        self.refused: list[Any] = []

    def declare(self, client: BrokerClient) -> None:
        client.call("adapter", key=self.key)
        reply = client.call(
            "bind",
            adapter=self.adapter,
            object=1,
            kind="listener",
            host="127.0.0.1",
            port=self.port,
        )
        self.port = reply["port"]
        client.call("listen", object=1, backlog=0)
        client.call("request", object=1, connector=1)

    def __call__(self, client: BrokerClient) -> None:
        self.declare(client)
        if self.connection is not None:
            reply = client.call("holds", connections=[self.connection])
            self.refused += reply["refused"]


def drop(client: BrokerClient) -> list[dict[str, Any]]:
    """Return the events that are there, and close their descriptors."""
    found = []
    for event, fds in client.events():
        found.append(event)
        for fd in fds:
            os.close(fd)
    return found


def test_the_next_broker_receives_the_objects_of_processes(place: Place, make: Make) -> None:
    one, two = Holder(), Holder()
    active, passive = make(on_reconnect=one), make(on_reconnect=two)
    one.declare(active)
    two.declare(passive)
    bind = {"adapter": one.adapter, "object": 2, "kind": "connector", "host": "127.0.0.1"}
    local = ["127.0.0.1", active.call("bind", **bind, port=0)["port"]]
    peer = ["127.0.0.1", two.port]
    connect = {"adapter": one.adapter, "object": 2, "local": local, "host": peer[0]}
    connection = active.call("connect", **connect, port=peer[1])["connection"]
    link = sealed_memory()
    passive.call("accept", [link], connection=connection, size=4096)
    os.close(link)
    active.call("sync")
    assert "accepted" in [event["ev"] for event in drop(active)]
    drop(passive)
    both = {"connection": connection}
    one.connection = {
        **both,
        "adapter": one.adapter,
        "peer_adapter": two.adapter,
        "local": local,
        "peer": peer,
        "role": "active",
    }
    two.connection = {
        **both,
        "adapter": two.adapter,
        "peer_adapter": one.adapter,
        "local": peer,
        "peer": local,
        "role": "passive",
    }

    old = active.broker
    end_process(broker_pid(place))
    assert place.socket.exists(), "a killed broker leaves its socket"
    drop(passive)
    active.call("sync")
    passive.call("sync")
    assert old != active.broker == passive.broker
    assert one.refused == two.refused == []
    counts = {"processes": 2, "adapters": 2, "listeners": 2, "connections": 1}
    assert counts.items() <= active.call("status").items()
    # They know each other again, and the port is held as before.
    active.call("sync")
    assert [e["ev"] for e in drop(active)] == ["doorbell", "peer"]
    with Wire(place).hello() as other:
        wire = {"adapter": other.adapter, "object": 1, "kind": "listener", "host": "127.0.0.1"}
        assert other.raw("bind", **wire, port=two.port)["status"] == Status.SHARING_VIOLATION
        number = other.connect(2, two.port)
        other.ask("sync")
        assert drop(passive)[-1]["connection"] == number


def test_brokers_that_are_killed_again_and_again(place: Place) -> None:
    program = """
holder = client()
for n in range(10**9):
    holder.call("adapter", key="%032x" % (os.getpid() * 1000 + n % 3))
    if n % 20 == 0:
        say(n)
"""
    with children(place, 3, program) as all_of_them:
        for child in all_of_them:
            child.hear()
        for _ in range(4):
            end_process(broker_pid(place))
            for child in all_of_them:
                # The text in the pipe is old; new text comes from a new broker.
                assert child.process.stdout is not None
                for _ in range(50):
                    assert child.hear(), "it failed"
        assert len(brokers_of(place)) == 1


def test_a_killed_client_is_noticed_and_its_things_are_freed(place: Place, make: Make) -> None:
    program = """
holder = client()
holder.call("adapter", key="c" * 32)
ADAPTER = name_of("c" * 32)
for number, port in ((1, 5000), (2, 5001)):
    holder.call("bind", adapter=ADAPTER, object=number, kind="listener", host="127.0.0.1",
                port=port)
    holder.call("listen", object=number, backlog=0)
holder.call("request", object=1, connector=7)
say("ready")
hear()
"""
    with children(place, 1, program) as (child,):
        assert child.hear() == "ready"
        with Wire(place).hello() as peer:
            offered, queued = peer.connect(1, 5000), peer.connect(2, 5001)
            child.process.kill()
            lost = {peer.event("refused")[0]["connection"] for _ in range(2)}
            assert lost == {offered, queued}
            assert len(peer.event("gone")[0]["process"]) == 32
            peer.listen(5, 5000)


def test_a_stopped_broker_is_a_timeout_and_comes_back(place: Place, make: Make) -> None:
    client = make()
    client.call("adapter", key=KEY)
    client._timeout = 0.2
    pid = broker_pid(place)
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"broker\.sock"):
                client.call("sync")
    finally:
        os.kill(pid, signal.SIGCONT)
    client._timeout = PATIENCE
    assert client.call("status")["adapters"] == 0  # nothing was replayed to the present session
    assert broker_pid(place) == pid


def test_a_starter_that_is_killed_leaves_no_lock(place: Place) -> None:
    program = """
from shmnd.broker.place import place_of
import time
lock = place_of("test", sys.argv[1]).try_lock()
say("locked" if lock is not None else "taken")
hear()
"""
    with children(place, 1, program) as (child,):
        assert child.hear() == "locked"
        child.process.kill()
        child.process.wait()
        spawn.reach(place, time.monotonic() + PATIENCE).close()
