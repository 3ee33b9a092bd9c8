# SPDX-License-Identifier: Apache-2.0
"""Programs whose standard streams are closed: no memory and no lock gets their numbers.

Output that goes to them nevertheless would lie in shared memory, and a process that is started gets
other files under their numbers.
"""

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
