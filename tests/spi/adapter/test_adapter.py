# SPDX-License-Identifier: Apache-2.0
"""IND2Adapter: what it says about itself, and everything it creates."""

import dataclasses
import gc
import itertools
import os
import re
import resource
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shmnd
from shmnd import AdapterFlag, AdapterInfo, Status
from spi.adapter.adapter_kit import CREATED, device_removed, refuses_bad_files
from spi.harness import LOCAL, WAIT, End, final, nd_error, statuses
from spi.pair import Pair
from spi.remote import Ends

INFO_SIZE = 96


# Query
def test_query_success_has_the_limits_that_programs_need(end: End) -> None:
    info = end.adapter.query()
    assert info.max_receive_queue_depth == info.max_initiator_queue_depth
    assert 64 <= info.max_receive_queue_depth < 0xFFFFFFFF
    assert info.max_completion_queue_depth >= info.max_receive_queue_depth
    assert info.max_shared_receive_queue_depth > 0
    assert info.max_initiator_sge >= 2
    assert info.max_receive_sge >= 2
    assert 1 <= info.max_read_sge <= info.max_initiator_sge
    assert info.max_transfer_length >= 67108864
    assert info.max_registration_size >= 67108864
    assert info.inline_request_threshold <= info.max_inline_data_size
    assert info.max_caller_data >= 40
    assert info.max_callee_data >= 36
    assert info.max_inbound_read_limit >= 1
    assert info.max_outbound_read_limit >= 1
    flags = AdapterFlag(info.adapter_flags)
    assert AdapterFlag.IN_ORDER_DMA_SUPPORTED in flags
    assert AdapterFlag.LOOPBACK_CONNECTIONS_SUPPORTED in flags
    assert AdapterFlag.CQ_RESIZE_SUPPORTED in flags


def test_query_success_round_trips_through_the_exact_bytes(end: End) -> None:
    info = end.adapter.query()
    packed = info.pack()
    assert len(packed) == INFO_SIZE
    assert AdapterInfo.unpack(packed) == info
    assert struct.unpack_from("<Q", packed, 8) == (info.adapter_id,)
    assert struct.unpack_from("<I", packed, 92) == (info.adapter_flags,)


def info_buffer(version: int, size: int = INFO_SIZE) -> bytearray:
    return bytearray(struct.pack("<I", version) + b"\xa5" * (size - 4))


@pytest.mark.parametrize("version", [1, 0x20000])
@pytest.mark.parametrize("spare", [0, 1, 104])
def test_query_into_success_echoes_the_version(end: End, version: int, spare: int) -> None:
    buffer = info_buffer(version, INFO_SIZE + spare)
    assert end.adapter.query_into(buffer) == INFO_SIZE
    info = AdapterInfo.unpack(buffer[:INFO_SIZE])
    assert info.info_version == version
    assert dataclasses.replace(info, info_version=0) == dataclasses.replace(
        end.adapter.query(), info_version=0
    )
    assert bytes(buffer[INFO_SIZE:]) == b"\xa5" * spare


@pytest.mark.parametrize("size", [4, 88, 95])
def test_query_into_buffer_overflow_when_too_small(end: End, size: int) -> None:
    buffer = info_buffer(1, size)
    before = bytes(buffer)
    with nd_error(Status.BUFFER_OVERFLOW, match=str(INFO_SIZE)) as caught:
        end.adapter.query_into(buffer)
    assert caught.value.required == INFO_SIZE
    assert isinstance(caught.value, BufferError)
    assert buffer == before, "unmodified"


@pytest.mark.parametrize("buffer", [None, bytearray()], ids=["null", "empty"])
def test_query_into_buffer_overflow_when_asked_for_the_size(
    end: End, buffer: bytearray | None
) -> None:
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        end.adapter.query_into(buffer)
    assert caught.value.required == INFO_SIZE


@pytest.mark.parametrize("version", [0, 2, 3, 0x10000, 0xFFFFFFFF])
def test_query_into_invalid_parameter_1_when_the_version_is_unknown(end: End, version: int) -> None:
    buffer = info_buffer(version)
    before = bytes(buffer)
    with nd_error(Status.INVALID_PARAMETER_1, match="(?i)query"):
        end.adapter.query_into(buffer)
    assert buffer == before


