# SPDX-License-Identifier: Apache-2.0
"""INDAdapter: what it is, memory by handles, and what it makes."""

import resource
import select
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmnd.nd1 as nd
from nd1.ends import End, Pair
from shmnd import NdError, Overlapped, Status
from spi.harness import WAIT, nd_error, outcome


def device_removed(end: End, call: Callable[[], Any]) -> None:
    end.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        call()


def at_the_limit(kind: int, room: int, call: Callable[[], Any]) -> Status:
    """How a call ends while this process may have no more of something."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (room, before[1]))
    try:
        return outcome(call)
    finally:
        resource.setrlimit(kind, before)


# -- INDOverlapped --


def test_cancel_overlapped_requests_success_leaves_registrations_to_finish(end: End) -> None:
    memory = end.memory(64)
    leaving = end.adapter.deregister_memory(memory.handle)
    end.adapter.cancel_overlapped_requests()
    leaving.result(WAIT)


def test_get_overlapped_result_success_again_and_again(end: End) -> None:
    _, registered = end.adapter.register_memory(bytearray(64))
    assert end.adapter.get_overlapped_result(registered, wait=True) is Status.SUCCESS
    assert end.adapter.get_overlapped_result(registered) is Status.SUCCESS


def test_get_overlapped_result_pending_until_it_is_over(end: End) -> None:
    notify = end.cq.notify()
    assert end.adapter.get_overlapped_result(notify) is Status.PENDING
    end.cq.cancel_overlapped_requests()


def test_get_overlapped_result_canceled_after_a_cancel(end: End) -> None:
    notify = end.cq.notify()
    end.cq.cancel_overlapped_requests()
    assert end.adapter.get_overlapped_result(notify) is Status.CANCELED


def test_get_overlapped_result_device_removed_when_the_adapter_is_closed(pair: Pair) -> None:
    waiting = pair.active.cq.notify()
    pair.active.adapter.close()
    assert waiting.status in (Status.CANCELED, Status.DEVICE_REMOVED)
    with nd_error(Status.DEVICE_REMOVED):
        pair.active.adapter.cancel_overlapped_requests()


# -- the file handle --


def test_get_file_handle_success_delivers_every_operation_once(pair: Pair) -> None:
    """Immediate successes included, in order; calls that failed are not delivered."""
    end = pair.active
    told: list[Overlapped] = []
    handle, registered = end.adapter.register_memory(bytearray(64))
    with nd_error(Status.ACCESS_VIOLATION):
        end.adapter.register_memory(b"")
    notify = end.cq.notify()
    told += end.file.poll()
    assert told == [registered]
    end.cq.cancel_overlapped_requests()
    leaving = end.adapter.deregister_memory(handle)
    assert select.select([end.file], [], [], WAIT)[0] == [end.file]
    told += end.file.poll()
    assert told == [registered, notify, leaving]
    assert end.file.poll() == []


def test_get_file_handle_success_may_be_closed_without_harm(end: End) -> None:
    first = end.adapter.get_file_handle()
    first.close()
    with nd_error(Status.INVALID_HANDLE):
        first.poll()
    with nd_error(Status.INVALID_HANDLE):
        first.fileno()
    _, registered = end.adapter.register_memory(bytearray(64))
    assert end.adapter.get_file_handle().poll() == [registered]


def test_operations_do_not_pile_up_before_the_first_handle(end: End) -> None:
    """A program that never asks for a handle keeps nothing; the first handle has the newest."""
    bound = nd.adapter._BEFORE_A_HANDLE
    begun: list[Overlapped] = []

    def run_notifies() -> None:
        for _ in range(bound + 10):
            begun.append(end.cq.notify())
            end.cq.cancel_overlapped_requests()

    run_notifies()
    handle = end.adapter.get_file_handle()
    assert handle.poll() == begun[-bound:]
    run_notifies()
    assert end.adapter.get_file_handle().poll() == begun[bound + 10 :], "with a handle all come"


# -- Query --


def test_query_success_shows_the_limits_of_the_core(end: End) -> None:
    info, core = end.adapter.query(), end.adapter._core.query()
    assert info.max_inbound_sge == core.max_receive_sge
    assert info.max_outbound_sge == min(core.max_initiator_sge, core.max_read_sge)
    assert info.max_inbound_requests == core.max_receive_queue_depth
    assert info.max_outbound_requests == core.max_initiator_queue_depth
    assert info.max_inbound_length == info.max_outbound_length == core.max_transfer_length
    assert info.max_inline_data == core.max_inline_data_size
    assert info.max_cq_entries == core.max_completion_queue_depth
    assert info.max_window_size == info.max_registration_size == core.max_registration_size
    assert info.max_caller_data == core.max_caller_data
    assert info.max_callee_data == core.max_callee_data
    assert info.max_cq_entries >= 128, "what a message-passing library asks for"
    assert info.max_caller_data >= 56


def test_query_success_packs_to_the_structure(end: End) -> None:
    info = end.adapter.query(1)
    packed = info.pack()
    assert len(packed) == nd.ADAPTER_INFO_SIZE == 128
    assert nd.AdapterInfo.unpack(packed) == info
    offsets = {8: info.max_inbound_sge, 24: info.max_inbound_length, 56: info.max_inline_data}
    offsets |= {80: info.max_cq_entries, 96: info.max_window_size, 120: info.max_callee_data}
    assert {at: struct.unpack_from("<Q", packed, at)[0] for at in offsets} == offsets


@pytest.mark.parametrize("version", [0, 2, 0x20000])
def test_query_not_supported_when_the_version_is_another(end: End, version: int) -> None:
    with nd_error(Status.NOT_SUPPORTED, match="query"):
        end.adapter.query(version)


def test_query_into_success_takes_a_larger_buffer(end: End) -> None:
    for size in (128, 200):
        buffer = bytearray(b"\xee" * size)
        assert end.adapter.query_into(1, buffer) == 128
        assert nd.AdapterInfo.unpack(buffer) == end.adapter.query()
        assert buffer[128:] == b"\xee" * (size - 128)


@pytest.mark.parametrize("buffer", [None, b"", bytearray(b"\xee" * 127)])
def test_query_into_buffer_overflow_leaves_the_buffer(end: End, buffer: Any) -> None:
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        end.adapter.query_into(1, buffer)
    assert caught.value.required == 128
    assert not buffer or buffer == b"\xee" * 127


def test_query_into_not_supported_when_the_version_is_another(end: End) -> None:
    with nd_error(Status.NOT_SUPPORTED):
        end.adapter.query_into(2, bytearray(128))


def test_query_address_list_success_is_the_providers(end: End) -> None:
    assert end.adapter.query_address_list() == nd.Provider().query_address_list()


def test_control_not_supported_whatever_is_asked(end: End) -> None:
    with nd_error(Status.NOT_SUPPORTED) as caught:
        end.adapter.control(0x1234, b"in", bytearray(4))
    assert isinstance(caught.value, NotImplementedError)


# -- completion queues --


def test_create_completion_queue_success_up_to_the_limit(end: End) -> None:
    for entries in (1, 128, end.adapter.query().max_cq_entries):
        end.adapter.create_completion_queue(entries).close()


@pytest.mark.parametrize("entries", [0, -1, 65537, "8", None])
def test_create_completion_queue_invalid_parameter_when_it_cannot_be(
    end: End, entries: Any
) -> None:
    with nd_error(Status.INVALID_PARAMETER, match="65536"):
        end.adapter.create_completion_queue(entries)


def test_create_completion_queue_insufficient_resources_without_a_descriptor(end: End) -> None:
    """Enough queues for a new segment of bells, with no descriptor to be had."""

    def many() -> None:
        end.kept += [end.adapter.create_completion_queue(1) for _ in range(200)]

    assert at_the_limit(resource.RLIMIT_NOFILE, 3, many) is Status.INSUFFICIENT_RESOURCES
    many()


def test_create_completion_queue_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, lambda: end.adapter.create_completion_queue(8))


# -- memory --


def test_register_memory_success_gives_handles_of_their_own(end: End) -> None:
    buffer = bytearray(100)
    handles = {end.adapter.register_memory(buffer)[0] for _ in range(3)}
    assert len(handles) == 3
    assert 0 not in handles
    for handle in handles:
        end.adapter.deregister_memory(handle).result(WAIT)
    buffer.append(1)  # nothing holds it any more


def test_register_memory_success_takes_an_address(end: End) -> None:
    array = np.zeros(64, np.uint8)
    handle, registered = end.adapter.register_memory((int(array.ctypes.data), 64))
    registered.result(WAIT)
    end.adapter.deregister_memory(handle).result(WAIT)


@pytest.mark.parametrize("buffer", [None, bytearray(), b"", (0, 0), (1, 64), (4096, 0)])
def test_register_memory_access_violation_without_writable_memory(end: End, buffer: Any) -> None:
    with nd_error(Status.ACCESS_VIOLATION, match="register_memory"):
        end.adapter.register_memory(buffer)
    assert end.file.poll() == []


def test_register_memory_success_for_a_source_that_is_read_only(connected: Pair) -> None:
    end, peer = connected.active, connected.passive
    handle, registered = end.adapter.register_memory(b"read-only")
    registered.result(WAIT)
    sink, received, sent = peer.memory(16), nd.Result(), nd.Result()
    peer.endpoint.receive(received, sink.sge())
    address = end.adapter._region(handle).address
    end.endpoint.send(sent, nd.Sge(address, 9, handle))
    assert connected.both_reap(peer) == [received]
    assert sink.get(9) == b"read-only"
    assert end.reap() == [sent]
    end.adapter.deregister_memory(handle).result(WAIT)


def test_a_receive_into_memory_that_is_read_only_is_an_access_violation(connected: Pair) -> None:
    end, result = connected.active, nd.Result()
    handle, _ = end.adapter.register_memory(b"read-only")
    address = end.adapter._region(handle).address
    end.endpoint.receive(result, nd.Sge(address, 9, handle))
    connected.passive.endpoint.send(nd.Result(), nd.Sge(b"x", 1, None))
    assert connected.both_reap(end) == [result]
    assert result.status is Status.ACCESS_VIOLATION


def test_register_memory_invalid_parameter_when_it_is_too_long(end: End) -> None:
    most = end.adapter.query().max_registration_size
    with nd_error(Status.INVALID_PARAMETER, match=str(most)):
        end.adapter.register_memory((4096, most + 1))


@pytest.mark.usefixtures("no_collections")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_register_memory_insufficient_resources_when_every_token_is_in_use(end: End) -> None:
    buffer, held = bytearray(8), []
    with nd_error(Status.INSUFFICIENT_RESOURCES):
        for _ in range(1 << 20):
            held.append(end.adapter.register_memory(buffer)[0])
    end.adapter.deregister_memory(held.pop()).result(WAIT)
    end.adapter.register_memory(buffer)


def test_register_memory_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, lambda: end.adapter.register_memory(bytearray(8)))


def test_deregister_memory_success_kills_the_handle(connected: Pair) -> None:
    end = connected.active
    memory = end.memory(64)
    end.adapter.deregister_memory(memory.handle).result(WAIT)
    result = nd.Result()
    end.endpoint.send(result, memory.sge())
    assert end.reap() == [result]
    assert result.status is Status.ACCESS_VIOLATION


def test_deregister_memory_invalid_handle_when_it_is_none(end: End) -> None:
    memory = end.memory(64)
    end.adapter.deregister_memory(memory.handle).result(WAIT)
    for handle in (memory.handle, 0, None, "handle", 1 << 70):
        with nd_error(Status.INVALID_HANDLE, match="deregister_memory"):
            end.adapter.deregister_memory(handle)  # type: ignore[arg-type]


def test_deregister_memory_device_busy_while_a_window_is_bound(connected: Pair) -> None:
    end = connected.active
    memory = end.memory(64)
    window, _ = connected.window(end, memory, 0x8)
    with nd_error(Status.DEVICE_BUSY):
        end.adapter.deregister_memory(memory.handle)
    result = nd.Result()
    end.endpoint.invalidate(result, window)
    end.reap()
    end.adapter.deregister_memory(memory.handle).result(WAIT)


@pytest.mark.parametrize("how", ["disconnect", "close", "flush"])
def test_deregister_memory_success_when_the_endpoint_of_its_window_is_dead(
    connected: Pair, how: str
) -> None:
    """A18: dead endpoints keep nothing busy."""
    end = connected.active
    memory = end.memory(64)
    connected.window(end, memory, 0x8)
    if how == "disconnect":
        connected.hang_up(connected.passive)
        assert end.cq.get_results() == []
    elif how == "close":
        end.endpoint.close()
    else:
        end.endpoint.flush()
    end.adapter.deregister_memory(memory.handle).result(WAIT)


def test_deregister_memory_device_removed_when_the_adapter_is_closed(end: End) -> None:
    handle = end.memory(8).handle
    device_removed(end, lambda: end.adapter.deregister_memory(handle))


def test_create_memory_window_success_is_unbound(connected: Pair) -> None:
    end = connected.active
    with end.adapter.create_memory_window(nd.Result()) as window:
        result = nd.Result()
        end.endpoint.invalidate(result, window)
        end.reap()
        assert result.status is Status.INVALIDATION_ERROR


def test_create_memory_window_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.create_memory_window)


def test_allocate_success_is_zeroed_memory(end: End) -> None:
    array = end.adapter.allocate(5000)
    assert (array.dtype, array.nbytes, int(array.sum())) == (np.uint8, 5000, 0)


def test_allocate_insufficient_resources_when_there_is_too_little(end: End) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match="free by (this machine|control group)"):
        end.adapter.allocate(1 << 45)


def test_allocate_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, lambda: end.adapter.allocate(8))


# -- connections --


def test_create_connector_success_is_as_new(end: End) -> None:
    with end.adapter.create_connector() as connector, nd_error(Status.CONNECTION_INVALID):
        connector.get_connection_data()


def test_create_connector_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.create_connector)


def test_listen_success_chooses_a_port(end: End) -> None:
    with end.adapter.listen() as listen:
        assert 49152 <= listen.assigned_port <= 65535
        assert listen.get_local_address() == ("127.0.0.1", listen.assigned_port)


def test_listen_success_under_two_protocols_at_one_port(end: End) -> None:
    with end.adapter.listen(0, 6) as first, end.adapter.listen(5, 17, first.assigned_port) as other:
        assert other.assigned_port == first.assigned_port


@pytest.mark.parametrize("protocol", [-1, 256, None, "tcp"])
def test_listen_invalid_parameter_2_when_the_protocol_is_none(end: End, protocol: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_2, match="listen"):
        end.adapter.listen(0, protocol)


def test_listen_address_already_exists_when_the_port_is_in_use(end: End) -> None:
    with end.adapter.listen() as listen, nd_error(Status.ADDRESS_ALREADY_EXISTS, match="listen"):
        end.adapter.listen(0, 6, listen.assigned_port)


@pytest.mark.usefixtures("no_collections")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_listen_insufficient_resources_when_every_port_is_taken(end: End) -> None:
    listens = []
    with nd_error(Status.INSUFFICIENT_RESOURCES):
        for _ in range(20_000):
            listens.append(end.adapter.listen())
    assert len(listens) == 65536 - 49152
    listens.pop().close()
    listens.append(end.adapter.listen())
    end.adapter.close()


def test_listen_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, end.adapter.listen)


def test_bad_backlogs_and_ports_are_parameters(end: End) -> None:
    with nd_error(Status.INVALID_PARAMETER_1):
        end.adapter.listen(-1)
    with nd_error(Status.INVALID_PARAMETER_3):
        end.adapter.listen(0, 6, 65536)


# -- lives --


def test_children_keep_the_adapter_alive(make_end: Callable[..., End]) -> None:
    """A registration lives as long as anything that can use it."""
    adapter = nd.Provider().open_adapter("127.0.0.1")
    adapter.register_memory(bytearray(16))
    cq = adapter.create_completion_queue(8)
    del adapter
    assert cq.get_results(1) == []
    cq.resize(16)
    cq._nd1_adapter.close()


def test_everything_after_close_is_device_removed(end: End) -> None:
    end.adapter.close()
    end.adapter.close()
    for call in (end.adapter.query, end.adapter.get_file_handle, end.adapter.control):
        with pytest.raises(NdError) as caught:
            call()
        assert caught.value.status is Status.DEVICE_REMOVED
