# SPDX-License-Identifier: Apache-2.0
"""The conformance scenarios: the unit tests and example programs of the interface, as they stand.

Iterations are fewer than theirs and sleeps are signals; calls, orders and statuses are the same.
"""

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from shmnd import AdapterInfo, CqNotify, Provider, Status
from spi.harness import LOCAL, WAIT, End, final, nd_error, outcome, statuses
from spi.pair import Pair
from spi.remote import Ends
from spi.scenarios import checks, steps, traffic
from spi.scenarios.steps import HDR, MAX, PORT

MakePair = Callable[..., Pair]


@pytest.fixture
def stage(make_pair: MakePair) -> Pair:
    """Two ends as all programs of the first suite make them."""
    return make_pair(depth=64, sge=2, cq_depth=2, rnr_timeout=0.3)


@pytest.fixture
def narrow(make_pair: MakePair) -> Pair:
    """The same, with the queue pairs of one and two entries that some of them use."""
    return make_pair(cq_depth=2, sge=1, passive={"depth": 1}, active={"depth": 2})


# ndmemorytest


def test_nd_conn_close(stage: Pair) -> None:
    stage.play(checks.conn_close_client, checks.conn_close_server)


def test_nd_conn_reject(stage: Pair) -> None:
    stage.play(checks.conn_reject_client, checks.conn_close_server)


def test_nd_conn_listen_closing(stage: Pair) -> None:
    stage.play(checks.listen_closing_client, checks.listen_closing_server)


def test_nd_dual_connection(stage: Pair) -> None:
    stage.play(checks.dual_connection_client, checks.dual_connection_server)


def test_nd_dual_listen(ends: Ends) -> None:
    first = ends.here()
    address = first.listen(port=PORT)
    ends.here().adapter.create_listener()
    first.adapter.create_listener()
    assert outcome(first.listener.bind, address) == Status.ADDRESS_ALREADY_ASSOCIATED
    assert outcome(first.listener.listen, 0) != Status.SUCCESS


def test_nd_invalid_ip(ends: Ends) -> None:
    end = ends.here(depth=64, sge=2, cq_depth=2)
    end.memory(MAX, LOCAL)
    steps.connect(end, 0, 0, expected=Status.BAD_NETWORK_NAME, signal="", to="0.0.0.0")


@pytest.mark.parametrize("request_name", ["read", "write"])
def test_nd_invalid_read_and_write(narrow: Pair, request_name: str) -> None:
    narrow.play(
        checks.invalid_access_client, checks.invalid_access_server, passive_args=(request_name,)
    )


def test_nd_large_private_data(stage: Pair) -> None:
    stage.play(checks.large_private_data_client, checks.large_private_data_server)


def test_nd_large_qp_depth(ends: Ends) -> None:
    end = ends.here(cq_depth=2)
    depth = end.info.max_receive_queue_depth + 1
    with nd_error(Status.INVALID_PARAMETER_5):
        end.new_qp(receive_depth=depth, initiator_depth=1, max_receive_sge=2, max_initiator_sge=2)


def test_nd_mr_deregister(stage: Pair) -> None:
    stage.play(checks.mr_deregister_client, checks.mr_deregister_server)


def test_nd_mr_invalid_buffer(end: End) -> None:
    mr = end.adapter.create_memory_region(overlapped_file=end.file)
    assert outcome(mr.register, None, LOCAL) == Status.INVALID_PARAMETER
    ten = bytearray(10)
    assert outcome(mr.register, memoryview(ten)[:0], LOCAL) == Status.INVALID_BUFFER_SIZE


@pytest.mark.parametrize("request_name", ["read", "write"])
def test_nd_over_read_and_write(narrow: Pair, request_name: str) -> None:
    narrow.play(checks.over_access_client, checks.over_access_server, passive_args=(request_name,))


@pytest.mark.parametrize("depth", ["receive sge", "receive depth"])
def test_nd_qp_max(ends: Ends, depth: str) -> None:
    """As coded, with the depth taken from the SGE limit by mistake; and as meant."""
    end = ends.here(cq_depth=2)
    buffer, info = end.memory(64), end.info
    deep = info.max_receive_sge if depth == "receive sge" else info.max_receive_queue_depth
    vars(end)["qp"] = end.new_qp(
        receive_depth=deep,
        initiator_depth=info.max_initiator_queue_depth,
        max_receive_sge=info.max_receive_sge,
        max_initiator_sge=info.max_initiator_sge,
    )
    steps.shut(end, buffer)


