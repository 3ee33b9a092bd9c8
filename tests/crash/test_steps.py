# SPDX-License-Identifier: Apache-2.0
"""Death at every named step that is carried out in Python: of a peer, and of the broker.

The survivor is this process. It has a second connection, within itself, that must continue.
"""

import contextlib
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import shmnd
from crash.killable import WAIT, Half, killable
from processes.kit import broker_pid, end_process
from shmnd import NdError, ipc
from shmnd.broker.place import place_of

ROOT = Path(__file__).parents[2]
ACTIVE = [
    "hello-sent", "adapter-announced", "segment-created", "segment-sealed", "segment-announced",
    "connect-asked", "answer-arrived", "segment-attached", "pair-attached",
    "answer-taken", "opened", "connected", "end-reported",
]  # fmt: skip
PASSIVE = [
    "port-bound", "listening", "request-armed", "offer-taken", "link-made", "link-written",
    "segment-attached", "pair-attached", "answer-to-be-sent", "answer-sent", "end-reported",
    "refusal-sent",
]  # fmt: skip
BROKER = [
    "broker-has-a-client", "broker-has-read", "broker-has-decided", "broker-is-about-to-send",
    "broker-has-sent", "broker-has-lost-a-client",
]  # fmt: skip
QUEUE = ["queue-joined", "queue-cleared", "queue-claimed", "queue-punched"]
ELSEWHERE = {
    "directory-made": "test_death_while_the_place_is_made",
    "lock-made": "test_death_while_the_place_is_made",
    "broker-to-be-started": "test_the_starter_of_a_broker_dies",
    "broker-socket-bound": "test_a_broker_that_begins_dies",
    "broker-socket-shown": "test_a_broker_that_begins_dies",
    "broker-socket-removed": "test_a_broker_that_leaves_dies",
    "place-emptied": "test_a_broker_that_leaves_dies",
    "stream-ended": "test_a_client_that_ends_a_stream_dies",
}

pytestmark = pytest.mark.crash


