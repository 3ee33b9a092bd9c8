# SPDX-License-Identifier: Apache-2.0
"""IND2SharedReceiveQueue: one pool of Receives for many connections."""

import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shmnd import NdError, Status
from spi import roles
from spi.harness import (
    FILL,
    WAIT,
    End,
    contexts,
    final,
    nd_error,
    statuses,
    succeeded,
    wait_until,
)
from spi.pair import Pair
from spi.remote import Ends

MakePair = Callable[..., Pair]
SIZES = [0, 1, 48, 64, 1000, 65536, 1 << 20]


@pytest.fixture
def shared(make_pair: MakePair) -> Pair:
    """A connected pair whose passive end receives through a shared queue."""
    return make_pair(passive={"srq": True}, rnr_timeout=0.2).connect()


def another(pair: Pair, name: str) -> tuple[Any, Any]:
    """One more connection between the two ends; the queue pair of each, active first."""
    active, passive = pair.active, pair.passive
    connector, partner = active.new_connector(), passive.new_connector()
    qp, far_qp = active.new_qp(context=name), passive.new_qp(context=name)
    connecting = connector.connect(qp, pair.address, 1, 1)
    passive.listener.get_connection_request(partner).result(timeout=WAIT)
    accepting = partner.accept(far_qp, 1, 1)
    connecting.result(timeout=WAIT)
    connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    return qp, far_qp


def new_srq(end: End, depth: int = 8, sge: int = 1, threshold: int = 0) -> Any:
    return end.adapter.create_shared_receive_queue(depth, sge, threshold, overlapped_file=end.file)


# Receive


@pytest.mark.parametrize("size", SIZES)
def test_receive_success_delivers_every_byte(shared: Pair, size: int) -> None:
    source, sink = shared.active.memory(size + 1), shared.passive.memory(size + 1)
    data = bytes((i * 7 + (i >> 10)) & 0xFF for i in range(size))
    source.put(data)
    shared.passive.srq.receive(sink.sge(), "shared")
    shared.active.qp.send(source.sge(0, size), "sent")
    assert statuses(shared.reap(shared.active)) == [Status.SUCCESS]
    (received,) = shared.reap(shared.passive)
    assert (received.status, received.request_context) == (Status.SUCCESS, "shared")
    assert received.bytes_transferred == size
    assert sink.get(size) == data
    assert sink.get(1, size) == bytes([FILL])


def test_receive_success_before_any_queue_pair_exists(make_pair: MakePair) -> None:
    pair = make_pair(passive={"srq": True})
    pair.passive.srq.receive(None, "early")
    pair.connect()
    pair.active.qp.send(None)
    assert contexts(pair.reap(pair.passive)) == ["early"]


@pytest.mark.parametrize("sge", [None, (), []])
def test_receive_success_without_a_buffer(end: End, sge: Any) -> None:
    new_srq(end).receive(sge, "empty")


def test_receive_success_scatters_in_order(shared: Pair) -> None:
    source, sink = shared.active.memory(10), shared.passive.memory(10)
    source.put(b"0123456789")
    shared.passive.srq.receive([sink.sge(5, 5), sink.sge(0, 5)])
    shared.active.qp.send(source.sge())
    assert shared.reap(shared.passive)[0].bytes_transferred == 10
    assert sink.get() == b"5678901234"


def test_receive_buffer_overflow_when_longer_than_max_transfer_length(end: End) -> None:
    limit, buffer = end.info.max_transfer_length, end.memory(1)
    srq = new_srq(end, sge=2)
    with nd_error(Status.BUFFER_OVERFLOW, match=str(limit)):
        srq.receive([buffer.raw_sge(0, limit), buffer.raw_sge(0, 1)])


def test_receive_no_more_entries_when_depth_is_outstanding(shared: Pair) -> None:
    srq, fitted = shared.passive.srq, 0
    with nd_error(Status.NO_MORE_ENTRIES) as caught:
        for fitted in range(1 << 18):
            srq.receive(None, fitted)
    assert fitted >= 64
    assert isinstance(caught.value, BlockingIOError)
    shared.active.qp.send(None)
    assert contexts(shared.reap(shared.passive)) == [0]
    srq.receive(None, "room again")


