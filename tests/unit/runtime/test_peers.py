# SPDX-License-Identifier: Apache-2.0
"""What this process keeps of others, also after it has seen them dead."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmnd.runtime.peers import Peers


class Peer:
    """The record of an adapter: the segments that are mapped."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.segments: dict[int, Any] = {}

    def add_segment(self, seg: int, segment: Any) -> None:
        self.segments[seg] = segment

    def remove_segment(self, seg: int) -> None:
        del self.segments[seg]

    def mute(self) -> None:
        """Nothing is rung."""


class Plane:
    """The data plane: it maps nothing."""

    def peer_adapter(self, uid: str, *_: Any) -> Peer:
        return Peer(uid)

    def attach_segment(self, fd: int, size: int, writable: bool) -> str:
        os.close(fd)
        return f"{size} bytes"


class Waits:
    """Descriptors that are watched."""

    def __init__(self) -> None:
        self.watched: set[int] = set()

    def include(self, fd: int) -> None:
        self.watched.add(fd)

    def exclude(self, fd: int) -> None:
        self.watched.discard(fd)


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait(20)
    assert process.stdin is not None
    process.stdin.close()


def segment(number: int) -> tuple[dict[str, Any], list[int]]:
    event = {"ev": "segment", "adapter": "a", "seg": number, "size": 4096, "writable": False}
    return event, [os.memfd_create("test")]


def test_a_segment_arrives_after_the_death_of_its_process(child: Any) -> None:
    waits: Any = Waits()
    plane: Any = Plane()
    peers = Peers(plane, waits)
    ours, theirs = socket.socketpair()
    pidfd = os.pidfd_open(child.pid)
    met = {"process": "p", "same_user": True, "pid": child.pid, "adapter": "a", "table": {}}
    peers.meet(met, [ours.detach(), pidfd])
    peer: Any = peers.get("a")
    peers.add_segment(*segment(1))
    child.kill()
    child.wait(20)
    assert [each.uid for each in peers.take_dead([pidfd])] == ["a"]
    assert peers.get("a") is None
    assert not waits.watched
    peers.add_segment(*segment(2))  # the broker had sent it before
    assert peer.segments == {1: "4096 bytes", 2: "4096 bytes"}
    del peer
    event, fds = segment(3)
    peers.add_segment(event, fds)  # its record is gone
    os.close(fds[0])
    theirs.close()
    peers.close()


def test_an_introduction_is_repeated_where_no_descriptor_was_free_to_check_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise private memory of the process would not be copied as long as it is known."""

    def refuse(*_: object, **__: object) -> str:
        raise OSError(errno.EMFILE, "none is free")

    waits: Any = Waits()
    plane: Any = Plane()
    peers = Peers(plane, waits)
    ours, theirs = socket.socketpair()
    met = {"process": "p", "same_user": True, "pid": 1, "adapter": "a", "table": {}}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(OSError, match="none is free"):
            peers.meet(met, [ours.detach(), os.pidfd_open(os.getpid())])
    assert peers.get("a") is None
    assert not waits.watched
    theirs.close()
    peers.close()
