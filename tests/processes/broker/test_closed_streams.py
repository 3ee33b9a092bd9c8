# SPDX-License-Identifier: Apache-2.0
"""Programs that close descriptors. Where these are the standard streams, no memory and no lock gets
their numbers.

Output that goes to them nevertheless would lie in shared memory, and a process that is started gets
other files under their numbers.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes.kit import PATIENCE, broker_pid, end_process
from shmnd.broker.place import Place

pytestmark = pytest.mark.slow

BEGINNING = """
import json, os, select, signal, sys
import shmnd
from shmnd import ipc
adapter = shmnd.open_adapter()
before = ipc.Publisher("closed-streams-0")
path = f"/dev/shm/closed-streams-{os.getpid()}"
with open(path, "xb") as file:
    file.write(bytes(4096))
for number in range(3):
    os.close(number)
"""
END = """
os.unlink(path)
links = [f"/proc/self/fd/{number}" for number in range(3)]
with open(sys.argv[1], "w") as report:
    json.dump([os.readlink(link) for link in links if os.path.lexists(link)], report)
adapter.close()  # its name goes
os._exit(0)
"""
MADE = {
    "memory": "made = adapter.allocate(1 << 20)",
    "memory with a name": "made = adapter.allocate(4096, name=f'/closed-{os.getpid()}')",
    "attached memory": "made = adapter.attach(path)",
    "a topic": "made = ipc.Publisher('closed-streams', '8f8')",
    "an event": "made = ipc.Listener('closed-streams')",
    "a blackboard": "made = ipc.Blackboard('closed-streams', {'a': 'f8'})",
    "a queue": "made = ipc.Queue()",
    "a queue with a name": "made = ipc.Queue(name='closed-streams')",
    "another broker": """
broker = adapter._engine.client._broker_pid
ended = os.pidfd_open(broker)
os.kill(broker, signal.SIGKILL)
select.select([ended], [], [])
os.close(ended)
made = adapter.create_listener()
made.bind(("127.0.0.1", 0))
""",
}


EVERYTHING = """
import asyncio, json, os, sys
for number in range(3):
    os.close(number)
import shmnd
from shmnd import ipc
def occupied():
    links = [f"/proc/self/fd/{number}" for number in range(3)]
    names = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [name for name in names if "libffi" not in name]  # opened for numpy, by some versions
found = {}
def look(what):
    found[what] = occupied()
server = shmnd.listen()
look("a server")
child = os.fork()
if child == 0:
    other = shmnd.connect(server.address)
    other.send_bytes(bytes(1 << 20))
    other.recv_bytes()
    os._exit(len(occupied()))
connection = server.accept(60)
look("a connection")
connection.recv_bytes(60)
look("a message")
file = connection.adapter.create_overlapped_file()
file.fileno()
connection.cq.fileno()
look("files")
connection.cq.wait(timeout=0.3)
look("a wait")
connection.send_bytes(b"end")
found["the child"] = ["something"] * os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
connection.close()
server.close()
publisher, subscriber = ipc.Publisher("closed", "8f8"), ipc.Subscriber("closed", "8f8")
notifier, listener = ipc.Notifier("closed"), ipc.Listener("closed")
waiting = ipc.WaitSet(subscriber, listener)
subscriber.fileno()
waiting.wait(timeout=0.3)
look("a set")
with open(sys.argv[1], "w") as report:
    json.dump(found, report)
"""


ALL_CLOSED = """
import os, threading
import shmnd
accepted = []
server = shmnd.listen()
accepting = threading.Thread(target=lambda: accepted.append(server.accept(60)))
accepting.start()
connection = shmnd.connect(server.address)
accepting.join()
adapter, other = connection.adapter, accepted[0]
queue = adapter.create_completion_queue(4)
os.closerange(3, 256)
calls = [
    lambda: adapter.allocate(1 << 22), lambda: adapter.create_overlapped_file().fileno(),
    queue.fileno, lambda: queue.wait(1, 0.1), lambda: connection.send_bytes(b"message"),
    lambda: other.recv_bytes(0.1), lambda: shmnd.connect(server.address), shmnd.listen,
    shmnd.open_adapter, lambda: shmnd.nd1.Provider().open_adapter("127.0.0.1"),
]
for number, call in enumerate(calls):
    try:
        assert not call(), number
    except shmnd.NdError as exc:
        assert exc.status == shmnd.Status.DEVICE_REMOVED, (number, exc)
        assert "closed descriptors that are not its own, as os.closerange does" in str(exc), exc
    else:
        raise AssertionError(number)
for each in (connection, other, server):
    each.close()
with shmnd.open_adapter() as again:
    assert len(again.allocate(1 << 22)) == 1 << 22
"""


def test_descriptors_that_the_program_closes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "run"))
    command = [sys.executable, "-c", ALL_CLOSED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    if pid := broker_pid(Place(tmp_path / "run" / "default")):
        end_process(pid, signal.SIGTERM)


def test_nothing_gets_the_number_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program prints rings nothing; one that opens its streams again closes nothing."""
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "run"))
    report = tmp_path / "report"
    command = [sys.executable, "-c", EVERYTHING, str(report)]
    subprocess.run(command, timeout=PATIENCE, check=True)
    found = json.loads(report.read_text())
    assert not any(found.values()), found
    if pid := broker_pid(Place(tmp_path / "run" / "default")):
        end_process(pid, signal.SIGTERM)


@pytest.mark.parametrize("kind", MADE)
def test_no_memory_gets_the_number_of_a_stream(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "run"))
    report = tmp_path / "report"
    program = BEGINNING + MADE[kind] + END
    command = [sys.executable, "-c", program, str(report)]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0
    told = report.read_text()
    assert not [word for word in ("memfd", "/dev/shm", "lock") if word in told], told
    place = Place(tmp_path / "run" / "default")
    if pid := broker_pid(place):
        end_process(pid, signal.SIGTERM)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_broker_without_streams_serves(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path))
    command = f'exec "$0" -m shmnd.broker --daemon --idle 60 {closed}'
    ended = subprocess.run(["/bin/sh", "-c", command, sys.executable], check=False)
    assert ended.returncode == 0
    place = Place(tmp_path / "default")
    pid = broker_pid(place)
    assert pid
    links = [Path(f"/proc/{pid}/fd/{number}") for number in range(3)]
    assert [str(link.readlink()) for link in links] == [os.devnull] * 3
    end_process(pid, signal.SIGTERM)
