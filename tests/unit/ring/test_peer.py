# SPDX-License-Identifier: Apache-2.0
"""What a peer says of itself and of its memory is believed only as far as it makes sense."""

import contextlib
import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from shmnd.ring import Link, PeerAdapter, Segment
from shmnd.ring.process.peer import Probe
from shmnd.status import NdError, Status

MARKS = 1 << 29
TABLES = 1 << 30
BELLS = 3 << 29
"""Numbers of a peer's segments: of data below, of marks, tables and bells from here on."""

PARTS = ("receives", "extents", "requests", "elements", "srq", "rbit", "ibit", "rbell", "ibell")
"""Of the description of a queue pair; the last two are two numbers each."""


@contextlib.contextmanager
def beginning() -> Iterator[Any]:
    """A queue pair that is about to be connected."""
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_completion_queue(16)
        made = adapter.create_queue_pair(queue, queue)
        made._begin_connect()
        yield made
        made._end_connect()


def attach(pair: Any, changes: dict[str, Any], bells: int = 4096, marks: int = 4096) -> None:
    """Attach to a peer that describes itself as we do, but for some numbers."""
    said = dict(zip(PARTS, (*pair._describe()[:7], (0, 0), (0, 0)), strict=True)) | changes
    remote = (*[said[part] for part in PARTS[:7]], *said["rbell"], *said["ibell"])
    attach_to(pair, remote, bells, marks)


def attach_to(pair: Any, remote: tuple[Any, ...], bells: int = 4096, marks: int = 4096) -> None:
    peer = PeerAdapter("peer", 1, -1, -1, {})
    peer.add_segment(BELLS, Segment.create(bells, label="test"))
    peer.add_segment(MARKS, Segment.create(marks, label="test"))
    pair._attach(Link.create(pair._describe(), remote), peer, remote, False)


def refused(call: Callable[[], object], match: str) -> None:
    with pytest.raises(NdError, match=match) as caught:
        call()
    assert caught.value.status is Status.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rbit": -1}, "bit -1"),
        ({"ibit": 1 << 20}, f"bit {1 << 20}"),
        ({"rbit": "0"}, "bit '0'"),
        ({"rbell": []}, "another peer"),
        ({"ibell": [0]}, "another peer"),
        ({"ibell": [0, 0, 0]}, "another peer"),
        ({"ibell": [0, "0"]}, "a bell by"),
        ({"rbell": [1, 0]}, "segment 1, which it did not announce"),
        ({"rbell": [-1, 0]}, "segment -1, which it did not announce"),
        ({"rbell": [MARKS, 0]}, "did not announce"),
        ({"ibell": [0, 32]}, "bell 32 of 32"),
        ({"ibell": [0, -1]}, "bell -1 of 32"),
        ({"ibell": [0, 6]}, "bell 6 of 6"),  # there are fewer marks
        ({"ibell": [0, 1 << 70]}, "of 32"),
        ({"receives": -1}, "receives=-1"),
        ({"extents": 1000}, "extents=1000"),
        ({"receives": None}, "receives=None"),
        ({"requests": 1 << 17}, f"requests={1 << 17}"),
        ({"elements": "4"}, "elements='4'"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(changes: dict[str, Any], match: str) -> None:
    with beginning() as pair:
        refused(lambda: attach(pair, changes), match)


def test_a_description_that_ends_early_is_refused() -> None:
    with beginning() as pair:
        whole = pair._describe()
        for said in range(len(whole)):
            match = "another peer" if said > 3 else "=None"
            refused(functools.partial(attach_to, pair, whole[:said]), match)


@pytest.mark.parametrize("index", [0, 1, 1 << 40])
def test_a_bell_is_within_the_announced_segment_however_small(index: int) -> None:
    with beginning() as pair:
        refused(lambda: attach(pair, {"rbell": [0, index]}, bells=8), f"bell {index} of 0")
        refused(lambda: attach(pair, {"rbell": [0, index]}, marks=8), rf"bell {index} of (0|32)")


def test_marks_are_taken_only_when_they_can_be_written() -> None:
    """Or the first message would end this process. Data may be there for reading alone."""
    made = Segment.create(4096, label="test")
    fixed = Segment.attach(_again(made), 4096, writable=False)
    peer = PeerAdapter("peer", 1, -1, -1, {})
    refused(lambda: peer.add_segment(MARKS, fixed), "cannot be written")
    peer.add_segment(MARKS, made)
    peer.add_segment(0, fixed)


def _again(segment: Segment) -> int:
    return os.dup(segment.fd)


def test_segments_have_numbers_that_make_sense() -> None:
    peer, made = PeerAdapter("peer", 1, -1, -1, {}), Segment.create(4096, label="test")
    peer.add_segment(0, made)
    refused(lambda: peer.add_segment(0, made), "came twice")
    refused(lambda: peer.add_segment(TABLES, made), "table 0 of 4096 bytes")
    refused(lambda: peer.add_segment(TABLES + 5000, made), "table 5000")
    peer.remove_segment(7)  # never announced
    peer.add_segment(MARKS - 1, made)  # its owner has made and released many
    assert peer.segment(MARKS - 1) is made


def test_an_offer_of_memory_to_be_read_is_tried_not_believed() -> None:
    probe = Probe()
    good = [probe.address, probe.nonce]
    wrong = [probe.address, "00" * 16]
    pidfd = os.pidfd_open(os.getpid())

    def tried(pid: int, pidfd: int, said: object) -> bool:
        return PeerAdapter("peer", pid, -1, pidfd, {"probe": said}).vm

    try:
        for said in (None, [], [0, probe.nonce], [1 << 63, probe.nonce], [probe.address, 5], wrong):
            assert not tried(os.getpid(), pidfd, said)
        assert not tried(os.getppid(), pidfd, good)
        assert not tried(os.getpid(), -1, good), "without a pidfd no copy is tried"
        assert tried(os.getpid(), pidfd, good)
    finally:
        os.close(pidfd)


def test_a_number_that_is_another_process_by_now_is_not_copied() -> None:
    child = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(child.pid)
    child.kill()
    child.wait(10)
    probe = Probe()
    try:
        # The child's number, had it been given to this process since.
        stranger = PeerAdapter(
            "peer", os.getpid(), -1, pidfd, {"probe": [probe.address, probe.nonce]}
        )
        assert not stranger.vm
    finally:
        os.close(pidfd)


def test_the_link_of_another_layout_is_refused() -> None:
    with beginning() as pair:
        local = pair._describe()
    made = Segment.create(4096, label="test")
    refused(lambda: Link.attach(made.fd, 4096, local, local), "bytes, .* needed")
    large = Segment.create(Link.create(local, local).size, label="test")
    refused(lambda: Link.attach(large.fd, large.size, local, local), "has layout 0")


@pytest.mark.parametrize(
    ("depth", "kibibytes"), [(1, 8), (8, 8), (16, 16), (32, 28), (64, 48), (128, 64), (300, 180)]
)
def test_the_memory_of_a_connection_follows_from_its_depths(depth: int, kibibytes: int) -> None:
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_completion_queue(16)
        pair = adapter.create_queue_pair(queue, queue, receive_depth=depth, initiator_depth=depth)
        link = Link.create(pair._describe(), pair._describe())
        assert link.committed == kibibytes << 10
        link.close_fd()