def test_receive_success_again_when_messages_used_them_up_without_a_poll(
    make_pair: MakePair,
) -> None:
    pair = make_pair(passive={"srq": True, "srq_depth": 4}).connect()
    for number in range(4):
        pair.passive.srq.receive(None, number)
    for _ in range(3):
        pair.active.qp.send(None)
    for number in range(4, 7):
        pair.passive.srq.receive(None, number)
    with nd_error(Status.NO_MORE_ENTRIES):
        pair.passive.srq.receive(None)
    assert contexts(pair.reap(pair.passive, 3)) == [0, 1, 2]
    assert statuses(pair.reap(pair.active, 3)) == [Status.SUCCESS] * 3


def test_receive_data_overrun_when_more_sge_than_granted(end: End) -> None:
    limit = end.info.max_receive_sge
    entry = end.memory(4).sge()
    with nd_error(Status.DATA_OVERRUN, match=str(limit + 1)):
        new_srq(end).receive([entry] * (limit + 1))


@pytest.mark.active_end_here
@pytest.mark.parametrize("full", [False, True])
def test_receive_invalid_handle_when_it_is_closed_during_the_call(
    end: End, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """The handler of a signal, or another thread, runs while a Receive looks whether others left
    room, and whether a Notify has to complete first.
    """

    class Context:
        """What a posted Receive holds."""

    srq = new_srq(end, threshold=1)
    srq.receive(None)
    posted = fill(srq) if full else 0
    notice = srq.notify()
    assert posted == 0 or end.still_pending(notice)

    def closes(self: Any) -> None:
        monkeypatch.undo()
        self.close()

    monkeypatch.setattr(type(srq), "_used_up", closes)
    context = Context()
    gone = weakref.ref(context)
    with nd_error(Status.INVALID_HANDLE, match="closed"):
        srq.receive(None, context)
    del context
    assert srq._outstanding == 0
    assert gone() is None
    assert final(notice) is Status.CANCELED


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("size", [0, 40, 3000, 70_000])
def test_receive_completes_success_in_arrival_order(shared: Pair, size: int, private: bool) -> None:
    source = shared.active.memory(40 * size or 1, private=private)
    sink = shared.passive.memory(40 * size or 1, private=private)
    messages = b"".join(bytes([number]) * size for number in range(40))
    source.put(messages)
    for number in range(40):
        shared.passive.srq.receive(sink.sge(number * size, size), number)
    for number in range(40):
        shared.active.qp.send(source.sge(number * size, size), number)
    assert succeeded(shared.reap(shared.passive, 40), size) == list(range(40))
    assert succeeded(shared.reap(shared.active, 40)) == list(range(40))
    assert sink.get(40 * size) == messages


def test_receive_completes_success_with_the_context_of_the_queue_pair_that_used_it(
    shared: Pair,
) -> None:
    queue_pairs = {name: another(shared, name)[0] for name in ("red", "green", "blue")}
    order = ["green", "red", "blue", "red", "green", "green"]
    for number in range(len(order)):
        shared.passive.srq.receive(None, number)
    for number, name in enumerate(order):
        queue_pairs[name].send(None)
        (received,) = shared.reap(shared.passive)
        assert (received.request_context, received.queue_pair_context) == (number, name)
    assert statuses(shared.reap(shared.active, len(order))) == [Status.SUCCESS] * len(order)


def test_receive_completes_success_in_order_per_queue_pair_with_many_senders(
    shared: Pair,
) -> None:
    queue_pairs = {f"qp {i}": another(shared, f"qp {i}")[0] for i in range(6)}
    rounds, sink = 8, shared.passive.memory(8 * 48)
    sources = {name: shared.active.memory(8) for name in queue_pairs}
    for slot in range(48):
        shared.passive.srq.receive(sink.sge(slot * 8, 8), slot)
    for number in range(rounds):
        for name, qp in queue_pairs.items():
            sources[name].put(f"{name} {number:3}".encode()[-8:])
            qp.send(sources[name].sge())
            assert statuses(shared.reap(shared.active)) == [Status.SUCCESS]
    received = shared.reap(shared.passive, 48)
    assert succeeded(received, 8) == list(range(48))
    for name in queue_pairs:
        mine = [c for c in received if c.queue_pair_context == name]
        texts = [sink.get(8, c.request_context * 8) for c in mine]
        assert texts == [f"{name} {number:3}".encode()[-8:] for number in range(rounds)]


def test_receive_completes_success_however_long_the_queue_was_empty(shared: Pair) -> None:
    """The receiver-not-ready limit of this pair is 0.2 s and must not count here."""
    source, sink = shared.active.memory(5), shared.passive.memory(5)
    source.put(b"later")
    for number in range(3):
        shared.active.qp.send(source.sge(), number)
    assert shared.active.cq.wait(timeout=0.5) == []
    for number in range(3):
        shared.passive.srq.receive(sink.sge(), number)
    assert succeeded(shared.reap(shared.passive, 3), 5) == [0, 1, 2]
    assert succeeded(shared.reap(shared.active, 3)) == [0, 1, 2]
    assert sink.get() == b"later"
    shared.exchange()


def test_a_receive_wakes_the_thread_that_sleeps_for_a_message_which_waits_for_it(
    make_pair: MakePair,
) -> None:
    pair = make_pair(remote="active", passive={"srq": True}, rnr_timeout=120.0).connect()
    here = pair.passive
    pair.active.qp.send(None)
    assert here.receive_cq.wait(timeout=0.05) == []
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(here.receive_cq.wait, 64, 3 * WAIT)
        time.sleep(0.1)  # it sleeps by then: where it does not, a poll finds the message
        here.srq.receive(None, "late")
        assert contexts(waits.result(timeout=WAIT)) == ["late"]


def test_receive_completes_buffer_overflow_and_the_queue_continues(shared: Pair) -> None:
    qp, _ = another(shared, "other")
    notice = shared.passive.connector.notify_disconnect()
    shared.passive.srq.receive(None, "too small")
    shared.active.qp.send(shared.active.memory(8).sge(), "too large")
    assert statuses(shared.reap(shared.active)) == [Status.REMOTE_ERROR]
    (received,) = shared.reap(shared.passive)
    assert (received.status, received.request_context) == (Status.BUFFER_OVERFLOW, "too small")
    assert received.bytes_transferred == 0
    assert shared.settle(notice, shared.passive) == Status.SUCCESS
    sink = shared.passive.memory(8)
    shared.passive.srq.receive(sink.sge(), "next")
    qp.send(shared.active.memory(8).sge())
    (received,) = shared.reap(shared.passive)
    assert (received.status, received.queue_pair_context) == (Status.SUCCESS, "other")


def test_receive_completes_access_violation_when_an_sge_is_bad(shared: Pair) -> None:
    shared.passive.srq.receive(shared.passive.garbage_sge(8), "bad")
    shared.active.qp.send(shared.active.memory(8).sge())
    assert statuses(shared.reap(shared.active)) == [Status.REMOTE_ERROR]
    (received,) = shared.reap(shared.passive)
    assert (received.status, received.request_context) == (Status.ACCESS_VIOLATION, "bad")


@pytest.mark.parametrize("how", ["flush", "disconnect", "close", "peer disconnects"])
def test_entries_stay_posted_when_a_queue_pair_leaves(shared: Pair, how: str) -> None:
    qp, _ = another(shared, "other")
    shared.passive.srq.receive(None, "stays")
    if how == "flush":
        shared.passive.qp.flush()
    elif how == "disconnect":
        shared.hang_up(shared.passive)
    elif how == "close":
        shared.passive.qp.close()
    else:
        shared.hang_up(shared.active)
    assert shared.passive.leftover() == []
    qp.send(None)
    (received,) = shared.reap(shared.passive)
    assert (received.request_context, received.queue_pair_context) == ("stays", "other")


def test_entries_stay_posted_when_the_process_of_a_sender_dies(
    ends: Ends, kill: Callable[[], int]
) -> None:
    dying = ends.pair("two", remote="active", passive={"srq": True}).connect()
    dying.passive.srq.receive(None, "stays")
    notice = dying.passive.connector.notify_disconnect()
    kill()
    assert final(notice) == Status.SUCCESS
    assert dying.passive.leftover() == []
    heir = ends.here()
    connector, partner = heir.connector, dying.passive.new_connector()
    connecting = connector.connect(heir.qp, dying.address)
    dying.passive.listener.get_connection_request(partner).result(timeout=WAIT)
    accepting = partner.accept(dying.passive.new_qp(context="heir"))
    connecting.result(timeout=WAIT)
    connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    heir.qp.send(None)
    (received,) = dying.passive.reap()
    assert (received.request_context, received.queue_pair_context) == ("stays", "heir")


def test_close_drops_the_entries_without_completions(shared: Pair) -> None:
    shared.passive.srq.receive(None, "dropped")
    shared.passive.srq.close()
    shared.passive.srq.close()
    assert shared.passive.leftover() == []
    with pytest.raises(NdError):
        shared.passive.srq.receive(None)


# Notify


def test_notify_pending_until_fewer_than_the_threshold_are_posted(shared: Pair) -> None:
    end = shared.passive
    end.srq.modify(notify_threshold=3)
    for number in range(4):
        end.srq.receive(None, number)
    notice = end.srq.notify()
    for sent in range(2):
        assert end.still_pending(notice), f"{4 - sent} are posted"
        shared.active.qp.send(None)
        assert contexts(shared.reap(end)) == [sent]
    assert final(notice) == Status.SUCCESS


def test_notify_success_without_a_poll(shared: Pair) -> None:
    """A thread that waits for receives to be used up may wait for nothing else."""
    end = shared.passive
    end.srq.modify(notify_threshold=3)
    for number in range(4):
        end.srq.receive(None, number)
    notice = end.srq.notify()
    shared.active.qp.send(None, "first")
    assert end.still_pending(notice)
    late, _ = another(shared, "joined during a wait")
    late.send(None, "second")
    assert final(notice) == Status.SUCCESS
    assert contexts(end.reap(2)) == [0, 1]
    assert statuses(shared.active.reap(2)) == [Status.SUCCESS] * 2


def test_notify_success_is_delivered_to_a_sleeper_at_the_file(shared: Pair) -> None:
    end = shared.passive
    end.srq.modify(notify_threshold=1)
    end.srq.receive(None)
    notice = end.srq.notify()
    polled = shared.play(roles.send_one, roles.sleep_at_the_file)[1]
    assert polled == 1
    assert notice.done()


def test_notify_success_at_once_when_fewer_are_posted_already(end: End) -> None:
    srq = new_srq(end, threshold=2)
    srq.receive(None)
    assert final(srq.notify()) == Status.SUCCESS
    srq.receive(None)
    assert end.still_pending(srq.notify())


def test_notify_success_of_all_that_are_outstanding_by_one_event(shared: Pair) -> None:
    end = shared.passive
    end.srq.modify(notify_threshold=1)
    end.srq.receive(None)
    notices = [end.srq.notify() for _ in range(4)]
    shared.active.qp.send(None)
    shared.reap(end)
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 4


def test_notify_success_although_more_were_posted_before_a_poll(shared: Pair) -> None:
    """It counts that they fell below the threshold, not how many there are later."""
    end = shared.passive
    end.srq.modify(notify_threshold=1)
    end.srq.receive(None)
    notice = end.srq.notify()
    shared.active.qp.send(None)
    wait_until(lambda: end.cq.get_results() != [], "the message")
    end.srq.receive(None)
    assert final(notice) == Status.SUCCESS


def test_notify_success_while_another_thread_takes_the_messages(make_pair: MakePair) -> None:
    pair = make_pair(remote="active", passive={"srq": True}).connect()
    here = pair.passive
    here.srq.modify(notify_threshold=1)
    here.srq.receive(None)
    notice = here.srq.notify()
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(notice.result, 600.0)
        pair.active.qp.send(None)
        wait_until(lambda: here.cq.get_results() != [], "the message")
        waits.result(timeout=WAIT)


def test_notify_success_when_modify_raises_the_threshold(end: End) -> None:
    srq = new_srq(end, threshold=1)
    srq.receive(None)
    srq.receive(None)
    notices = [srq.notify(), srq.notify()]
    srq.modify(notify_threshold=2)
    assert all(end.still_pending(notice) for notice in notices)
    srq.modify(notify_threshold=3)
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 2


def test_notify_pending_for_ever_without_a_threshold(shared: Pair) -> None:
    end = shared.passive
    notice = end.srq.notify()
    end.srq.receive(None)
    shared.active.qp.send(None)
    shared.reap(end)
    assert end.still_pending(notice)
    end.srq.cancel_overlapped_requests()
    assert final(notice) == Status.CANCELED


def test_notify_canceled_when_cancelled(end: End) -> None:
    srq = new_srq(end, threshold=1)
    srq.receive(None)
    notices = [srq.notify(), srq.notify()]
    srq.cancel_overlapped_requests()
    assert all(notice.done() for notice in notices)
    assert [final(notice) for notice in notices] == [Status.CANCELED] * 2
    assert end.still_pending(srq.notify()), "the queue stays usable"


def test_notify_canceled_when_the_queue_is_closed(end: End) -> None:
    srq = new_srq(end)
    notice = srq.notify()
    srq.close()
    assert final(notice) == Status.CANCELED


def test_notify_device_removed_when_the_adapter_is_closed(end: End) -> None:
    srq = new_srq(end)
    notice = srq.notify()
    end.close()
    assert final(notice) == Status.CANCELED
    with nd_error(Status.DEVICE_REMOVED, match="notify"):
        srq.notify()


# Modify


def fill(srq: Any) -> int:
    """Post until the queue is full; how many fitted."""
    for count in range(1 << 18):
        try:
            srq.receive(None, count)
        except NdError as error:
            if error.status == Status.NO_MORE_ENTRIES:
                return count
            raise
    raise AssertionError("the queue is never full")


def test_modify_success_makes_the_queue_deeper_while_it_is_in_use(shared: Pair) -> None:
    srq = shared.passive.srq
    fitted = fill(srq)
    srq.modify(fitted + 50)
    assert fill(srq) >= 50
    for number in range(fitted + 10):
        shared.active.qp.send(None)
        expected = number if number < fitted else number - fitted
        assert contexts(shared.reap(shared.passive)) == [expected]
        assert statuses(shared.reap(shared.active)) == [Status.SUCCESS]


def test_modify_success_keeps_every_element_of_the_posted_receives(shared: Pair) -> None:
    srq = shared.passive.srq
    source, sink = shared.active.memory(64), shared.passive.memory(8 * 4 * 64)
    source.put(bytes(range(64)))
    places = [[64 * (4 * number + element) for element in range(4)] for number in range(8)]
    for number, offsets in enumerate(places):
        srq.receive([sink.sge(offset, 16) for offset in offsets], number)
    srq.modify(1000)
    for number, offsets in enumerate(places):
        sink.put(bytes(8 * 4 * 64))
        shared.active.qp.send(source.sge(0, 64))
        assert contexts(shared.reap(shared.passive)) == [number]
        assert statuses(shared.reap(shared.active)) == [Status.SUCCESS]
        for element, offset in enumerate(offsets):
            assert sink.get(16, offset) == bytes(range(16 * element, 16 * element + 16))


def test_modify_success_with_zero_leaves_each_alone(end: End) -> None:
    srq = new_srq(end, depth=4, threshold=2)
    fitted = fill(srq)
    srq.modify(0, 0)
    with nd_error(Status.NO_MORE_ENTRIES):
        srq.receive(None)
    notice = srq.notify()
    assert end.still_pending(notice), "2 or more are posted"
    srq.modify(0, fitted + 1)
    assert final(srq.notify()) == Status.SUCCESS, "fewer than the new threshold are posted"


def test_modify_success_makes_the_queue_less_deep(end: End) -> None:
    srq = new_srq(end, depth=1000)
    srq.receive(None)
    srq.modify(4)
    assert fill(srq) < 999


def test_modify_invalid_parameter_when_the_depth_is_above_the_limit(end: End) -> None:
    limit = end.info.max_shared_receive_queue_depth
    with nd_error(Status.INVALID_PARAMETER, match=f"(?i)modify.*{limit + 1}.*{limit}"):
        new_srq(end).modify(limit + 1)


def test_modify_buffer_overflow_when_more_are_outstanding(end: End) -> None:
    srq = new_srq(end, depth=200)
    for number in range(150):
        srq.receive(None, number)
    with nd_error(Status.BUFFER_OVERFLOW, match="modify"):
        srq.modify(149)
    assert fill(srq) >= 50, "unchanged"


def test_modify_insufficient_resources_when_memory_is_used_up(
    starving: Callable[..., None], end: End
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES):
        starving("srq", "modify", end.info.max_shared_receive_queue_depth)


def test_modify_device_removed_when_the_adapter_is_closed(end: End) -> None:
    srq = new_srq(end)
    end.close()
    with nd_error(Status.DEVICE_REMOVED, match="modify"):
        srq.modify(16)


# GetNotifyAffinity


def test_get_notify_affinity_success_is_a_group_and_a_mask(end: End) -> None:
    group, mask = new_srq(end).get_notify_affinity()
    assert group == 0
    assert mask == sum(1 << cpu for cpu in os.sched_getaffinity(0) if cpu < 64)


def test_get_notify_affinity_device_removed_when_the_adapter_is_closed(end: End) -> None:
    srq = new_srq(end)
    end.close()
    with nd_error(Status.DEVICE_REMOVED, match="affinity"):
        srq.get_notify_affinity()