def test_every_step_has_a_test() -> None:
    named = set()
    for path in (ROOT / "shmnd").rglob("*.py*"):
        if path.suffix in {".py", ".pyx"}:
            named |= set(re.findall(r'\bstep\("([a-z-]+)"\)', path.read_text()))
    assert named == {*ACTIVE, *PASSIVE, *BROKER, *QUEUE, *ELSEWHERE}
    assert all(test in globals() for test in ELSEWHERE.values())


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A broker of its own."""
    name = f"crash-{os.getpid()}-{abs(hash(request.node.name)) % 10**8}"
    monkeypatch.setenv("SHMND_NAMESPACE", name)
    return name


class Aside:
    """A connection within this process."""

    def __init__(self, adapter: shmnd.Adapter) -> None:
        self.near, self.far = Half(adapter), Half(adapter)
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        request = listener.get_connection_request(self.far.connector)
        asked = self.near.connector.connect(self.near.pair, listener.get_local_address())
        while not request.done():
            self.near.queue.wait(1, 0.01)
            if asked.done():
                asked.result()  # refused, for its broker is gone
        accepted = self.far.connector.accept(self.far.pair)
        asked.result(WAIT)
        self.near.connector.complete_connect().result(WAIT)
        accepted.result(WAIT)
        listener.close()

    def talk(self, number: int) -> None:
        """One message, checked."""
        self.near.memory[:2000] = number % 251
        self.far.memory[:2000] = 0
        self.far.pair.receive(self.far.region.sge(), "taken")
        self.near.pair.send(self.near.region.sge(0, 2000), "sent")
        (taken,) = self.far.queue.wait(1, WAIT)
        assert taken.bytes_transferred == 2000
        assert (self.far.memory[:2000] == number % 251).all()
        assert self.near.queue.wait(1, WAIT)[0].request_context == "sent"


def over(operation: Any) -> None:
    """It ends, well or badly."""
    try:
        operation.result(WAIT)
    except NdError:
        pass


def survive(half: Half, aside: Aside, process: Any, operations: list[Any]) -> float:
    """Talk until the other process is dead and all that is ours has ended; when that was."""
    number = 0
    deadline = time.monotonic() + 3 * WAIT
    while process.is_alive() or half.ended < half.posted:
        aside.talk(number := number + 1)
        half.reap()
        assert time.monotonic() < deadline, (half.ended, half.posted)
    for operation in operations:
        over(operation)
    return time.monotonic()


def time_of_death(pipe: Any) -> float:
    """When the other process died; 0.0 when it never came to that."""
    moment = 0.0
    while pipe.poll():
        try:
            said = pipe.recv()
        except ConnectionResetError:
            continue  # it left something unread; its own words are still there
        except EOFError:
            break
        if isinstance(said, tuple) and said[0] == "dies":
            moment = said[1]
    return moment


def meet_active(adapter: shmnd.Adapter, name: str, passes: int = 1) -> tuple[float, float]:
    """Listen for a process to be killed, and outlive it: when it died, and when all was over."""
    aside, half = Aside(adapter), Half(adapter)
    listener = adapter.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    request = listener.get_connection_request(half.connector)
    with killable("active", name, passes) as (process, pipe):
        with contextlib.suppress(BrokenPipeError):
            pipe.send(listener.get_local_address())
        while process.is_alive() and not request.done():
            aside.talk(1)
        operations = []
        if request.done():
            try:
                operations.append(half.connector.accept(half.pair, 4, 4))
                operations[0].result(WAIT)
                operations.append(half.connector.notify_disconnect())
                for number in range(2):
                    half.post(number)
            except NdError:
                pass  # it was quicker
        end = survive(half, aside, process, operations)
        moment = time_of_death(pipe)
        assert not name or process.exitcode == -signal.SIGKILL, "no process came to this step"
    half.connector.close()
    listener.close()
    aside.talk(2)
    return moment, end


def meet_passive(adapter: shmnd.Adapter, name: str) -> tuple[float, float]:
    """Connect to a process to be killed, twice, and outlive it."""
    aside, half = Aside(adapter), Half(adapter)
    with killable("passive", name) as (process, pipe):
        address = None
        while process.is_alive() and address is None:
            if pipe.poll(0.05):
                said = pipe.recv()
                if said[0] == "dies":
                    end = survive(half, aside, process, [])
                    assert process.exitcode == -signal.SIGKILL
                    return said[1], end
                address = said
        operations: list[Any] = []
        try:
            assert address is not None
            asked = half.connector.connect(half.pair, address, 4, 4)
            operations.append(asked)
            asked.result(WAIT)
            half.connector.complete_connect().result(WAIT)
            operations.append(half.connector.notify_disconnect())
            for number in range(2):
                half.post(number)
            if name == "refusal-sent":
                while half.ended < half.posted:
                    half.reap(0.05)
                second = Half(adapter)
                operations.append(second.connector.connect(second.pair, address))
        except NdError:
            pass  # it died first
        end = survive(half, aside, process, operations)
        moment = time_of_death(pipe)
        assert process.exitcode == -signal.SIGKILL, "no process came to this step"
    aside.talk(2)
    return moment, end


@pytest.mark.parametrize("name", ACTIVE)
def test_the_active_side_dies_at(namespace: str, name: str) -> None:
    with shmnd.open_adapter() as adapter:
        meet_active(adapter, name)


@pytest.mark.parametrize("name", PASSIVE)
def test_the_passive_side_dies_at(namespace: str, name: str) -> None:
    with shmnd.open_adapter() as adapter:
        meet_passive(adapter, name)


def until_it_serves(process: Any) -> None:
    """Else the next client would start another one."""
    place, deadline = place_of(), time.monotonic() + WAIT
    while process.is_alive() and not place.socket.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("name", BROKER)
@pytest.mark.parametrize("passes", [1, 3, 8, 14])
def test_the_broker_dies_at(namespace: str, name: str, passes: int) -> None:
    with killable("broker", name, passes) as (process, _):
        until_it_serves(process)
        tries = 0
        while True:
            tries += 1
            assert tries < 6, "a connect fails again and again"
            try:
                with shmnd.open_adapter() as adapter:
                    Aside(adapter).talk(tries)
                break
            except NdError:
                continue  # the broker died in the midst of it
        if process.is_alive():
            process.join(0.2)


@pytest.mark.parametrize("name", ["broker-socket-bound", "broker-socket-shown"])
def test_a_broker_that_begins_dies(namespace: str, name: str) -> None:
    with killable("broker", name) as (process, _):
        process.join(WAIT)
        assert process.exitcode == -signal.SIGKILL
    with shmnd.open_adapter() as adapter:
        Aside(adapter).talk(1)
    assert not place_of().new_socket.exists()


@pytest.mark.parametrize(
    ("name", "passes"), [("directory-made", 1), ("directory-made", 2), ("lock-made", 1)]
)
def test_death_while_the_place_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, passes: int
) -> None:
    """With a group, whose members cannot mend what another one left half made."""
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("SHMND_GROUP", str(os.getegid()))
    with killable("active", name, passes) as (process, _):
        process.join(WAIT)
        assert process.exitcode == -signal.SIGKILL
    with shmnd.open_adapter() as adapter:
        Aside(adapter).talk(1)
    end_process(broker_pid())


@pytest.mark.parametrize("step", ["broker-socket-removed", "place-emptied"])
def test_a_broker_that_leaves_dies(namespace: str, step: str) -> None:
    with killable("broker", step) as (process, _):
        until_it_serves(process)
        with shmnd.open_adapter() as adapter:
            Aside(adapter).talk(1)
        process.join(WAIT)
        assert process.exitcode == -signal.SIGKILL
    with shmnd.open_adapter() as adapter:
        Aside(adapter).talk(2)


def test_the_starter_of_a_broker_dies(namespace: str) -> None:
    with killable("active", "broker-to-be-started") as (process, _):
        process.join(WAIT)
        assert process.exitcode == -signal.SIGKILL
    with shmnd.open_adapter() as adapter:  # whose lock was its lock
        Aside(adapter).talk(1)


MEMBER = """
import gc, os, signal, sys
import numpy as np
from shmnd import ipc
from shmnd.common import steps

