# SPDX-License-Identifier: Apache-2.0
"""INDEndpoint: posting, windows, batches, flush."""

from collections.abc import Callable
from typing import Any

import pytest

import shmnd
import shmnd.nd1 as nd
from nd1.endpoint.endpoint_kit import FEW, READ, WRITE, broken, done
from nd1.ends import End, Pair
from shmnd import Status
from spi.harness import WAIT, Late, nd_error


def posts(end: End) -> dict[str, Callable[..., Any]]:
    """Each data request as a function of (result, sges, flags)."""
    endpoint, far = end.endpoint, nd.MwDescriptor(4096, 1 << 33, 7)
    return {
        "send": endpoint.send,
        "send_and_invalidate": lambda r, s, f=0: endpoint.send_and_invalidate(r, s, far, f),
        "read": lambda r, s, f=0: endpoint.read(r, s, far, 0, f),
        "write": lambda r, s, f=0: endpoint.write(r, s, far, 0, f),
    }


# -- what a call refuses at once --
def refuses_unconnected(end: End, name: str) -> None:
    with nd_error(Status.CONNECTION_INVALID, match=f"Endpoint.{name}"):
        posts(end)[name](nd.Result(), None)
    assert end.cq.get_results() == []


def test_send_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "send")


def test_send_and_invalidate_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "send_and_invalidate")


def test_read_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "read")


def test_write_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "write")


def refuses_too_much(end: End, name: str) -> None:
    memory = end.memory(64)
    for length in ((1 << 31) + 1, 1 << 32, 1 << 40):
        huge = nd.Sge(memory.address, length, memory.handle)
        assert huge.length == length
        with nd_error(Status.BUFFER_OVERFLOW, match=f"Endpoint.{name}"):
            posts(end)[name](nd.Result(), [huge])


def test_send_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "send")


def test_send_and_invalidate_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "send_and_invalidate")


def test_read_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "read")


def test_write_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "write")


def test_send_buffer_overflow_beyond_the_inline_data(end: End) -> None:
    most = end.endpoint.max_inline_data
    for name in ("send", "send_and_invalidate", "write"):
        with nd_error(Status.BUFFER_OVERFLOW, match=f"Endpoint.{name}.*{most}"):
            posts(end)[name](nd.Result(), [nd.Sge(bytes(most), None, None), nd.Sge(b"x", 1, None)])


def refuses_many_elements(pair: Pair, name: str) -> None:
    """Before anything else that is wrong, inline elements included."""
    end = pair.active
    memory = end.memory(64)
    for count in (5, 17):
        for sge in (memory.sge(0, 1), nd.Sge(b"x", 1, None)):
            with nd_error(Status.DATA_OVERRUN, match=f"Endpoint.{name}"):
                posts(end)[name](nd.Result(), [sge] * count, 0x80)


def test_send_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "send")


def test_send_and_invalidate_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "send_and_invalidate")


def test_read_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "read")


def test_write_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "write")


def refuses_flags(end: End, name: str, parameter: int, allowed: int) -> None:
    """Checked before the connection; INLINE is of version 2."""
    for bit in (0x4, 0x8, 0x10, 0x20, 0x40, 1 << 31, 1 << 40):
        if not bit & allowed:
            with nd_error(Status[f"INVALID_PARAMETER_{parameter}"], match=f"Endpoint.{name}"):
                posts(end)[name](nd.Result(), None, bit)


def test_send_invalid_parameter_4_with_other_flags(end: End) -> None:
    refuses_flags(end, "send", 4, 0x7)


def test_send_and_invalidate_invalid_parameter_5_with_other_flags(end: End) -> None:
    refuses_flags(end, "send_and_invalidate", 5, 0x7)


def test_read_invalid_parameter_6_with_other_flags(end: End) -> None:
    refuses_flags(end, "read", 6, 0x3)


def test_write_invalid_parameter_6_with_other_flags(end: End) -> None:
    refuses_flags(end, "write", 6, 0x3)


def full(make_pair: Callable[..., Pair], name: str, *, inline: bool = False) -> None:
    """Sends that wait for a Receive fill the queue; another request finds no room."""
    pair = make_pair(rnr_timeout=120.0, **FEW).connect()
    end = pair.active
    waiting = [nd.Result() for _ in range(2)]
    for result in waiting:
        end.endpoint.send(result, nd.Sge(b"waits", 5, None) if inline else None)
    with nd_error(Status.NO_MORE_ENTRIES, match="2"):
        posts(end)[name](nd.Result(), nd.Sge(b"never", 5, None) if inline else None)
    sink = pair.passive.memory(8)
    for _ in waiting:
        pair.passive.endpoint.receive(nd.Result(), sink.sge())
    assert pair.both_reap(end, 2) == waiting
    if inline:
        assert sink.get(5) == b"waits", "the refused requests have overwritten nothing"