def test_nd_receive_flush_qp(ends: Ends) -> None:
    end = ends.here(depth=64, sge=2, cq_depth=2)
    buffer = end.memory(HDR + MAX + 1, LOCAL)
    end.listen()
    end.qp.receive(None)
    end.qp.receive(None)
    end.qp.flush()
    end.cq.notify(CqNotify.ANY).result(timeout=WAIT)
    results = end.cq.get_results(2)
    assert [result.status for result in results] == [Status.CANCELED] * 2
    steps.shut(end, buffer)


def test_nd_send_no_receive(stage: Pair) -> None:
    stage.play(checks.send_no_receive_client, checks.send_no_receive_server)


@pytest.mark.slow
def test_nd_send_no_receive_with_the_default_limit(make_pair: MakePair) -> None:
    """The limit must be finite and shorter than the wait for the result."""
    pair = make_pair(depth=64, sge=2, cq_depth=2, rnr_timeout=None)
    pair.play(checks.send_no_receive_client, checks.send_no_receive_server)


def test_nd_receive_conn_closed(stage: Pair) -> None:
    stage.play(checks.receive_conn_closed_client, checks.receive_conn_closed_server)


def test_nd_write_violation(narrow: Pair) -> None:
    narrow.play(checks.write_violation_client, checks.write_violation_server)


# ndcq


@pytest.fixture
def queues(end: End) -> Iterator[list[Any]]:
    """Two completion queues of the greatest depth on one overlapped file."""
    made = [end.new_cq(end.info.max_completion_queue_depth) for _ in range(2)]
    yield made
    made.clear()


def canceled(end: End, expected: list[tuple[Any, Any]]) -> None:
    """Dequeue with timeout 0: each is there, in this order, and its queue says CANCELED."""
    for cq, overlapped in expected:
        assert end.file.poll(max=1) == [overlapped]
        assert cq.get_overlapped_result(overlapped) == Status.CANCELED
    assert end.file.poll() == []


def test_ndcq_in_order(end: End, queues: list[Any]) -> None:
    for _ in range(1000):
        notices = [(cq, cq.notify(CqNotify.ANY)) for cq in queues]
        for cq in queues:
            cq.cancel_overlapped_requests()
        canceled(end, notices)


def test_ndcq_reverse(end: End, queues: list[Any]) -> None:
    for _ in range(1000):
        notices = [(cq, cq.notify(CqNotify.ANY)) for cq in queues]
        for cq in reversed(queues):
            cq.cancel_overlapped_requests()
        canceled(end, notices[::-1])


def test_ndcq_multiple(end: End, queues: list[Any]) -> None:
    cq = queues[0]
    for _ in range(1000):
        notices = [(cq, cq.notify(CqNotify.ANY)) for _ in range(2)]
        cq.cancel_overlapped_requests()
        canceled(end, notices)


# ndmval


def test_ndmval_undersized_receive(make_pair: MakePair) -> None:
    pair = make_pair(sge=1, depth=64, cq_depth=256)
    sent, received = pair.play(checks.ndmval_client, checks.ndmval_server)
    assert received == Status.BUFFER_OVERFLOW
    assert sent in (Status.REMOTE_ERROR, Status.CANCELED)


# Throughput and latency examples


@pytest.mark.parametrize("sge", [1, 3])
def test_ndping(make_pair: MakePair, sge: int) -> None:
    depth, sizes, iterations = 32, [1, 40, 120, 4096, 1 << 20], 100
    pair = make_pair(depth=2 * depth, sge=sge, inline=256)
    sent, counted = pair.play(
        traffic.ndping_client,
        traffic.ndping_server,
        active_args=(depth, sizes, iterations, sge),
        passive_args=(depth,),
    )
    assert sent == counted == len(sizes) * (iterations + 1)


def test_ndpingpong(make_pair: MakePair) -> None:
    pair = make_pair(depth=64, sge=1)
    turns = ([1, 40, 1000, 65536, 1 << 20], 20)
    pair.play(traffic.ndpingpong_client, traffic.ndpingpong_server, turns, turns)


