# SPDX-License-Identifier: Apache-2.0
"""IND2MemoryRegion: what can be registered, what it is good for, and how it ends."""

import array
import ctypes
import gc
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmnd
from shmnd import MrFlag, OpFlag, Status
from spi.harness import (
    FILL,
    LOCAL,
    REMOTE,
    WAIT,
    End,
    contexts,
    final,
    nd_error,
    outcome,
    statuses,
)
from spi.pair import Pair

UNMAPPED = 0x1000
"""An address that the kernel never maps (vm.mmap_min_addr is above it)."""


def region(end: End) -> Any:
    return end.adapter.create_memory_region(overlapped_file=end.file)


def at(address: int, length: int) -> Any:
    """An object that claims memory which may not be there."""
    return (ctypes.c_char * length).from_address(address)


BUFFERS: dict[str, Callable[[End], Any]] = {
    "segment": lambda end: end.adapter.allocate(1000),
    "part_of_a_segment": lambda end: end.adapter.allocate(1000)[13:777],
    "bytearray": lambda end: bytearray(1000),
    "memoryview": lambda end: memoryview(bytearray(1000))[3:500],
    "numpy": lambda end: np.zeros(100, dtype=np.float64),
    "numpy_by_columns": lambda end: np.zeros((8, 9), order="F"),
    "array": lambda end: array.array("i", range(100)),
    "ctypes": lambda end: (ctypes.c_char * 77)(),
    "mmap": lambda end: mmap.mmap(-1, 8192),
    "one_byte": lambda end: bytearray(1),
}


@pytest.mark.parametrize("make", BUFFERS.values(), ids=BUFFERS.keys())
def test_register_success_of_any_buffer(end: End, make: Callable[[End], Any]) -> None:
    buffer = make(end)
    mr = region(end)
    assert final(mr.register(buffer, LOCAL)) == Status.SUCCESS
    array = np.asarray(buffer)
    assert (mr.address, mr.length) == (array.ctypes.data, array.nbytes)
    sge = shmnd.Sge(buffer, None, mr.local_token)
    assert (sge.address, sge.length) == (mr.address, mr.length)
    del array, sge
    assert final(mr.deregister()) == Status.SUCCESS
    gc.collect()
    if isinstance(buffer, mmap.mmap):
        buffer.close()


@pytest.mark.parametrize("flags", [0, 0x1, 0x2, 0x3, 0x5, 0x7, 0x8, 0xF, 0x80000000, 0x8000000F])
def test_register_success_with_every_flag(end: End, flags: int) -> None:
    mr = region(end)
    assert final(mr.register(end.adapter.allocate(64), flags)) == Status.SUCCESS


def test_register_success_of_read_only_memory_as_a_source(connected: Pair) -> None:
    end = connected.active
    data = b"never to be written"
    mr = region(end)
    mr.register(data, 0).result(timeout=WAIT)
    sink = connected.passive.memory(len(data))
    connected.passive.qp.receive(sink.sge())
    end.qp.send(mr.sge())
    assert statuses(connected.reap(end)) == [Status.SUCCESS]
    assert statuses(connected.reap(connected.passive)) == [Status.SUCCESS]
    assert sink.get() == data


def test_register_success_of_one_buffer_many_times_with_different_rights(
    connected: Pair,
) -> None:
    memory = connected.passive.memory(64, REMOTE)
    read_only = connected.passive.adapter.create_memory_region()
    read_only.register(memory.memory, MrFlag.ALLOW_REMOTE_READ).result(timeout=WAIT)
    assert read_only.address == memory.address
    assert read_only.remote_token != memory.remote_token
    near = connected.active.memory(64)
    near.put(bytes(64))
    connected.active.qp.write(near.sge(), memory.address, memory.remote_token)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert memory.get() == bytes(64)
    near.put(bytes([FILL]) * 64)
    connected.active.qp.write(near.sge(), memory.address, read_only.remote_token)
    assert statuses(connected.reap(connected.active)) == [Status.ACCESS_VIOLATION]
    assert memory.get() == bytes(64)