def test_send_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    full(make_pair, "send")
    full(make_pair, "send", inline=True)


def test_send_and_invalidate_no_more_entries_when_the_queue_is_full(
    make_pair: Callable[..., Pair],
) -> None:
    full(make_pair, "send_and_invalidate")


def test_read_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    full(make_pair, "read")


def test_write_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    full(make_pair, "write")


def test_a_result_is_a_result(connected: Pair) -> None:
    endpoint = connected.active.endpoint
    for post in (endpoint.send, endpoint.receive):
        for result in (None, object()):
            with pytest.raises(TypeError, match="esult"):
                post(result, None)  # type: ignore[arg-type]


# -- batches --
def test_start_request_batch_success_changes_no_outcome(connected: Pair) -> None:
    """Requests between the calls come out as without them, in order, submitted or not."""
    active, passive = connected.active, connected.passive
    sink = passive.memory(16 * 8)
    received, sent = [nd.Result() for _ in range(8)], [nd.Result() for _ in range(8)]
    passive.endpoint.start_request_batch()
    for number, result in enumerate(received):
        passive.endpoint.receive(result, sink.sge(number * 16, 16))
    passive.endpoint.submit_request_batch()
    active.endpoint.start_request_batch()
    active.endpoint.start_request_batch()
    for number, result in enumerate(sent):
        active.endpoint.send(result, nd.Sge(bytes([number]) * 9, 9, None))
    assert connected.both_reap(active, 8) == sent, "a poll leaves nothing stuck"
    assert connected.both_reap(passive, 8) == received
    assert [sink.get(9, number * 16) for number in range(8)] == [bytes([n]) * 9 for n in range(8)]


def test_submit_request_batch_success_without_a_start(connected: Pair) -> None:
    connected.active.endpoint.submit_request_batch()
    connected.active.endpoint.submit_request_batch()
    received = nd.Result()
    connected.passive.endpoint.receive(received, None)
    connected.active.endpoint.send(nd.Result(), None)
    assert connected.passive.reap() == [received]


@pytest.mark.parametrize("how", ["flush", "disconnect", "close"])
def test_a_batch_that_is_never_submitted_ends_with_its_endpoint(connected: Pair, how: str) -> None:
    end = connected.active
    results = [nd.Result() for _ in range(3)]
    end.endpoint.start_request_batch()
    for result in results:
        end.endpoint.receive(result, None)
    if how == "disconnect":
        end.connector.disconnect().result(WAIT)
    else:
        getattr(end.endpoint, how)()
    assert end.reap(3) == results
    assert {result.status for result in results} == {Status.CANCELED}


@pytest.mark.parametrize("how", ["rejected", "connector closed", "endpoint closed"])
def test_a_batch_is_submitted_after_the_attempt_in_which_it_began(pair: Pair, how: str) -> None:
    """Its Receives were held back from a peer that has gone since."""
    end = pair.active
    pair.offer()
    pair.accept()
    received = nd.Result()
    end.endpoint.start_request_batch()
    end.endpoint.receive(received, None)
    if how == "rejected":
        end.connector.reject()
    else:
        (end.endpoint if how == "endpoint closed" else end.connector).close()
    end.endpoint.submit_request_batch()
    end.endpoint.flush()
    assert end.reap() == [received]
    assert received.status is Status.CANCELED


