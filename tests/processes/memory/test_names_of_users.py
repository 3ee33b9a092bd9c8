# SPDX-License-Identifier: Apache-2.0
"""Names of queues, services, events and blackboards are for one user, also within a group."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from processes.kit import Child
from processes.memory.test_access import ANNA, BERT, CLUB, common, env, member, only_root
from shmnd.ipc.naming.shared_name import open_of_process

__all__ = ["common"]

pytestmark = pytest.mark.slow

ROOT = 0

MADE = f"""
from shmnd import ipc
os.environ["SHMND_GROUP"] = "{CLUB}"
queue = ipc.Queue(name="name")
queue.put("an item")
server = ipc.Server("name")
listener = ipc.Listener("name")
board = ipc.Blackboard("name", {{"key": "f8"}})
board["key"] = 1
say(os.getpid())
hear()
say(queue.get(timeout=10), listener.wait(0) == set())
hear()
"""

OPENED = f"""
from shmnd import ipc
os.environ["SHMND_GROUP"] = "{CLUB}"
def read():
    with ipc.BlackboardReader("name") as reader:
        return reader["key"]
makes = (
    lambda: ipc.Queue(name="name"),
    lambda: ipc.Server("name"),
    lambda: ipc.Client("name"),
    lambda: ipc.Notifier("name"),
    lambda: ipc.Listener("name"),
    lambda: ipc.Blackboard("name", {{"key": "f8"}}),
    read,
)
kept, counts = [], []
for _ in range(3):
    said = []
    for make in makes:
        try:
            make()
            said.append("opened")
        except PermissionError as exc:
            said.append(str(exc))
            kept.append(exc)
    counts.append(len(os.listdir("/proc/self/fd")))
say(counts, said)
hear()
"""


@only_root
@pytest.mark.parametrize("user", [BERT, ROOT])
def test_a_name_of_another_user_is_refused(common: Path, user: int) -> None:
    """Also by root, which may open all files: the pickles would run code of that user as root."""
    with Child(MADE, **member(ANNA), env=env(common)) as anna:
        pid = anna.hear()
        with Child(OPENED, **member(user), env=env(common)) as other:
            counts, said = other.hear()
            other.say(None)
        assert counts[1] == counts[2], "an error keeps no descriptor"
        assert len(said) == 7
        for each in said:
            assert f"the memory of 'name' belongs to process {pid} and cannot be opened: " in each
            assert f"user {ANNA} holds it" in each
            assert "for the processes of one user" in each
        anna.say(None)
        assert anna.hear() == ["an item", True]
        anna.say(None)


@only_root
def test_memory_that_root_made_is_refused_from_another_user() -> None:
    """Root allocates memory for peers of other users, which may announce it as a queue."""
    fd = os.memfd_create("of root")
    found = os.fstat(fd)
    wanted = found.st_dev, found.st_ino
    own = open_of_process(os.getpid(), fd, wanted, os.O_RDWR)
    assert own is not None
    with contextlib.closing(own):
        assert os.fstat(own.fd).st_ino == found.st_ino
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(ANNA, ANNA, ANNA)
        os.write(writing, b"ready")
        signal.pause()
    try:
        os.read(reading, 5)
        with pytest.raises(PermissionError, match=f"user {ANNA} holds it"):
            open_of_process(child, fd, wanted, os.O_RDWR)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for each in (fd, reading, writing):
            os.close(each)
    with pytest.raises(FileNotFoundError):
        open_of_process(child, fd, wanted, os.O_RDWR)
