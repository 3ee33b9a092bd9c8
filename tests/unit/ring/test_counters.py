# SPDX-License-Identifier: Apache-2.0
"""Counters: what an adapter shows, who can write it, and what a reader makes of lies."""

import mmap
import os
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd
from processes.kit import join, listening
from shmnd import MrFlag, NdError, OpFlag, Status
from shmnd.broker.place import place_of
from shmnd.handshake.queue_pair_link import QpState
from shmnd.ring import Segment
from shmnd.ring.process.counters import FIELDS, SHARED, CountersView


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as opened:
        yield opened


def views(adapter: shmnd.Adapter) -> list[CountersView]:
    """What a tool that was given the descriptors sees."""
    return [
        CountersView(Segment.attach(os.dup(segment.fd), segment.size, writable=False))
        for _, segment in adapter._counter_table.segments()
    ]


def pairs(adapter: shmnd.Adapter) -> list[dict[str, Any]]:
    return [counters for view in views(adapter) for counters in view.pairs().values()]


def test_an_adapter_identifies_itself(adapter: shmnd.Adapter) -> None:
    (view,) = views(adapter)
    assert (view.adapter, view.pid, view.number) == (adapter.uid, os.getpid(), 0)
    assert view.place == place_of().mark != place_of("another").mark
    assert view.pairs() == {}
    assert set(view.head().values()) == {0}


def test_regions_are_counted_until_they_are_deregistered(adapter: shmnd.Adapter) -> None:
    (view,) = views(adapter)
    with adapter.create_memory_region() as region:
        region.register(bytearray(5000), MrFlag.ALLOW_LOCAL_WRITE).result(5)
        region_of_window = adapter.create_memory_region()
        region_of_window.register(adapter.allocate(100)).result(5)
        assert (view.head()["regions"], view.head()["region_bytes"]) == (2, 5100)
        region_of_window.deregister().result(5)
        assert (view.head()["regions"], view.head()["region_bytes"]) == (1, 5000)
        region.deregister().result(5)
    assert (view.head()["regions"], view.head()["region_bytes"]) == (0, 0)


def test_a_window_is_not_a_region(adapter: shmnd.Adapter) -> None:
    (view,) = views(adapter)
    queue = adapter.create_completion_queue(8)
    pairs_of_both = [adapter.create_queue_pair(queue, queue) for _ in range(2)]
    kept = join(listening(adapter), *pairs_of_both)
    region, window = adapter.create_memory_region(), adapter.create_memory_window()
    region.register(adapter.allocate(5000), MrFlag.ALLOW_LOCAL_WRITE).result(5)
    for _ in range(3):
        pairs_of_both[0].bind(region, window, region.address, 100, flags=OpFlag.ALLOW_READ)
        assert (view.head()["regions"], view.head()["region_bytes"]) == (1, 5000)
        pairs_of_both[0].invalidate(window)
        assert [result.status for result in queue.wait(8, 5)] == [Status.SUCCESS] * 2
        assert (view.head()["regions"], view.head()["region_bytes"]) == (1, 5000)
    pairs_of_both[0].bind(region, window, region.address, 100, flags=OpFlag.ALLOW_READ)
    window.close()
    assert (view.head()["regions"], view.head()["region_bytes"]) == (1, 5000)
    del kept


def test_a_notify_is_counted_while_it_is_armed(adapter: shmnd.Adapter) -> None:
    (view,) = views(adapter)
    queue = adapter.create_completion_queue(8)
    notify = queue.notify()
    queue.notify()
    assert view.head()["notifies"] == 1
    queue.close()
    assert notify.status == Status.CANCELED
    assert view.head()["notifies"] == 0


def test_a_queue_pair_has_a_counters_as_long_as_it_lives(adapter: shmnd.Adapter) -> None:
    queue = adapter.create_completion_queue(8)
    pair = adapter.create_queue_pair(queue, queue, receive_depth=5, initiator_depth=7)
    pair.receive(None)
    (counters,) = pairs(adapter)
    assert tuple(counters) == FIELDS
    assert (counters["receive_depth"], counters["initiator_depth"]) == (5, 7)
    assert (counters["posted"], counters["state"], counters["role"]) == (1, QpState.IDLE, 0)
    assert (counters["local"], counters["remote"]) == (None, None)
    pair.close()
    (counters,) = pairs(adapter)
    assert (counters["state"], counters["unfilled"]) == (QpState.CLOSED, 1)
    assert (counters["failures"], counters["status"]) == (1, Status.CANCELED)
    name = counters["name"]
    del pair
    assert pairs(adapter) == []
    another = adapter.create_queue_pair(queue, queue)
    (counters,) = pairs(adapter)
    assert counters["name"] > name
    another.close()


def test_a_shared_receive_queue_differs_from_none(adapter: shmnd.Adapter) -> None:
    queue = adapter.create_completion_queue(8)
    shared = adapter.create_queue_pair_with_srq(
        queue, queue, adapter.create_shared_receive_queue(4)
    )
    none = adapter.create_queue_pair(queue, queue, receive_depth=0)
    assert {counters["receive_depth"] for counters in pairs(adapter)} == {SHARED, 0}
    shared.close()
    none.close()


