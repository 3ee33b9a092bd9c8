# SPDX-License-Identifier: Apache-2.0
"""IND2QueuePair: every status of every request, what completes how, and in which order."""

import pytest

from shmnd import NdError, OpFlag, RequestType, Status
from spi.harness import (
    LOCAL,
    End,
    contexts,
    nd_error,
    statuses,
    wait_completion,
)
from spi.pair import Pair
from spi.queues.queue_pair_kit import MakePair, post, saw_the_end, too_long, too_many, watched


# Common to all requests
@pytest.mark.parametrize("state", ["A0", "A1", "A2", "A3", "A6"])
@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_connection_invalid_when_the_queue_pair_is_not_connected(
    pair: Pair, state: str, request_name: str
) -> None:
    pair.to(state)
    end = pair.active
    buffer = end.memory(16)
    with nd_error(Status.CONNECTION_INVALID) as caught:
        post(end, request_name, buffer)
    assert isinstance(caught.value, ConnectionError)
    assert request_name in str(caught.value)
    assert end.leftover() == []


@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_no_more_entries_when_the_initiator_queue_is_full(
    make_pair: MakePair, request_name: str
) -> None:
    pair = make_pair(rnr_timeout=120.0, depth=4).connect()
    end = pair.active
    fitted = end.fill_initiator_queue()
    assert fitted >= 4
    buffer = end.memory(16)
    with nd_error(Status.NO_MORE_ENTRIES) as caught:
        post(end, request_name, buffer)
    assert isinstance(caught.value, BlockingIOError)
    assert str(fitted) in str(caught.value), "the message names the limit"
    end.qp.flush()
    canceled = end.reap(fitted)
    assert statuses(canceled) == [Status.CANCELED] * fitted
    assert contexts(canceled) == list(range(fitted))
    pair.exchange()


def test_post_no_more_entries_when_the_depth_is_zero(make_pair: MakePair) -> None:
    pair = make_pair(depth=0).connect()
    buffer = pair.active.memory(16)
    for request_name in ("send", "bind", "invalidate", "read", "write"):
        with nd_error(Status.NO_MORE_ENTRIES):
            post(pair.active, request_name, buffer)
    with nd_error(Status.NO_MORE_ENTRIES):
        pair.active.qp.receive(None)


@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_succeeds_and_completes_canceled_after_the_peer_has_disconnected(
    connected: Pair, request_name: str
) -> None:
    connected.hang_up(connected.passive)
    end = connected.active
    buffer = end.memory(16)
    post(end, request_name, buffer, context="in vain")
    end.qp.receive(None, "too")
    completions = end.reap(2)
    assert statuses(completions) == [Status.CANCELED] * 2
    assert sorted(contexts(completions)) == ["in vain", "too"]
    assert RequestType[request_name.upper()] in [c.request_type for c in completions]


@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_succeeds_and_completes_canceled_even_if_silent(
    connected: Pair, request_name: str
) -> None:
    connected.hang_up(connected.passive)
    end = connected.active
    post(end, request_name, end.memory(16), context="loud", flags=OpFlag.SILENT_SUCCESS)
    (completion,) = end.reap()
    assert (completion.status, completion.request_context) == (Status.CANCELED, "loud")


def test_post_checks_flags_then_count_then_length_then_connection_then_depth(
    make_pair: MakePair,
) -> None:
    end = make_pair(depth=0).active
    buffer = end.memory(16)
    long = too_long(end, buffer)
    many = long + too_many(buffer, end.info.max_initiator_sge)
    for request, where in ((end.qp.send, ()), (end.qp.read, (0, 0)), (end.qp.write, (0, 0))):
        bad_flags = Status.INVALID_PARAMETER_6 if where else Status.INVALID_PARAMETER_4
        with nd_error(bad_flags):
            request(many, *where, flags=0x40)
        with nd_error(Status.DATA_OVERRUN):
            request(many, *where)
        with nd_error(Status.BUFFER_OVERFLOW):
            request(long, *where)
        with nd_error(Status.CONNECTION_INVALID):
            request(buffer.sge(), *where)
    assert end.leftover() == []