def test_query_address_list_success_includes_the_address_it_was_opened_with(ends: Ends) -> None:
    for host in ("127.0.0.1", "::1"):
        addresses = ends.here(host=host).adapter.query_address_list()
        assert (host, 0) in addresses
        assert {port for _, port in addresses} == {0}


def test_query_address_list_into_success_returns_the_size(end: End) -> None:
    addresses = end.adapter.query_address_list()
    needed = 8 + sum(16 + (28 if ":" in host else 16) for host, _ in addresses)
    buffer = bytearray(needed + 9)
    assert end.adapter.query_address_list_into(buffer) == needed
    assert struct.unpack_from("<i", buffer) == (len(addresses),)
    assert buffer[needed:] == bytes(9)


def test_query_address_list_into_buffer_overflow_when_too_small(end: End) -> None:
    with nd_error(Status.BUFFER_OVERFLOW) as asked:
        end.adapter.query_address_list_into(bytearray())
    needed = asked.value.required
    buffer = bytearray(b"\xa5" * (needed - 1))
    with nd_error(Status.BUFFER_OVERFLOW, match=str(needed)) as caught:
        end.adapter.query_address_list_into(buffer)
    assert caught.value.required == needed
    assert buffer == b"\xa5" * (needed - 1), "untouched"


# Create: what needs only a file
def test_create_overlapped_file_success_any_number(end: End) -> None:
    files = [end.adapter.create_overlapped_file() for _ in range(5)]
    assert len({file.fileno() for file in files}) == 5
    for file in files:
        file.close()
        file.close()


@pytest.mark.parametrize("call", CREATED)
def test_create_works_without_a_file_and_with_one(end: End, call: str) -> None:
    for options in ({}, {"overlapped_file": end.file}, {"overlapped_file": None}):
        with CREATED[call](end.adapter, **options) as created:
            assert type(created).__module__.startswith("shmnd")


def test_create_overlapped_file_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.create_overlapped_file)


def test_create_completion_queue_success_up_to_the_maximum(end: End) -> None:
    for depth in (1, 2, 100, end.info.max_completion_queue_depth):
        with end.new_cq(depth) as cq:
            assert cq.get_results() == []


def test_create_completion_queue_success_with_any_group_and_affinity(end: End) -> None:
    for affinity in (0, 1, 1 << 63):
        end.adapter.create_completion_queue(8, group=0, affinity=affinity).close()


@pytest.mark.parametrize("depth", [0, -1, None], ids=["zero", "negative", "above"])
def test_create_completion_queue_invalid_parameter_3_when_the_depth_is_not_supported(
    end: End, depth: int | None
) -> None:
    limit = end.info.max_completion_queue_depth
    depth = limit + 1 if depth is None else depth
    with nd_error(Status.INVALID_PARAMETER_3, match=str(limit)) as caught:
        end.adapter.create_completion_queue(depth)
    assert str(depth) in str(caught.value)


def test_create_completion_queue_insufficient_resources_when_memory_is_used_up(
    starving: Callable[..., None], end: End
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES) as caught:
        starving("adapter", "create_completion_queue", end.info.max_completion_queue_depth)
    assert isinstance(caught.value, MemoryError)


def test_create_completion_queue_invalid_handle_when_the_file_is_not_of_this_adapter(
    end: End, ends: Ends
) -> None:
    refuses_bad_files(end, ends, "create_completion_queue")


def test_create_completion_queue_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, lambda: end.adapter.create_completion_queue(8))


def test_create_memory_region_success_is_not_registered(end: End) -> None:
    with end.adapter.create_memory_region() as region, nd_error(Status.INVALID_DEVICE_STATE):
        region.deregister()


def test_create_memory_region_invalid_handle_when_the_file_is_not_of_this_adapter(
    end: End, ends: Ends
) -> None:
    refuses_bad_files(end, ends, "create_memory_region")


def test_create_memory_region_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.create_memory_region)


def test_create_memory_window_success_is_not_bound(connected: Pair) -> None:
    window = connected.active.adapter.create_memory_window()
    connected.active.qp.invalidate(window)
    assert statuses(connected.reap(connected.active)) == [Status.INVALID_DEVICE_REQUEST]