def test_register_success_again_after_deregister_with_new_tokens(end: End) -> None:
    mr, buffer = region(end), end.adapter.allocate(64)
    tokens = set()
    for _ in range(200):
        mr.register(buffer, REMOTE).result(timeout=WAIT)
        tokens.add(mr.remote_token)
        mr.deregister().result(timeout=WAIT)
    assert len(tokens) == 200, "tokens are not reused soon"


def test_register_success_of_10000_at_once(end: End) -> None:
    buffer = end.adapter.allocate(4096)
    regions = [region(end) for _ in range(10_000)]
    for mr in regions:
        mr.register(buffer, LOCAL).result(timeout=WAIT)
    assert len({mr.local_token for mr in regions}) == len(regions)
    for mr in regions:
        assert final(mr.deregister()) == Status.SUCCESS


def test_register_pending_until_it_is_taken_from_the_file(end: End) -> None:
    mr = region(end)
    overlapped = mr.register(end.adapter.allocate(64), LOCAL)
    assert overlapped.status in (Status.PENDING, Status.SUCCESS)
    assert final(overlapped) == Status.SUCCESS
    assert end.file.poll() == [overlapped], "delivered exactly once"
    assert end.file.poll() == []


@pytest.mark.usefixtures("no_collections")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_register_insufficient_resources_when_every_token_is_in_use(end: End) -> None:
    buffer, regions = bytearray(64), []
    with nd_error(Status.INSUFFICIENT_RESOURCES, match="register") as caught:
        for _ in range(1 << 24):
            regions.append(end.adapter.create_memory_region())
            regions[-1].register(buffer, LOCAL)
    assert isinstance(caught.value, MemoryError)
    held = len(regions) - 1
    assert held >= 100_000
    assert str(held)[:2] in str(caught.value), "the limit is named"
    regions[0].deregister().result(timeout=WAIT)
    assert final(regions[-1].register(buffer, LOCAL)) == Status.SUCCESS, "there is room again"


def test_register_device_removed_when_the_adapter_is_closed(end: End) -> None:
    mr = region(end)
    end.close()
    with nd_error(Status.DEVICE_REMOVED, match="register"):
        mr.register(bytearray(8), LOCAL)


def test_register_invalid_parameter_when_the_buffer_is_null_and_empty(end: End) -> None:
    assert outcome(region(end).register, None, LOCAL) == Status.INVALID_PARAMETER


@pytest.mark.parametrize("make", [bytearray, lambda: at(UNMAPPED, 0)], ids=["empty", "nowhere"])
def test_register_invalid_buffer_size_when_the_buffer_is_empty(
    end: End, make: Callable[[], Any]
) -> None:
    mr = region(end)
    assert outcome(mr.register, make(), LOCAL) == Status.INVALID_BUFFER_SIZE
    assert final(mr.register(bytearray(8), LOCAL)) == Status.SUCCESS, "nothing has changed"


def test_register_invalid_parameter_when_larger_than_max_registration_size(end: End) -> None:
    limit = end.info.max_registration_size
    with nd_error(Status.INVALID_PARAMETER, match=str(limit)) as caught:
        region(end).register(at(UNMAPPED, limit + 1), LOCAL)
    assert str(limit + 1) in str(caught.value)


@pytest.mark.parametrize("address", [0, UNMAPPED], ids=["null", "unmapped"])
def test_register_access_violation_when_there_is_no_memory(end: End, address: int) -> None:
    mr = region(end)
    assert outcome(mr.register, at(address, 64), LOCAL) == Status.ACCESS_VIOLATION
    assert final(mr.register(bytearray(8), LOCAL)) == Status.SUCCESS, "nothing has changed"


def test_register_access_violation_when_the_end_is_not_mapped(end: End) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    page = mmap.PAGESIZE
    readable = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, 3 * page, readable, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(address + page, page)
    try:
        overlong = at(address, 3 * page)
        assert outcome(region(end).register, overlong, LOCAL) == Status.ACCESS_VIOLATION
    finally:
        libc.munmap(address, page)
        libc.munmap(address + 2 * page, page)