def test_post_failing_changes_nothing(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    for _ in range(100):
        with pytest.raises(NdError):
            end.qp.send(buffer.sge(), flags=0x40)
        with pytest.raises(NdError):
            end.qp.send(too_many(buffer, end.info.max_initiator_sge))
        with pytest.raises(NdError):
            end.qp.receive(too_many(buffer, end.info.max_receive_sge))
        with pytest.raises(NdError):
            end.qp.write(too_long(end, buffer), 0, 0)
    assert end.leftover() == []
    connected.exchange()


def test_post_takes_a_tuple_a_list_and_a_single_entry(connected: Pair) -> None:
    source, sink = connected.active.memory(6), connected.passive.memory(6)
    source.put(b"abcdef")
    halves = [source.sge(0, 3), source.sge(3, 3)]
    for sge in (source.sge(), halves, tuple(halves)):
        sink.put(bytes(6))
        connected.passive.qp.receive(sink.sge())
        connected.active.qp.send(sge)
        assert statuses(connected.reap(connected.active)) == [Status.SUCCESS]
        assert connected.reap(connected.passive)[0].bytes_transferred == 6
        assert sink.get() == b"abcdef"


# Lifetime
def test_close_cancels_both_sides_like_a_disconnect(patient: Pair) -> None:
    notice = watched(patient.passive)
    patient.active.qp.receive(None, "receive")
    patient.active.qp.send(None, "sent")
    patient.active.qp.close()
    # The queue pair is gone; what it completed is not.
    completions = patient.active.reap(2)
    assert sorted(contexts(completions)) == ["receive", "sent"]
    results = {c.request_context: c.status for c in completions}
    assert results == {"receive": Status.CANCELED, "sent": Status.SUCCESS}
    received = patient.passive.reap(2)
    assert contexts(received) == ["first", "second"]
    assert statuses(received) == [Status.SUCCESS, Status.CANCELED]
    assert patient.settle(notice, patient.passive) == Status.SUCCESS


def test_close_twice_is_harmless_and_a_with_block_closes(end: End) -> None:
    qp = end.new_qp()
    qp.receive(None, "one")
    qp.close()
    qp.close()
    with end.new_qp() as other:
        other.receive(None, "two")
    assert contexts(end.reap(2)) == ["one", "two"]
    for closed in (qp, other):
        with pytest.raises(NdError):
            closed.receive(None)


def test_end_of_life_has_the_effect_of_close(patient: Pair) -> None:
    notice = watched(patient.active)
    patient.passive.qp.receive(None, "theirs")
    patient.accepting = None
    patient.passive.file.poll()
    patient.passive.drop("qp")
    saw_the_end(patient, patient.active, notice)
    assert contexts(patient.passive.reap()) == ["theirs"]


def test_two_completion_queues_get_their_own_results(make_pair: MakePair) -> None:
    pair = make_pair(separate_cqs=True).connect()
    pair.passive.qp.receive(None, "receive")
    pair.active.qp.send(None, "send")
    assert contexts(wait_completion(pair.active.cq)) == ["send"]
    assert contexts(wait_completion(pair.passive.receive_cq)) == ["receive"]
    assert pair.active.receive_cq.get_results() == []
    assert pair.passive.cq.get_results() == []


def test_memory_of_either_kind_may_overlap_in_several_requests(connected: Pair) -> None:
    sink = connected.passive.memory(16)
    for number in range(8):
        connected.passive.qp.receive(sink.sge(), number)
    source = connected.active.memory(16, LOCAL)
    for number in range(8):
        connected.active.qp.send(source.sge(number, 8), number)
    assert contexts(connected.reap(connected.active, 8)) == list(range(8))
    assert contexts(connected.reap(connected.passive, 8)) == list(range(8))