name, last = sys.argv[1:]
steps.reached = lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == last else None
with ipc.Queue(8, name=name) as queue:
    for megabytes in (8, 16, 32, 64):  # idle memory of other sizes goes back to the system
        queue.put(np.ones(megabytes << 17))
        queue.get(timeout=20)
        gc.collect()
"""


@pytest.mark.parametrize("last", QUEUE)
def test_a_member_of_a_queue_dies(namespace: str, last: str) -> None:
    with ipc.Queue(8, name="steps") as queue:
        for each in range(2):
            for end in ("queue-claimed", last):  # the second one finds what the first has left
                command = [sys.executable, "-c", MEMBER, "steps", end]
                died = subprocess.run(command, timeout=WAIT, check=False)
                assert died.returncode == -signal.SIGKILL
            queue.put(np.full(1 << 18, each))
            assert (queue.get(timeout=WAIT) == each).all()
            queue.put(each)
            assert queue.get(timeout=WAIT) == each
            assert queue.empty()


CLIENT = """
import os, signal, time
from shmnd import ipc
from shmnd.common import steps

steps.reached = lambda step: step == "stream-ended" and os.kill(os.getpid(), signal.SIGKILL)
with ipc.Client("steps") as client:
    stream = client.stream("count")
    while client._answers.qsize() < 64:
        time.sleep(0.01)
    time.sleep(0.1)  # the server polls no more
    stream.close()
"""


def test_a_client_that_ends_a_stream_dies(namespace: str) -> None:
    """It has written that it did, and does not wake the server that sleeps."""
    ended = threading.Event()

    def count() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            ended.set()

    def handler(request: Any) -> Any:
        return count() if request.value == "count" else request.value

    with ipc.Server("steps") as server, ipc.Client("steps") as other:
        thread = threading.Thread(target=server.serve, args=(handler,), daemon=True)
        thread.start()
        died = subprocess.run([sys.executable, "-c", CLIENT], timeout=WAIT, check=False)
        assert died.returncode == -signal.SIGKILL
        assert ended.wait(WAIT)
        assert other.call("next", WAIT).value == "next"
    thread.join(WAIT)


@pytest.mark.soak
def test_deaths_of_whole_processes(namespace: str) -> None:
    """Many, by chance: SHMND_DEATHS=200 python -m pytest tests/crash -m soak -s."""
    chance, took = Random(7), []
    with shmnd.open_adapter() as adapter:
        for _ in range(int(os.environ.get("SHMND_DEATHS", "200"))):
            moment, end = meet_active(adapter, chance.choice(ACTIVE[9:]))
            took.append(1000 * (end - moment))
    cuts = statistics.quantiles(took, n=100)
    print(f"\n{len(took)} deaths; through after (ms): median {cuts[49]:.1f}, 99 % {cuts[98]:.1f}")
