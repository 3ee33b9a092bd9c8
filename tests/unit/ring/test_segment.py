# SPDX-License-Identifier: Apache-2.0
"""Segments: what no holder of a descriptor can do to the processes that map them."""

import ctypes
import errno
import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shmnd.ring import Segment
from shmnd.ring.shared_memory.owners import LentDescriptor
from shmnd.status import NdError, Status

PAGES = 4 * mmap.PAGESIZE


@pytest.fixture
def segment() -> Segment:
    return Segment.create(PAGES, label="test")


def unsealed(nbytes: int) -> int:
    fd = os.memfd_create("shmnd-test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, nbytes)
    return fd


CUTS: dict[str, Callable[[int], object]] = {
    "truncate": lambda fd: os.ftruncate(fd, 0),
    "truncate by a page": lambda fd: os.ftruncate(fd, PAGES - mmap.PAGESIZE),
    "extend": lambda fd: os.ftruncate(fd, 2 * PAGES),
    "seal more": lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    "open again and truncate": lambda fd: os.truncate(f"/proc/self/fd/{fd}", 0),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=list(CUTS))
def test_no_process_changes_the_size_of_a_segment(
    segment: Segment, cut: Callable[[int], object]
) -> None:
    with pytest.raises(PermissionError):
        cut(segment.fd)
    assert os.fstat(segment.fd).st_size == PAGES
    segment.close_fd()


def test_a_segment_has_no_name_and_no_rights_for_others(segment: Segment) -> None:
    assert os.fstat(segment.fd).st_mode & 0o777 == 0o600
    assert os.fstat(segment.fd).st_nlink == 0
    segment.close_fd()


def test_a_segment_is_committed_when_it_is_made(segment: Segment) -> None:
    assert os.fstat(segment.fd).st_blocks * 512 >= PAGES
    segment.close_fd()


def test_a_signal_undoes_a_small_part_of_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On many kernels it undoes the whole call, which is then repeated."""
    nbytes, calls = (8 << 20) + PAGES, []
    commit = os.posix_fallocate

    def recorded(fd: int, at: int, length: int) -> None:
        calls.append((at, length))
        commit(fd, at, length)

    monkeypatch.setattr(os, "posix_fallocate", recorded)
    segment = Segment.create(nbytes, label="test")
    monkeypatch.undo()
    assert os.fstat(segment.fd).st_blocks * 512 == os.fstat(segment.fd).st_size == nbytes
    assert max(length for _, length in calls) <= 2 << 20
    segment.close_fd()


def test_a_segment_that_could_be_cut_short_is_refused() -> None:
    with pytest.raises(NdError, match="truncated") as caught:
        Segment.attach(unsealed(PAGES), PAGES, writable=True)
    assert caught.value.status is Status.INTERNAL_ERROR


def test_a_segment_that_costs_its_owner_nothing_is_refused() -> None:
    """Two of the largest fill the address space of a process that maps them."""
    fd = unsealed(1 << 46)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with pytest.raises(NdError, match="only 0 are committed") as caught:
        Segment.attach(fd, 1 << 46, writable=True)
    assert caught.value.status is Status.INTERNAL_ERROR


def test_a_segment_that_is_too_short_is_refused(segment: Segment) -> None:
    with pytest.raises(NdError, match=f"{PAGES} bytes, {PAGES + 1} were announced"):
        Segment.attach(os.dup(segment.fd), PAGES + 1, writable=True)
    segment.close_fd()


def test_other_files_than_shared_memory_are_refused(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(write)
    directory = os.open(tmp_path, os.O_RDONLY)
    with tempfile.TemporaryFile(dir=Path.home()) as file:
        file.truncate(PAGES)
        for fd in (os.dup(file.fileno()), read, directory):
            with pytest.raises(NdError) as caught:
                Segment.attach(fd, PAGES, writable=False)
            assert caught.value.status is Status.INTERNAL_ERROR


def test_memory_that_peers_only_read_cannot_be_made_writable_again() -> None:
    table = Segment.create(PAGES, label="test", writable=False)
    copy = os.open(f"/proc/self/fd/{table.fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        for fd in (table.fd, copy):
            with pytest.raises(PermissionError):
                mmap.mmap(fd, PAGES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            with pytest.raises(PermissionError):
                os.pwrite(fd, b"forged", 0)
    finally:
        os.close(copy)
    with mmap.mmap(table.fd, PAGES, mmap.MAP_SHARED, mmap.PROT_READ) as view:
        assert not any(view[:])
    table.close_fd()


def test_a_sparse_segment_is_unmapped_at_once() -> None:
    # A thread, as for a long segment full of pages, costs more than the few pages.
    sync = ctypes.CDLL(None, use_errno=True).msync
    sync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    owner = Segment.create(8 << 20, label="test", committed=PAGES)
    for _ in range(50):
        peer = Segment.attach(os.dup(owner.fd), owner.size, writable=True, committed=PAGES)
        at = peer.address
        assert sync(at, PAGES, 1) == 0
        del peer
        assert sync(at, PAGES, 1) == -1
        assert ctypes.get_errno() == errno.ENOMEM


def _is_open(fd: int, segment: Segment) -> bool:
    try:
        return os.fstat(fd).st_size == segment.size
    except OSError:
        return False


def test_a_descriptor_that_is_lent_stays_open_until_all_of_them_are_back(segment: Segment) -> None:
    """Another file may have the number at once, which would go to the other process."""
    first, second = segment.lend(), segment.lend()
    assert first is not None
    assert second is not None
    fd = first.fd
    assert second.fd == fd == segment.fd
    del second
    assert not first.ended
    segment.close_fd()
    assert first.ended
    assert segment.lend() is None
    assert _is_open(fd, segment)
    del first
    assert not _is_open(fd, segment)


def test_a_descriptor_that_was_lent_and_is_back_is_closed_with_its_segment(
    segment: Segment,
) -> None:
    fd = segment.fd
    assert segment.lend() is not None
    assert _is_open(fd, segment)
    segment.close_fd()
    assert not _is_open(fd, segment)


def test_a_forked_child_has_no_lent_descriptor(segment: Segment) -> None:
    lent = segment.lend()
    assert lent is not None
    child = os.fork()
    if child == 0:
        taken = os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free
        os.dup2(taken, lent.fd)
        number, ended = lent.fd, lent.ended
        del lent
        os._exit(0 if ended and os.fstat(number) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert _is_open(lent.fd, segment)


def test_one_that_was_lent_by_no_segment_has_ended() -> None:
    assert LentDescriptor().ended
