# SPDX-License-Identifier: Apache-2.0
"""A process that comes to the limit of its memory cgroup while it allocates shared memory.

The limit is read before a segment is made, so the call fails and the process continues. A process
that takes more than its group has all the same, by memory of its own, is ended by the kernel: by
SIGKILL, never by SIGBUS, since segments are committed when they are made. For its peers it is a
death like any other.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmnd
from processes.kit import PATIENCE, Child, Talk, listening

LIMIT = 96 << 20
PIECE = 16 << 20
ROOT = Path("/sys/fs/cgroup")

pytestmark = pytest.mark.crash


def own_groups() -> Iterator[tuple[Path, str]]:
    """Where a group below this process's own would lie, and the file of its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        elif not controllers:
            yield ROOT / path.lstrip("/"), "memory.max"


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup with the limit."""
    tried = []
    for parent, limit in own_groups():
        made = parent / f"shmnd-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError as why:
            tried.append(f"{made}: {why.strerror}")
            continue
        try:
            (made / limit).write_text(str(LIMIT))
        except OSError as why:
            tried.append(f"{made / limit}: {why.strerror}")
            made.rmdir()
            continue
        yield made
        remove(made)
        return
    pytest.skip(f"no memory cgroup can be made here ({'; '.join(tried) or 'there is none'})")


def remove(made: Path) -> None:
    """The group of a process that has just ended is busy for a moment."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            made.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


HUNGRY = f"""
talk = Talk.to(shmnd.open_adapter(), ("127.0.0.1", hear()))
say("met")
hear()
held = []
try:
    while len(held) < {4 * LIMIT // PIECE}:
        held.append(talk.adapter.allocate({PIECE}))
except shmnd.NdError as why:
    say([why.status.name, len(held), str(why)])
    hear()
    private = []
    while True:
        private.append(bytearray(os.urandom(1 << 10) * (1 << 10)))
"""


def test_the_limit_of_a_memory_cgroup_is_an_error_of_the_call(group: Path) -> None:
    with shmnd.open_adapter() as adapter:
        listener = listening(adapter)
        port = listener.get_local_address()[1]
        with Child(HUNGRY) as hungry, Child(HUNGRY) as neighbour:
            talks = []
            for child in (hungry, neighbour):
                child.say(port)
                talks.append(Talk.of(listener))
                assert child.hear() == "met"
            (group / "cgroup.procs").write_text(str(hungry.pid))
            hungry.say("eat")
            status, pieces, text = hungry.hear()
            assert (status, pieces) == ("INSUFFICIENT_RESOURCES", (LIMIT - LIMIT // 32) // PIECE)
            assert f"control group {group}" in text
            hungry.say("eat more")
            assert hungry.process.wait(2 * PATIENCE) == -signal.SIGKILL
            with pytest.raises(ConnectionError):
                talks[0].hear()
            talks[1].say(b"continue")  # its receive is posted, so this arrives whatever else is
            assert neighbour.process.poll() is None
        listener.close()