@pytest.mark.parametrize("flags", [0x1, 0x5, 0x8])
def test_register_access_violation_when_read_only_memory_is_to_be_written(
    end: End, flags: int
) -> None:
    assert outcome(region(end).register, b"read only", flags) == Status.ACCESS_VIOLATION


@pytest.mark.parametrize("flags", [0x10, 0x40, 0x40000000])
def test_register_invalid_parameter_3_when_a_flag_is_unknown(end: End, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_3, match="(?i)register.*flags"):
        region(end).register(bytearray(8), flags)


def test_register_invalid_device_state_when_registered_already(end: End) -> None:
    mr, buffer = region(end), end.adapter.allocate(64)
    mr.register(buffer, LOCAL).result(timeout=WAIT)
    tokens = (mr.local_token, mr.remote_token)
    assert outcome(mr.register, bytearray(8), LOCAL) == Status.INVALID_DEVICE_STATE
    assert (mr.local_token, mr.remote_token, mr.length) == (*tokens, 64)


def test_register_refuses_memory_with_holes(end: End) -> None:
    for holes in (np.zeros((8, 8), np.uint8)[:, 1], memoryview(bytearray(8))[::2]):
        with nd_error(Status.ACCESS_VIOLATION, match="contiguous"):
            region(end).register(holes, LOCAL)
        with nd_error(Status.INVALID_PARAMETER_1, match="contiguous"):
            shmnd.Sge(holes, 4, 1)


def test_register_locks_the_buffer_until_deregister(end: End) -> None:
    buffer = bytearray(64)
    mr = region(end)
    mr.register(buffer, LOCAL).result(timeout=WAIT)
    with pytest.raises(BufferError):
        buffer.append(1)
    mr.deregister().result(timeout=WAIT)
    buffer.append(1)


def test_deregister_success_makes_the_region_free_for_another_buffer(end: End) -> None:
    mr = region(end)
    for size in (64, 128):
        mr.register(end.adapter.allocate(size), LOCAL).result(timeout=WAIT)
        assert mr.length == size
        assert final(mr.deregister()) == Status.SUCCESS


def test_deregister_pending_until_it_is_taken_from_the_file(end: End) -> None:
    mr = region(end)
    first = mr.register(end.adapter.allocate(64), LOCAL)
    second = mr.deregister()
    assert second.status in (Status.PENDING, Status.SUCCESS)
    assert final(second) == Status.SUCCESS
    assert end.file.poll() == [first, second]


def test_deregister_device_busy_while_a_window_is_bound(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(64)
    windows = [connected.window(end, buffer, 0), connected.window(end, buffer, OpFlag.ALLOW_READ)]
    for window in windows:
        with nd_error(Status.DEVICE_BUSY, match="deregister"):
            buffer.mr.deregister()
        end.qp.invalidate(window)
        assert statuses(end.reap()) == [Status.SUCCESS]
    assert final(buffer.mr.deregister()) == Status.SUCCESS


def test_deregister_device_busy_leaves_the_region_registered(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(64)
    window = connected.window(end, buffer, OpFlag.ALLOW_READ)
    with nd_error(Status.DEVICE_BUSY):
        buffer.mr.deregister()
    assert window.length == 64
    connected.passive.qp.receive(connected.passive.memory(64).sge())
    end.qp.send(buffer.sge())
    assert statuses(connected.reap(end)) == [Status.SUCCESS]


def test_deregister_invalid_device_state_when_not_registered(end: End) -> None:
    mr = region(end)
    assert outcome(mr.deregister) == Status.INVALID_DEVICE_STATE
    mr.register(bytearray(8), LOCAL).result(timeout=WAIT)
    mr.deregister().result(timeout=WAIT)
    assert outcome(mr.deregister) == Status.INVALID_DEVICE_STATE


def test_local_token_success_is_a_32_bit_number_other_than_zero(end: End) -> None:
    mr = region(end)
    mr.register(bytearray(8), LOCAL).result(timeout=WAIT)
    assert 0 < mr.local_token < 1 << 32


def test_remote_token_success_is_a_32_bit_number_other_than_zero(end: End) -> None:
    mr = region(end)
    mr.register(end.adapter.allocate(8), REMOTE).result(timeout=WAIT)
    assert 0 < mr.remote_token < 1 << 32


@pytest.mark.parametrize(("offset", "length"), [(0, None), (3, None), (0, 10), (60, 4), (64, 0)])
def test_sge_names_a_part_of_the_region(end: End, offset: int, length: int | None) -> None:
    mr = region(end)
    mr.register(end.adapter.allocate(64), LOCAL).result(timeout=WAIT)
    sge = mr.sge(offset, length)
    assert isinstance(sge, shmnd.Sge)
    assert sge.length == (64 - offset if length is None else length)
    assert sge.token == mr.local_token


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.uint8])
def test_sge_takes_the_integers_of_numpy(end: End, kind: type[np.integer[Any]]) -> None:
    mr = region(end)
    mr.register(end.adapter.allocate(64), LOCAL).result(timeout=WAIT)
    assert mr.sge(kind(3), kind(10)) == mr.sge(3, 10)
    assert mr.sge(kind(3)) == mr.sge(3)
    address = np.uint64(mr.address)
    assert shmnd.Sge(address, kind(10), np.uint32(mr.local_token)) == mr.sge(0, 10)