def test_create_memory_window_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.create_memory_window)


def test_create_connector_success_is_not_connected(end: End) -> None:
    with end.adapter.create_connector() as connector, nd_error(Status.CONNECTION_INVALID):
        connector.get_peer_address()


def test_create_connector_invalid_handle_when_the_file_is_not_of_this_adapter(
    end: End, ends: Ends
) -> None:
    refuses_bad_files(end, ends, "create_connector")


def test_create_connector_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.create_connector)


def test_create_listener_success_does_not_listen(end: End) -> None:
    with end.adapter.create_listener() as listener, nd_error(Status.INVALID_DEVICE_STATE):
        listener.get_local_address()


def test_create_listener_invalid_handle_when_the_file_is_not_of_this_adapter(
    end: End, ends: Ends
) -> None:
    refuses_bad_files(end, ends, "create_listener")


def test_create_listener_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.create_listener)


# allocate
@pytest.mark.parametrize("nbytes", [1, 7, 4096, 100_001, 1 << 24])
def test_allocate_success_is_writable_memory_of_that_size(end: End, nbytes: int) -> None:
    memory = end.adapter.allocate(nbytes)
    assert isinstance(memory, np.ndarray)
    assert (memory.dtype, memory.shape) == (np.uint8, (nbytes,))
    assert memory.flags.writeable
    assert memory.flags.c_contiguous
    memory[:] = 0x5A
    assert memory[0] == memory[-1] == 0x5A


@pytest.mark.parametrize("nbytes", [1 << 46, (1 << 46) + 1, 1 << 62, 1 << 64])
def test_allocate_insufficient_resources_for_more_than_there_can_be(end: End, nbytes: int) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match=str(nbytes)):
        end.adapter.allocate(nbytes)


def test_allocate_success_many_small_ones_do_not_overlap(end: End) -> None:
    many = [end.adapter.allocate(100) for _ in range(500)]
    for number, memory in enumerate(many):
        memory[:] = number & 0xFF
    assert all(np.all(memory == number & 0xFF) for number, memory in enumerate(many))
    starts = sorted(memory.ctypes.data for memory in many)
    assert all(b - a >= 100 for a, b in itertools.pairwise(starts))