def test_more_queue_pairs_than_one_segment_has_room_for(adapter: shmnd.Adapter) -> None:
    queue = adapter.create_completion_queue(8)
    made = [adapter.create_queue_pair(queue, queue, receive_depth=0) for _ in range(200)]
    found = views(adapter)
    assert [view.number for view in found] == [0, 1, 2]
    assert {view.adapter for view in found} == {adapter.uid}
    assert len({counters["name"] for counters in pairs(adapter)}) == 200
    made.clear()
    assert pairs(adapter) == []


def test_a_late_announcement_undoes_its_own_segment(
    adapter: shmnd.Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters of a segment that no tool hears of would never be seen."""
    queue = adapter.create_completion_queue(8)
    made = [adapter.create_queue_pair(queue, queue, receive_depth=0) for _ in range(63)]

    def meanwhile(*_: Any, **__: Any) -> None:
        """Another thread makes a queue pair while this one waits for the broker, too long."""
        monkeypatch.undo()
        made.append(adapter.create_queue_pair(queue, queue, receive_depth=0))
        raise NdError(Status.IO_TIMEOUT, "too late")

    monkeypatch.setattr(adapter._engine, "announce_segment", meanwhile)
    with pytest.raises(NdError, match="too late"):
        adapter.create_queue_pair(queue, queue)
    made.append(adapter.create_queue_pair(queue, queue, receive_depth=0))
    assert len({counters["name"] for counters in pairs(adapter)}) == len(made) == 65
    assert len(views(adapter)) == 2


def test_a_table_that_is_closed_meanwhile_has_no_more_counters(
    adapter: shmnd.Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = adapter.create_completion_queue(8)
    made = [adapter.create_queue_pair(queue, queue, receive_depth=0) for _ in range(63)]
    monkeypatch.setattr(
        adapter._engine, "announce_segment", lambda *_, **__: adapter._counter_table.close()
    )
    with pytest.raises(NdError, match="closed meanwhile"):
        adapter.create_queue_pair(queue, queue)
    assert len(made) == 63


def test_no_other_process_can_write_it(adapter: shmnd.Adapter) -> None:
    ((_, segment),) = adapter._counter_table.segments()
    with pytest.raises(PermissionError):
        mmap.mmap(segment.fd, segment.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.pwrite(segment.fd, b"x", 0)


def test_a_forked_child_changes_nothing_of_it(adapter: shmnd.Adapter) -> None:
    queue = adapter.create_completion_queue(8)
    pair = adapter.create_queue_pair(queue, queue)
    region = adapter.create_memory_region()
    region.register(bytearray(10)).result(5)
    before = pairs(adapter), views(adapter)[0].head()
    child = os.fork()
    if child == 0:
        pair.close()
        region.close()
        del pair, region
        adapter.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert (pairs(adapter), views(adapter)[0].head()) == before
    pair.close()


def forged(content: bytes, nbytes: int = 4096) -> Segment:
    """A segment that a hostile peer made."""
    made = Segment.create(nbytes, label="test")
    os.pwrite(made.fd, content, 0)
    return made


@pytest.mark.parametrize(
    "content",
    [b"", os.urandom(4096), b"smndtaly" + bytes(56)],
    ids=["zeros", "noise", "no version"],
)
def test_invalid_counters_are_refused(content: bytes) -> None:
    with pytest.raises(NdError, match="CountersView") as caught:
        CountersView(forged(content))
    assert caught.value.status == Status.INTERNAL_ERROR


def test_one_that_is_too_short_is_refused() -> None:
    with pytest.raises(NdError, match="hold no counters"):
        CountersView(forged(b"smndtaly", 200))


def test_any_bytes_are_read_without_harm(adapter: shmnd.Adapter) -> None:
    """A hostile peer chooses all words of all counters; the size is that of the mapping."""
    ((_, segment),) = adapter._counter_table.segments()
    honest = os.pread(segment.fd, 256, 0)
    for _ in range(20):
        noise = bytearray(honest[:64] + os.urandom(4096 - 64))
        noise[40:48] = b"\xff" * 8  # entries
        view = CountersView(forged(bytes(noise)))
        assert view.entries == 15
        assert view.head()
        for counters in view.pairs().values():
            assert tuple(counters) == FIELDS
    with pytest.raises(IndexError, match="counters 15 of 15"):
        view.read(15)


def test_a_reader_reads_no_more_than_an_adapter_ever_makes(adapter: shmnd.Adapter) -> None:
    """A reader would spend minutes on the pages of a hostile peer."""
    ((_, segment),) = adapter._counter_table.segments()
    view = CountersView(forged(os.pread(segment.fd, 256, 0), 64 << 20))
    assert view.entries == 4095
    assert view.pairs() == {}