def test_sge_cannot_be_changed(end: End) -> None:
    sge = end.memory(8).sge()
    with pytest.raises((AttributeError, TypeError)):
        sge.length = 1000


@pytest.mark.parametrize("private", [False, True], ids=["shared", "private"])
@pytest.mark.parametrize("length", [8, 600, 5000, 100_000])
def test_deregister_lets_messages_that_arrived_complete(
    connected: Pair, length: int, private: bool
) -> None:
    """Their Sends may have completed, so their Receives must not fail."""
    sources = [connected.active.memory(length) for _ in range(2)]
    sink = connected.passive.memory(2 * length, private=private)
    for number, source in enumerate(sources):
        source.put(bytes([7 + number]) * length)
        connected.passive.qp.receive(sink.sge(number * length, length), number)
    for number, source in enumerate(sources):
        connected.active.qp.send(source.sge(), number)
    if length < 500:  # complete when they are published
        assert statuses(connected.active.reap(2)) == [Status.SUCCESS] * 2
    assert final(sink.mr.deregister()) == Status.SUCCESS
    assert contexts(received := connected.passive.reap(2)) == [0, 1]
    assert statuses(received) == [Status.SUCCESS] * 2
    assert sink.get() == b"".join(source.get() for source in sources)
    if length >= 500:
        assert statuses(connected.active.reap(2)) == [Status.SUCCESS] * 2
    connected.exchange()


def test_close_of_a_registered_region_deregisters(connected: Pair) -> None:
    near, far = connected.active.memory(64), connected.passive.memory(64, REMOTE)
    where = (far.address, far.remote_token)
    far.mr.close()
    far.mr.close()
    connected.active.qp.write(near.sge(), *where)
    assert statuses(connected.reap(connected.active)) == [Status.ACCESS_VIOLATION]
    assert far.get() == bytes([FILL]) * 64


def test_close_of_a_registered_region_frees_the_buffer(end: End) -> None:
    buffer = bytearray(64)
    with region(end) as mr:
        mr.register(buffer, LOCAL).result(timeout=WAIT)
    buffer.append(1)


def test_memory_lives_as_long_as_a_view_of_it(end: End) -> None:
    whole = end.adapter.allocate(4096)
    whole[:] = 7
    view = whole[100:200]
    del whole
    end.close()
    gc.collect()
    assert view.tolist() == [7] * 100
    view[:] = 8
    assert view.tolist() == [8] * 100


def test_memory_that_was_freed_while_registered_does_no_harm(end: End) -> None:
    mr = region(end)
    memory: Any = end.adapter.allocate(4096)
    mr.register(memory, LOCAL).result(timeout=WAIT)
    del memory
    gc.collect()
    others = [end.adapter.allocate(4096) for _ in range(8)]
    for number, other in enumerate(others):
        other[:] = number
    assert mr.address not in {other.ctypes.data for other in others}
    assert final(mr.deregister()) == Status.SUCCESS
