# SPDX-License-Identifier: Apache-2.0
"""What bounds shared memory: the machine, the control groups, a limit of one's own."""

import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd
from shmnd import NdError, Status
from shmnd.broker.observer import visit
from shmnd.broker.place import place_of
from shmnd.ring import Arena, Segment
from shmnd.ring.shared_memory import bounds
from shmnd.ring.shared_memory.bounds import Bound, least_bound, own_limit

UNIFIED = "30 20 0:30 / /cg rw - cgroup2 cgroup2 rw,nsdelegate\n"
OLD = "32 20 0:32 /pod /mem rw - cgroup cgroup rw,memory\n"
MIB = 1 << 20
SPARE = 16 * MIB


def host(**files: str) -> dict[str, str]:
    return {
        "/proc/meminfo": "MemTotal: 99 kB\nMemAvailable: 1048576 kB\n",
        "/proc/self/mountinfo": UNIFIED + OLD,
        **{name.replace("__", "/"): text for name, text in files.items()},
    }


def least(files: dict[str, str]) -> Bound:
    return least_bound(lambda name: files.get(name, ""))


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    bounds._last_at = float("-inf")
    yield
    bounds._last_at = float("-inf")


def test_without_a_group_the_machine_bounds() -> None:
    bound = least(host())
    assert (bound.free, "MemAvailable" in bound.name) == (1024 * MIB - SPARE, True)
    assert least({}).free >= 1 << 60, "nothing can be read, nothing is known to be short"


@pytest.mark.parametrize("name", ["memory.max", "memory.high"])
@pytest.mark.parametrize("folder", ["/cg/slice/app", "/cg/slice", "/cg"])
def test_each_group_above_bounds_in_version_two(name: str, folder: str) -> None:
    files = host() | {
        "/proc/self/cgroup": "0::/slice/app\n",
        "/cg/slice/app/memory.max": "max",
        f"{folder}/{name}": f"{512 * MIB}",
        f"{folder}/memory.current": f"{200 * MIB}",
        f"{folder}/memory.stat": f"anon 7\ninactive_file {30 * MIB}\nactive_file {MIB}\nshmem 9",
    }
    bound = least(files)
    assert bound.free == (512 - 200 + 31) * MIB - SPARE
    assert f"control group {folder} ({name} {512 * MIB})" in bound.name