REFUSED: dict[str, Callable[[Pair], Any]] = {
    "flags of Send": lambda pair: pair.active.endpoint.send(nd.Result(), None, 0x40),
    "flags of Write": lambda pair: pair.active.endpoint.write(
        nd.Result(), None, nd.MwDescriptor(0, 0, 1), 0, 0x40
    ),
    "too many elements": lambda pair: pair.active.endpoint.send(
        nd.Result(), [nd.Sge(b"x", 1, None)] * 17
    ),
    "too much inline": lambda pair: pair.active.endpoint.send(
        nd.Result(), nd.Sge(bytes(1 << 20), None, None)
    ),
    "no memory handle": lambda pair: pair.active.endpoint.bind(
        nd.Result(), 0xDEAD, pair.active.adapter.create_memory_window(), 0, 1, 0x08
    ),
    "flags of Invalidate": lambda pair: pair.active.endpoint.invalidate(
        nd.Result(), pair.active.adapter.create_memory_window(), 0x40
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_call_that_is_refused_ends_a_batch(connected: Pair, how: str) -> None:
    """Requests held back arrive, though nothing else submits them."""
    received = nd.Result()
    connected.passive.endpoint.receive(received, None)
    connected.active.endpoint.start_request_batch()
    connected.active.endpoint.send(nd.Result(), None)
    assert connected.passive.cq.get_results(1) == [], "held back"
    with pytest.raises(shmnd.NdError):
        REFUSED[how](connected)
    assert connected.passive.reap() == [received]


# -- Flush --
def test_flush_success_of_an_endpoint_that_never_had_a_peer(end: End) -> None:
    results = [nd.Result() for _ in range(3)]
    for result in results:
        end.endpoint.receive(result, None)
    end.endpoint.flush()
    assert end.reap(3) == results
    assert {result.status for result in results} == {Status.CANCELED}


def test_flush_success_ends_a_connection_on_both_sides(patient: Pair) -> None:
    end, other = patient.active, patient.passive
    sent, received, far = nd.Result(), nd.Result(), nd.Result()
    end.endpoint.send(sent, None)
    end.endpoint.receive(received, None)
    end.endpoint.flush()
    assert set(map(id, end.reap(2))) == {id(sent), id(received)}
    assert sent.status is received.status is Status.CANCELED
    broken(patient)
    other.endpoint.receive(far, None)
    assert other.reap() == [far]
    assert far.status is Status.CANCELED


def test_flush_success_touches_no_other_endpoint(make_end: Callable[..., End]) -> None:
    end = make_end()
    other = end.adapter.create_connector()
    endpoint = other.create_endpoint(end.cq, end.cq, 4, 4, 1, 1)
    end.kept += [other, endpoint]
    kept = nd.Result()
    endpoint.receive(kept, None)
    end.endpoint.receive(nd.Result(), None)
    end.endpoint.flush()
    end.reap()
    with pytest.raises(Late):
        end.reap(timeout=0.02)
    endpoint.close()
    assert end.reap() == [kept]


# -- version 2 on the other side --
def test_version_two_sends_and_receives(make_end: Callable[..., End]) -> None:
    """Both know Send, Receive, windows; SendAndInvalidate works upon a version-2 window."""
    end = make_end()
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(64)
        qp = adapter.create_queue_pair(cq, cq, max_receive_sge=1)
        connector = adapter.create_connector()
        waiting = end.listen.get_connection_request(end.connector)
        connecting = connector.connect(
            qp, ("127.0.0.1", end.listen.assigned_port), 4, 4, b"from version 2"
        )
        waiting.result(WAIT)
        assert end.connector.get_connection_data() == (4, 4, b"from version 2")
        accepting = end.connector.accept(end.endpoint, b"from version 1")
        connecting.result(WAIT)
        assert connector.get_private_data() == b"from version 1"
        connector.complete_connect().result(WAIT)
        accepting.result(WAIT)

        array = adapter.allocate(256)
        region = adapter.create_memory_region()
        region.register(array, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        sink = end.memory(64)
        received = nd.Result()
        end.endpoint.receive(received, sink.sge())
        array[:5] = list(b"hello")
        qp.send(region.sge(0, 5), "sent")
        assert end.reap() == [received]
        assert sink.get(5) == b"hello"
        assert cq.wait(timeout=WAIT)[0].request_context == "sent"

        window = adapter.create_memory_window()
        qp.bind(region, window, region.address, 256, "bound", flags=READ | WRITE)
        assert cq.wait(timeout=WAIT)[0].status is Status.SUCCESS
        descriptor = nd.MwDescriptor(region.address, 256, window.remote_token)
        assert done(end, end.endpoint.write, sink.sge(0, 5), descriptor, 9).status is (
            Status.SUCCESS
        )
        assert bytes(array[9:14]) == b"hello"
        qp.receive(region.sge(64, 64), "received")
        last = nd.Result()
        end.endpoint.send_and_invalidate(last, nd.Sge(b"bye", 3, None), descriptor)
        (result,) = cq.wait(timeout=WAIT)
        assert (result.request_context, result.bytes_transferred) == ("received", 3)
        assert end.reap() == [last]
        assert last.status is Status.SUCCESS
        refused = done(end, end.endpoint.write, sink.sge(0, 5), descriptor, 9)
        assert refused.status is Status.REMOTE_ERROR
        for each in (connector, qp, cq):
            each.close()
