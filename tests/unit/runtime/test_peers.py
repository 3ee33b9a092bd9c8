# SPDX-License-Identifier: Apache-2.0
"""What this process keeps of others, also after it has seen them dead."""

import errno
import gc
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interrupting import interrupted
from shmnd.broker.untaken import close_all
from shmnd.common.owned import Owned
from shmnd.runtime.peers import Peers
from shmnd.status import Status, error


class Peer:
    """The record of an adapter: the segments that are mapped."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.segments: dict[int, Any] = {}
        self.dead = False

    def add_segment(self, seg: int, segment: Any) -> None:
        self.segments[seg] = segment

    def remove_segment(self, seg: int) -> None:
        del self.segments[seg]

    def mute(self) -> None:
        """Nothing is rung."""

    def mark_dead(self) -> None:
        self.dead = True


class Plane:
    """The data plane: it maps nothing."""

    def peer_adapter(self, uid: str, *_: Any) -> Peer:
        return Peer(uid)

    def attach_segment(self, fd: Owned, size: int, writable: bool) -> str:
        fd.close()
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
    peers.take_dead([pidfd])
    assert peer.dead
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


def introduction(adapter: str, child: Any) -> tuple[dict[str, Any], list[int]]:
    """Return the event that introduces an adapter of a child, with its descriptors."""
    event = {"process": "p", "same_user": True, "pid": child.pid, "adapter": adapter, "table": {}}
    return event, [os.open(os.devnull, os.O_RDWR), os.pidfd_open(child.pid)]


def test_the_death_of_a_process_ends_adapters_that_are_introduced_later(child: Any) -> None:
    """The broker has introduced them before it knew of the death."""
    waits: Any = Waits()
    plane: Any = Plane()
    peers = Peers(plane, waits)
    peers.meet(*introduction("a", child))
    first: Any = peers.get("a")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # still there for a pidfd
    peers.take_dead(list(waits.watched))
    assert first.dead
    peers.meet(*introduction("b", child))
    second: Any = peers.get("b")
    assert waits.watched, "the process is watched again"
    peers.take_dead(list(waits.watched))
    assert second.dead
    assert not waits.watched
    peers.close()


def test_a_process_that_lives_is_asked_before_it_counts_as_dead(child: Any) -> None:
    """A descriptor may have been closed since it was readable, and its number used again."""
    waits: Any = Waits()
    plane: Any = Plane()
    peers = Peers(plane, waits)
    peers.meet(*introduction("a", child))
    peer: Any = peers.get("a")
    peers.take_dead(list(waits.watched))
    assert not peer.dead
    assert peers.get("a") is peer
    assert waits.watched
    peers.close()


def test_a_process_is_not_watched_for_an_adapter_that_is_malformed(
    child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: Any = Waits()
    plane: Any = Plane()
    peers = Peers(plane, waits)

    def refuse(*_: Any) -> Peer:
        raise error(Status.INTERNAL_ERROR, "peer", "its table is malformed")

    with monkeypatch.context() as patch:
        patch.setattr(plane, "peer_adapter", refuse, raising=False)
        peers.meet(*introduction("a", child))
    assert peers.get("a") is None
    assert not waits.watched
    peers.meet(*introduction("b", child))
    assert len(waits.watched) == 1
    peers.close()
    assert not waits.watched


def test_a_segment_that_is_gone_may_be_announced_again(child: Any) -> None:
    """The end of it may be read twice, where the handler of a signal has interrupted the first."""
    waits: Any = Waits()
    plane: Any = Plane()
    peers = Peers(plane, waits)
    peers.meet(*introduction("a", child))
    peer: Any = peers.get("a")
    peers.add_segment(*segment(1))
    for _ in range(2):
        peers.remove_segment({"adapter": "a", "seg": 1})
        assert not peer.segments
    peers.add_segment(*segment(1))
    assert peer.segments == {1: "4096 bytes"}
    peers.close()


def test_adapters_of_a_process_that_lives_on_take_no_memory_when_they_are_closed(
    child: Any,
) -> None:
    waits: Any = Waits()
    plane: Any = Plane()
    peers = Peers(plane, waits)
    peers.meet(*introduction("stays", child))
    (process,) = peers._processes.values()
    for number in range(3):
        peers.meet(*introduction(f"a{number}", child))
        peers.forget(f"a{number}")
    gc.collect()
    assert process.introduced == {"stays"}
    assert set(process.known) == {"stays"}
    assert len(process._living) == 1
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


FDS = Path("/proc/self/fd")


def within(path: str) -> bool:
    """Return whether a handler may raise in a file."""
    return path.endswith(("peers.py", "descriptors.py")) and "tests" not in path


def met(peers: Peers, pidfd: int | None = None, adapter: str = "a") -> None:
    """Meet an adapter of a process, or of this one. A handler may interrupt the introduction."""
    ours, theirs = socket.socketpair()
    fds = [ours.detach(), os.pidfd_open(os.getpid()) if pidfd is None else os.dup(pidfd)]
    event = {"process": "p", "same_user": True, "pid": os.getpid(), "adapter": adapter, "table": {}}
    try:
        peers.meet(event, fds)
    finally:
        close_all(fds)  # as the exchange does
        theirs.close()


def sent(peers: Peers) -> None:
    """Map a segment of it."""
    event, fds = segment(1)
    try:
        peers.add_segment(event, fds)
    finally:
        close_all(fds)


def test_an_introduction_that_a_handler_interrupts_leaves_no_descriptor() -> None:
    waits: Any = Waits()
    plane: Any = Plane()
    for step in (met, sent):
        for at in itertools.count():
            peers = Peers(plane, waits)
            if step is sent:
                met(peers)
            before = len(list(FDS.iterdir()))
            came = interrupted(at, partial(step, peers), within)
            peers.close()
            kept = len(list(FDS.iterdir())) - before
            assert kept <= 0 if step is sent else kept == 0, f"{step.__name__} at {at}"
            if not came:
                break
        assert at > 5


def test_a_process_whose_adapter_a_handler_drops_is_watched_no_more() -> None:
    waits: Any = Waits()
    plane: Any = Plane()
    for at in itertools.count():
        peers = Peers(plane, waits)
        met(peers, adapter="b")
        (process,) = peers._processes.values()
        came = interrupted(at, partial(met, peers), within)
        peers.forget("a")
        peers.forget("b")
        gc.collect()
        assert not process._living, f"interrupted at {at}"
        assert not waits.watched
        peers.close()
        if not came:
            break
    assert at > 5


def test_the_end_of_an_adapter_that_a_handler_interrupts_is_repeated() -> None:
    waits: Any = Waits()
    plane: Any = Plane()
    for at in itertools.count():
        peers = Peers(plane, waits)
        met(peers)
        kept = peers.get("a")  # else its finaliser is interrupted, too
        came = interrupted(at, partial(peers.forget, "a"), within)
        peers.forget("a")
        assert peers.get("a") is None
        peers.forget_process("p")
        peers.close()
        del kept
        if not came:
            break
    assert at > 1


def test_a_death_whose_handling_is_interrupted_is_seen_at_the_next_poll(child: Any) -> None:
    pidfd = os.pidfd_open(child.pid)
    child.kill()
    child.wait(20)
    plane: Any = Plane()
    for at in itertools.count():
        waits: Any = Waits()
        peers = Peers(plane, waits)
        met(peers, pidfd)
        peer: Any = peers.get("a")
        die = partial(peers.take_dead, list(waits.watched))
        came = interrupted(at, die, within)
        die()
        assert peer.dead, f"interrupted at {at}"
        assert peers.get("a") is None
        assert not waits.watched
        peers.close()
        if not came:
            break
    assert at > 5
    os.close(pidfd)