def mapped() -> int:
    """Bytes of shared segments that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if "/memfd:shmnd-" in line]
    return sum(int(stop, 16) - int(start, 16) for start, stop in ranges)


def test_allocate_success_returns_freed_memory_again(end: End) -> None:
    size, start = 1 << 24, mapped()
    for number in range(60):
        memory = end.adapter.allocate(size)
        memory[::4096] = number
        del memory
        assert mapped() - start < 10 * size, f"{number} allocations of {size}, one at a time"


def test_allocate_success_a_piece_just_below_a_segment_shares_one(end: End) -> None:
    """Its room is rounded up to that of a piece with a segment of its own, which it has not."""
    pieces = [end.adapter.allocate((1 << 20) - 1) for _ in range(4)]
    kept = pieces.pop()
    kept[:] = 7
    del pieces[:]
    assert (kept == 7).all()
    assert not end.adapter.allocate((1 << 20) - 1).any()


def test_allocate_insufficient_resources_when_shared_memory_is_full(end: End) -> None:
    ours = f"shmnd-{os.getuid()}-*"
    names = set(Path("/dev/shm").glob(ours))
    with nd_error(Status.INSUFFICIENT_RESOURCES, match="allocate") as caught:
        end.adapter.allocate(1 << 46)
    assert isinstance(caught.value, MemoryError)
    assert str(1 << 46) in str(caught.value), "bytes wanted"
    assert "free" in str(caught.value), "bytes free"
    assert re.search("by (this machine|control group)", str(caught.value)), "which bound"
    assert set(Path("/dev/shm").glob(ours)) <= names
    assert end.adapter.allocate(64).nbytes == 64


def test_allocate_insufficient_resources_when_no_descriptor_is_free(
    starving: Callable[..., None],
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match="allocate"):
        starving("adapter", "allocate", 1 << 24, limit=resource.RLIMIT_NOFILE)


def test_allocate_insufficient_resources_when_no_address_space_is_left(
    starving: Callable[..., None],
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match="allocate"):
        starving("adapter", "allocate", 1 << 26)


def test_allocate_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, lambda: end.adapter.allocate(64))


# Lifetime
def test_close_twice_and_a_with_block(ends: Ends) -> None:
    end = ends.here()
    end.close()
    end.close()
    with shmnd.open_adapter() as adapter:
        adapter.create_completion_queue(8)
    with nd_error(Status.DEVICE_REMOVED):
        adapter.create_completion_queue(8)


def test_close_gives_descriptors_back_while_objects_are_still_referenced() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    adapter = shmnd.open_adapter()
    file = adapter.create_overlapped_file()
    cq = adapter.create_completion_queue(8, overlapped_file=file)
    srq = adapter.create_shared_receive_queue(8, overlapped_file=file)
    qp = adapter.create_queue_pair(cq, cq)
    listener = adapter.create_listener(overlapped_file=file)
    memory = adapter.allocate(4096)
    assert descriptors() > before
    for thing in (listener, qp, srq, cq, file, adapter):
        thing.close()
    assert descriptors() == before
    memory[:] = 1


ORDERS = [
    ["listener", "mr", "window", "cq", "qp", "connector", "file", "adapter"],
    ["adapter", "file", "connector", "qp", "cq", "window", "mr", "listener"],
    ["file", "cq", "adapter", "qp", "mr", "connector", "window", "listener"],
    ["qp", "connector", "mr", "cq", "listener", "window", "adapter", "file"],
]


@pytest.mark.active_end_here
@pytest.mark.parametrize("order", ORDERS, ids=["tests", "reversed", "file_first", "qp_first"])
@pytest.mark.parametrize("how", ["close", "del"])
def test_close_in_any_order(connected: Pair, order: list[str], how: str) -> None:
    end = connected.active
    buffer = end.memory(64)
    window = connected.window(end, buffer, 0)
    end.qp.receive(buffer.sge())
    end.connector.notify_disconnect()
    end.cq.notify()
    objects = {
        "listener": end.adapter.create_listener(overlapped_file=end.file),
        "mr": buffer.mr,
        "window": window,
        **{name: getattr(end, name) for name in ("cq", "qp", "connector", "file", "adapter")},
    }
    notice = connected.passive.connector.notify_disconnect()
    connected.passive.qp.receive(None)
    if how == "close":
        for name in order:
            objects[name].close()
    else:
        connected.connecting = connected.accepting = connected.completing = None
        end.file.poll()
        for name in ("cq", "receive_cq", "qp", "connector", "file", "adapter"):
            end.drop(name)
        end.kept.clear()
        del buffer, window
        for name in order:
            del objects[name]
        gc.collect()
    assert final(notice) == Status.SUCCESS
    assert statuses(connected.passive.reap()) == [Status.CANCELED]


def test_registered_memory_is_usable_by_every_queue_pair_of_its_adapter(connected: Pair) -> None:
    active, passive = connected.active, connected.passive
    buffer, sink = active.memory(4, LOCAL), passive.memory(4)
    connector, partner = active.new_connector(), passive.new_connector()
    qp, far_qp = active.new_qp(), passive.new_qp()
    connecting = connector.connect(qp, connected.address)
    passive.listener.get_connection_request(partner).result(timeout=WAIT)
    accepting = partner.accept(far_qp)
    connecting.result(timeout=WAIT)
    connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    buffer.put(b"both")
    for near, far in ((qp, far_qp), (active.qp, passive.qp)):
        sink.put(bytes(4))
        far.receive(sink.sge())
        near.send(buffer.sge())
        assert statuses(connected.reap(active)) == [Status.SUCCESS]
        assert statuses(connected.reap(passive)) == [Status.SUCCESS]
        assert sink.get() == b"both"


@pytest.mark.active_end_here
def test_registered_memory_of_another_adapter_is_an_access_violation(
    connected: Pair, ends: Ends
) -> None:
    foreign = ends.here().memory(8)
    connected.passive.qp.receive(connected.passive.memory(8).sge())
    connected.active.qp.send(foreign.sge())
    assert statuses(connected.reap(connected.active)) == [Status.ACCESS_VIOLATION]
