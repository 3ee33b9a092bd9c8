# SPDX-License-Identifier: Apache-2.0
"""Objects of one name in one process share its part, and one that is closed leaves nothing."""

import fcntl
import gc
import os
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import shmnd
from census import open_files
from shmnd import ipc
from shmnd.ipc.naming.shared_name import SharedName


@pytest.fixture
def name() -> str:
    return f"name-{uuid.uuid4().hex}"


def held() -> tuple[int, int]:
    """Return how many descriptors and mappings this process has."""
    gc.collect()
    queues = [each for each in open_files() if "shmnd-queue" in each]
    return len(queues), Path("/proc/self/maps").read_text().count("shmnd-queue")


@contextmanager
def serving(name: str) -> Iterator[ipc.Server]:
    with ipc.Server(name) as server:
        thread = threading.Thread(target=server.serve, args=(lambda request: request.value,))
        thread.start()
        try:
            yield server
        finally:
            server.close()
            thread.join()


def queue(name: str) -> None:
    with ipc.Queue(name=name) as opened:
        opened.put(1)
        assert opened.get(timeout=60) == 1


def client(name: str) -> None:
    with ipc.Client(name) as opened:
        assert opened.call(2, timeout=60).value == 2


@pytest.mark.parametrize(
    ("first", "again"), [(ipc.Queue, queue), (serving, client)], ids=["queue", "service"]
)
def test_an_object_opened_again_and_closed_leaves_nothing(
    first: Any, again: Callable[[str], None], name: str
) -> None:
    made = ipc.Queue(name=name) if first is ipc.Queue else first(name)
    with made:
        counts = []
        for _ in range(3):
            for _ in range(10):
                again(name)
            counts.append(held())
    assert counts[0] == counts[1] == counts[2]


def test_a_client_that_was_closed_here_is_not_computed(name: str) -> None:
    with ipc.Server(name) as server:
        with ipc.Client(name) as known:  # its answers are open at the server
            asked = known.send(1)
            request = server.receive(60)
            request.respond(1)
            assert asked.result(60).value == 1
            known.send(2)
        with ipc.Client(name) as other:
            other.send(3)
            assert server.receive(60).value == 3


def test_an_opening_that_fails_leaves_the_lock_of_the_one_before(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close of any descriptor of the file would end it: others would take over its items."""
    with closing(ipc.Queue(name=name)) as first:

        def fail(*given: Any, **also: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(SharedName, "announce", fail)
            with pytest.raises(KeyboardInterrupt):
                ipc.Queue(name=name)
        child = os.fork()
        if child == 0:
            wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, first._core.me, 1, 0)
            found = struct.unpack("hhqqi4x", fcntl.fcntl(first._core.fd, fcntl.F_GETLK, wanted))
            os._exit(0 if found[0] != fcntl.F_UNLCK and found[4] == os.getppid() else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_publisher_that_has_gone_leaves_nothing_of_its_meetings(name: str) -> None:
    with shmnd.open_adapter() as adapter, ipc.Subscriber(name, "f8") as sub:
        for number in range(4):
            with ipc.Publisher(name, "f8") as pub:
                pub.send(number)
                with sub.receive(60) as sample:
                    assert sample.array == number
            meetings = adapter._engine.meetings
            assert meetings._own.keys() == {own for own, _ in meetings._tokens}