def test_groups_of_version_one_as_a_container_sees_them() -> None:
    files = host() | {
        "/proc/self/cgroup": "4:memory:/pod/a\n1:cpu,cpuacct:/pod/a\n0::/\n",
        "/mem/memory.limit_in_bytes": "9223372036854771712",
        "/mem/memory.usage_in_bytes": "5",
        "/mem/a/memory.limit_in_bytes": f"{256 * MIB}",
        "/mem/a/memory.usage_in_bytes": f"{100 * MIB}",
        "/mem/a/memory.stat": f"inactive_file 5\ntotal_inactive_file {MIB}\ntotal_active_file 0",
    }
    assert least(files).free == 157 * MIB - 256 * MIB // 32
    assert "control group /mem/a (memory.limit_in_bytes" in least(files).name
    files["/mem/a/memory.usage_in_bytes"] = f"{300 * MIB}"
    assert least(files).free == 0


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", None), ("4096", 4096), ("64M", 64 * MIB), ("1gib", 1 << 30), (" 2KB ", 2048)],
)
def test_a_limit_of_ones_own(text: str, limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", text)
    assert own_limit("here") == limit


@pytest.mark.parametrize("text", ["plenty", "-1", "1.5G", "0x10", "64 MM"])
def test_an_invalid_limit_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", text)
    with pytest.raises(NdError, match="takes a number of bytes") as caught:
        Segment.create(4096, label="test")
    assert caught.value.status is Status.INVALID_PARAMETER


def test_the_limit_of_the_process_counts_held_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", "0")
    with pytest.raises(NdError, match="of which this process holds ") as caught:
        Segment.create(1, label="test")
    before = int(str(caught.value).split("holds ")[1].split(";")[0])
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", str(before + 8 * MIB))
    held = Segment.create(5 * MIB, label="test")
    with pytest.raises(NdError, match=f"{3 * MIB} free by SHMND_MEMORY_LIMIT"):
        Segment.create(4 * MIB, label="test")
    Segment.create(3 * MIB, label="test").close_fd()
    del held
    Segment.create(8 * MIB, label="test").close_fd()


def test_too_little_memory_is_found_before_the_kernel_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = Bound(2 * MIB, "control group /cg (memory.max 1)", "raise its limit")
    monkeypatch.setattr(bounds, "least_bound", lambda: left)
    with pytest.raises(MemoryError, match=r"4194304 bytes .* 2097152 free by control group"):
        Segment.create(4 * MIB, label="test")
    Segment.create(MIB, label="test").close_fd()


def test_small_segments_share_a_reading_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(bounds, "_HOLDS", 3600.0)
    monkeypatch.setattr(
        bounds, "least_bound", lambda: read.append(1) or Bound(64 * MIB, "here", "")
    )
    small = MIB // 64
    for _ in range(16):
        bounds.require_room(small, 0, "here")
    assert len(read) == 1, "together they are small against what the reading found"
    for _ in range(33):
        bounds.require_room(small, 0, "here")
    assert len(read) == 4, "so much was made since that the reading does not serve any more"
    for _ in range(30):
        bounds.require_room(2 * MIB, 0, "here")
    assert len(read) == 34


def test_the_size_of_the_place_of_names_bounds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments have no names and do not lie there."""

    def tiny(*_: object) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 16, 0, 0, 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "statvfs", tiny)
    Segment.create(4 * MIB, label="test").close_fd()


def test_an_arena_with_a_limit() -> None:
    arena = Arena(lambda *_: None, lambda _: None, 3 * MIB)
    held = [arena.allocate(1000), arena.allocate(MIB)]
    with pytest.raises(NdError, match=r"1048576 free by memory_limit") as caught:
        arena.allocate(2 * MIB)
    assert caught.value.status is Status.INSUFFICIENT_RESOURCES
    del held[1]
    held.append(arena.allocate(2 * MIB))
    held += [arena.allocate(200_000) for _ in range(4)]
    with pytest.raises(NdError, match="0 free by memory_limit"):
        [arena.allocate(200_000) for _ in range(4)]
    arena.close()


def test_segments_that_threads_enter_at_once_have_numbers_of_their_own() -> None:
    told: dict[int, int] = {}
    blocks = []
    others = [1, 2, 3]

    def announce(number: int, segment: Segment, _: str) -> None:
        if others:  # as another thread does while this one waits for the broker
            blocks.append(arena.allocate(MIB * others.pop()))
        told[number] = segment.size

    arena = Arena(announce, lambda _: None, 10 * MIB)
    blocks.append(arena.allocate(4 * MIB))
    assert sorted(told) == sorted(each.seg for each in blocks) == [0, 1, 2, 3]
    assert {each.seg: each.nbytes for each in blocks} == told
    with pytest.raises(NdError, match=r"0 free by memory_limit"):
        arena.allocate(MIB)
    arena.close()


def test_a_segment_that_cannot_be_announced_counts_for_nothing() -> None:
    def announce(*_: object) -> None:
        raise TimeoutError

    withdrawn: list[int] = []
    arena = Arena(announce, withdrawn.append, MIB)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            arena.allocate(MIB)
    assert withdrawn == [0, 1, 2]  # it may have been announced before a handler of a signal raised
    arena.close()


def test_a_segment_that_was_announced_before_an_interruption_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(name: str) -> None:
        if name == "segment-announced":
            raise KeyboardInterrupt

    with shmnd.open_adapter() as adapter:
        adapter.allocate_segment(MIB)

        def segments() -> Any:
            with visit(place_of()) as observer:
                assert observer is not None
                adapter._engine.sync()
                return sum(each["segments"] for each in observer.records("adapters"))

        before = segments()
        monkeypatch.setattr("shmnd.common.steps.reached", interrupt)
        with pytest.raises(KeyboardInterrupt):
            adapter.allocate_segment(MIB)
        monkeypatch.undo()
        assert segments() == before


def test_a_broker_that_comes_before_the_announcement_gets_the_segment() -> None:
    def announce(number: int, segment: Segment, _: str) -> None:
        assert (number, segment) in arena.segments()

    arena = Arena(announce, lambda _: None, MIB)
    block = arena.allocate(MIB)
    assert [number for number, _ in arena.segments()] == [block.seg]
    arena.close()


def test_an_arena_that_is_closed_during_an_announcement_gives_no_memory() -> None:
    arena = Arena(lambda *_: arena.close(), lambda _: None, MIB)
    with pytest.raises(NdError, match="closed meanwhile"):
        arena.allocate(MIB)
    assert arena.segments() == []


def test_an_adapter_takes_its_limit() -> None:
    with shmnd.open_adapter(memory_limit=2 * MIB) as adapter:
        kept = adapter.allocate(MIB)
        with pytest.raises(MemoryError, match=r"Adapter\.allocate: .* memory_limit"):
            adapter.allocate(2 * MIB)
        assert kept.nbytes == MIB
    for wrong in (0, -1, "1", 1.5):
        with pytest.raises(NdError, match="memory_limit") as caught:
            shmnd.open_adapter(memory_limit=wrong)  # type: ignore[arg-type]
        assert caught.value.status is Status.INVALID_PARAMETER_5


def test_a_limit_of_files_is_named() -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, old[1]))
    try:
        with pytest.raises(NdError, match="ulimit -f"):
            Segment.create(2 * MIB, label="test")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_this_machine_can_be_read() -> None:
    bound = least_bound()
    assert 0 < bound.free < 1 << 60