@pytest.mark.parametrize("sge", [1, 3])
@pytest.mark.parametrize("request_name", ["read", "write"])
def test_ndrping(make_pair: MakePair, request_name: str, sge: int) -> None:
    pair = make_pair(depth=64, sge=sge, inline=256)
    read, served = pair.play(
        traffic.ndrping_client,
        traffic.ndrping_server,
        active_args=(request_name, [1, 40, 120, 4096, 1 << 20], 50, 16, sge),
        passive_args=(request_name,),
    )
    if request_name == "read":
        assert read == served == b"the bytes to be read"
    else:
        assert read == served == b"the written messages"


def test_ndrpingpong(make_pair: MakePair) -> None:
    pair = make_pair(depth=64, sge=1)
    turns = ([1, 40, 4096, 1 << 20], 10)
    pair.play(traffic.ndrpingpong_client, traffic.ndrpingpong_server, turns, turns)


def test_ndmrlat(end: End) -> None:
    buffer = end.adapter.allocate(MAX)
    mr = end.adapter.create_memory_region(overlapped_file=end.file)
    for power in range(23):
        for _ in range(5):
            for submit in (lambda: mr.register(buffer[: 1 << power], LOCAL), mr.deregister):  # noqa: B023
                overlapped = submit()
                assert mr.get_overlapped_result(overlapped, wait=True) == Status.SUCCESS
                assert end.file.poll() == [overlapped]


def test_ndmrrate(end: End) -> None:
    """Threads that take whatever comes out of their file and ask their own region about it."""
    count, size, threads = 1000, 4096, 2
    memory = end.adapter.allocate(size)
    errors: list[BaseException] = []
    barrier = threading.Barrier(threads)

    def one_by_one(file: Any, regions: list[Any], submit: Callable[[Any], Any]) -> None:
        for mr in regions:
            submit(mr)
            while not (delivered := file.poll(max=1)):
                pass
            assert mr.get_overlapped_result(delivered[0]) == Status.SUCCESS

    def work() -> None:
        try:
            file = end.adapter.create_overlapped_file()
            regions = [end.adapter.create_memory_region(overlapped_file=file) for _ in range(count)]
            one_by_one(file, regions, lambda mr: mr.register(memory, LOCAL))
            barrier.wait(WAIT)
            one_by_one(file, regions, lambda mr: mr.deregister())
            for mr in regions:
                mr.close()
            file.close()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(4 * WAIT)
    assert not errors


# Catalogue examples


def test_ndcat() -> None:
    provider = Provider()
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        provider.query_address_list_into(None)
    room = bytearray(caught.value.required)
    assert provider.query_address_list_into(room) == len(room) > 0
    (count,) = struct.unpack_from("<i", room)
    addresses = provider.query_address_list()
    assert count == len(addresses) > 0
    for host, _ in addresses:
        provider.resolve_address(host)


def test_ndadapterinfo() -> None:
    with shmnd.open_adapter() as adapter:
        buffer = bytearray(96)
        struct.pack_into("<I", buffer, 0, 0x20000)
        assert adapter.query_into(buffer) == 96
        info = AdapterInfo.unpack(buffer)
    assert info.info_version == 0x20000
    assert info.adapter_flags


# What the programs kept aside demand, in small


def test_storm_of_connections_over_shared_completion_queues(pair: Pair) -> None:
    """Connections begin and end on one pair of queues and one file, with messages both ways."""
    pair.listen()
    for number in range(50):
        for name in ("connector", "qp"):
            pair.active.forget(name)
            pair.passive.forget(name)
        pair.connect()
        pair.exchange(b"connection %d" % number)
        for end in (pair.active, pair.passive) if number % 2 else (pair.passive, pair.active):
            assert final(end.connector.disconnect()) == Status.SUCCESS


def test_validated_traffic_through_one_window(connected: Pair) -> None:
    """Reads and Writes of many sizes at many places of one window, with a check of every byte."""
    size = 1 << 20
    owner, user = connected.passive, connected.active
    far, near = owner.memory(size), user.memory(size)
    window = connected.window(owner, far, 0x18)
    model = bytearray(far.get())
    place = 1
    for number in range(1, 60):
        place = place * 1_103_515_245 + 12345 & 0x7FFFFFFF
        offset, length = place % (size // 2), place % 5000 + 1
        data = bytes([number]) * length
        model[offset : offset + length] = data
        near.put(data, offset)
        where = (far.address + offset, window.remote_token)
        user.qp.write(near.sge(offset, length), *where)
        user.qp.read(near.sge(size // 2, length), *where)
        assert statuses(user.reap(2)) == [Status.SUCCESS] * 2
        assert near.get(length, size // 2) == data
    assert far.get() == model
