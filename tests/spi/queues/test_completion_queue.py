# SPDX-License-Identifier: Apache-2.0
"""IND2CompletionQueue: results, notifications without a lost wake-up, resizing, lifetime."""

import os
import resource
import select
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import CqNotify, NdError, OpFlag, Status
from spi import roles
from spi.harness import (
    WAIT,
    End,
    Late,
    contexts,
    final,
    nd_error,
    statuses,
    wait_completion,
    wait_until,
)
from spi.pair import Pair
from spi.remote import Ends

MakePair = Callable[..., Pair]


def complete(end: End, count: int = 1) -> None:
    """Put completions into the queue without a peer: Receives that a Flush cancels."""
    for number in range(count):
        end.qp.receive(None, number)
    end.qp.flush()


def deliver(pair: Pair, flags: int = 0, context: Any = None) -> None:
    """A message for the active end, whose Receive is posted first."""
    pair.active.qp.receive(None, context)
    pair.passive.qp.send(None, flags=flags)


# GetResults


def test_get_results_success_is_an_empty_list_when_nothing_completed(end: End) -> None:
    assert end.cq.get_results() == []
    assert end.cq.get_results(1) == []


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_get_results_success_returns_at_most_max(end: End, count: int) -> None:
    complete(end, 5)
    assert len(end.cq.get_results(count)) == count
    rest = end.cq.get_results(64)
    assert [r.request_context for r in rest] == list(range(count, 5))
    assert end.cq.get_results() == []


def test_get_results_success_distinguishes_several_queue_pairs(end: End) -> None:
    pairs = {name: end.new_qp(context=name) for name in ("red", "green", "blue")}
    for name, qp in pairs.items():
        for number in range(3):
            qp.receive(None, (name, number))
    for qp in pairs.values():
        qp.flush()
    results = end.reap(9)
    for name in pairs:
        mine = [r for r in results if r.queue_pair_context == name]
        assert contexts(mine) == [(name, number) for number in range(3)]


def test_get_results_success_returns_each_result_to_one_thread(end: End) -> None:
    count = 60
    complete(end, count)
    taken: list[Any] = []

    def reap() -> None:
        while got := end.cq.get_results(1):
            taken.extend(r.request_context for r in got)

    threads = [threading.Thread(target=reap) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(taken) == list(range(count))


def test_get_results_success_of_a_queue_pair_that_is_closed(end: End) -> None:
    marker, owner = object(), object()
    qp = end.new_qp(context=owner)
    qp.receive(None, marker)
    qp.close()
    (result,) = end.cq.get_results()
    assert result.status == Status.CANCELED
    assert result.request_context is marker
    assert result.queue_pair_context is owner


def test_get_results_success_of_more_than_the_depth(end: End) -> None:
    cq = end.new_cq(2)
    qp = end.new_qp(receive_cq=cq, initiator_cq=cq)
    for number in range(64):
        qp.receive(None, number)
    qp.flush()
    assert contexts(wait_completion(cq, 64)) == list(range(64))


# wait


def test_wait_returns_nothing_when_the_time_ends(end: End) -> None:
    assert end.cq.wait(timeout=0) == []
    assert end.cq.wait(timeout=0.01) == []


def test_wait_returns_available_results_up_to_its_maximum(end: End) -> None:
    complete(end, 3)
    assert len(end.cq.wait(max=2, timeout=WAIT)) == 2
    assert len(end.cq.wait(timeout=WAIT)) == 1


def test_wait_wakes_up_when_something_completes(connected: Pair) -> None:
    end = connected.active
    end.qp.receive(None, "woken")
    waiting = threading.Thread(target=lambda: results.extend(end.cq.wait(timeout=2 * WAIT)))
    results: list[Any] = []
    waiting.start()
    connected.passive.qp.send(None)
    waiting.join(WAIT)
    assert not waiting.is_alive()
    assert [r.request_context for r in results] == ["woken"]


def test_wait_is_over_when_the_queue_is_closed(end: End) -> None:
    queue = end.cq  # made before the thread begins, which would make another one
    ended: list[Any] = []

    def wait() -> None:
        with nd_error(Status.INVALID_HANDLE, match="closed"):
            queue.wait(timeout=2 * WAIT)
        ended.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: queue._attended, "the thread sleeps")
    queue.close()
    waiting.join(WAIT)
    assert not waiting.is_alive()
    assert ended == [True]


# Notify


def test_notify_pending_until_something_completes(connected: Pair) -> None:
    end = connected.active
    notice = end.cq.notify()
    assert end.still_pending(notice)
    deliver(connected)
    assert final(notice) == Status.SUCCESS
    assert statuses(end.reap()) == [Status.SUCCESS]


@pytest.mark.parametrize("kind", [CqNotify.ANY, CqNotify.SOLICITED])
def test_notify_success_at_a_completion_that_failed(end: End, kind: CqNotify) -> None:
    notice = end.cq.notify(kind)
    complete(end)
    assert final(notice) == Status.SUCCESS
    assert statuses(end.reap()) == [Status.CANCELED]


def test_notify_success_at_once_for_earlier_completions(end: End) -> None:
    complete(end, 2)
    assert final(end.cq.notify()) == Status.SUCCESS
    assert len(end.cq.get_results(2)) == 2


def test_notify_success_when_entries_came_after_a_short_get_results(end: End) -> None:
    complete(end, 1)
    assert len(end.cq.get_results(2)) == 1
    complete(end, 1)
    assert final(end.cq.notify()) == Status.SUCCESS
    assert len(end.cq.get_results(2)) == 1


def test_notify_success_of_all_that_are_outstanding_by_one_event(connected: Pair) -> None:
    end = connected.active
    notices = [end.cq.notify() for _ in range(5)]
    deliver(connected)
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 5
    assert len(end.reap()) == 1


def test_notify_pending_when_the_completion_has_triggered_before(connected: Pair) -> None:
    end = connected.active
    first = end.cq.notify()
    deliver(connected, context="one")
    assert final(first) == Status.SUCCESS
    second = end.cq.notify()
    assert end.still_pending(second)
    deliver(connected, context="two")
    assert final(second) == Status.SUCCESS
    assert contexts(end.reap(2)) == ["one", "two"]


def test_notify_pending_when_all_completions_were_retrieved(end: End) -> None:
    complete(end, 3)
    assert len(end.reap(3)) == 3
    notice = end.cq.notify()
    assert end.still_pending(notice)
    complete(end)
    assert final(notice) == Status.SUCCESS


def test_notify_success_again_from_within_the_handling_of_the_last_one(connected: Pair) -> None:
    end = connected.active
    notice = end.cq.notify()
    for number in range(50):
        deliver(connected, context=number)
        assert final(notice) == Status.SUCCESS
        notice = end.cq.notify()
        assert contexts(end.reap()) == [number]
    assert end.still_pending(notice)


def test_notify_success_never_loses_a_wake_up(connected: Pair) -> None:
    end, count = connected.active, 300
    for number in range(count):
        end.qp.receive(None, number)
        connected.passive.qp.send(None, flags=OpFlag.SILENT_SUCCESS)
        seen: list[Any] = []
        while not seen:
            notice = end.cq.notify()
            assert final(notice) == Status.SUCCESS
            seen = end.cq.get_results()
        assert [r.request_context for r in seen] == [number]


@pytest.mark.parametrize("size", [100, 5000, 60_000, 1 << 20])
def test_notify_success_never_loses_a_wake_up_in_a_stream(make_pair: MakePair, size: int) -> None:
    pair = make_pair(rnr_timeout=30.0).connect()
    count = 400 if size < 1 << 20 else 150
    pair.play(roles.stream, roles.take_stream, (size, count), (size, count))


def test_notify_pending_of_solicited_until_a_solicited_message(connected: Pair) -> None:
    end = connected.active
    notice = end.cq.notify(CqNotify.SOLICITED)
    deliver(connected, context="plain")
    assert contexts(end.reap()) == ["plain"]
    assert end.still_pending(notice)
    deliver(connected, OpFlag.SEND_AND_SOLICIT_EVENT, "solicited")
    assert final(notice) == Status.SUCCESS
    assert contexts(end.reap()) == ["solicited"]


def test_notify_pending_of_solicited_after_completions_of_the_initiator(connected: Pair) -> None:
    end = connected.active
    notice = end.cq.notify(CqNotify.SOLICITED)
    connected.passive.qp.receive(None)
    end.qp.send(None, flags=OpFlag.SEND_AND_SOLICIT_EVENT)
    assert statuses(connected.reap(end)) == [Status.SUCCESS]
    assert end.still_pending(notice)


def test_notify_success_of_solicited_at_once_for_a_solicited_entry(connected: Pair) -> None:
    end = connected.active
    deliver(connected, OpFlag.SEND_AND_SOLICIT_EVENT, "solicited")
    end.gather(WAIT)
    end.take()
    # Retrieved entries do not count, so a second one that stays in the queue is needed.
    deliver(connected, OpFlag.SEND_AND_SOLICIT_EVENT, "again")
    assert final(end.cq.notify(CqNotify.SOLICITED)) == Status.SUCCESS
    assert contexts(end.reap()) == ["again"]


def test_notify_success_of_solicited_too_when_any_is_asked_later(connected: Pair) -> None:
    end = connected.active
    notices = [end.cq.notify(CqNotify.SOLICITED), end.cq.notify(CqNotify.ANY)]
    deliver(connected)
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 2


def test_notify_success_of_solicited_too_when_any_was_asked_before(connected: Pair) -> None:
    end = connected.active
    notices = [end.cq.notify(CqNotify.ANY), end.cq.notify(CqNotify.SOLICITED)]
    deliver(connected)
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 2


def test_notify_pending_of_errors_whatever_completes(connected: Pair) -> None:
    end = connected.active
    notice = end.cq.notify(CqNotify.ERRORS)
    deliver(connected)
    assert statuses(end.reap()) == [Status.SUCCESS]
    complete(end, 2)
    assert statuses(end.reap(2)) == [Status.CANCELED] * 2
    assert end.still_pending(notice)


def test_notify_success_of_errors_too_when_any_is_outstanding(connected: Pair) -> None:
    end = connected.active
    notices = [end.cq.notify(CqNotify.ERRORS), end.cq.notify(CqNotify.ANY)]
    deliver(connected)
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 2


def test_notify_success_when_a_whole_flush_is_queued(end: End) -> None:
    notice = end.cq.notify()
    complete(end, 40)
    assert final(notice) == Status.SUCCESS
    assert len(end.cq.get_results(40)) == 40


def test_notify_success_at_a_fault_of_the_peer(connected: Pair) -> None:
    end = connected.active
    end.qp.receive(None)
    notice = end.cq.notify()
    connected.passive.qp.invalidate(connected.passive.adapter.create_memory_window())
    assert connected.settle(notice, end) == Status.SUCCESS
    assert statuses(end.reap()) == [Status.CANCELED]


def test_notify_success_when_the_process_of_the_peer_dies(
    ends: Ends, kill: Callable[[], int]
) -> None:
    pair = ends.pair("two").connect()
    pair.active.qp.receive(None)
    notice = pair.active.cq.notify()
    assert pair.active.still_pending(notice)
    kill()
    assert final(notice) == Status.SUCCESS
    assert statuses(pair.active.reap()) == [Status.CANCELED]


def test_notify_canceled_when_cancelled(end: End) -> None:
    notices = [end.cq.notify(kind) for kind in CqNotify]
    end.cq.cancel_overlapped_requests()
    assert all(notice.done() for notice in notices)
    assert [final(notice) for notice in notices] == [Status.CANCELED] * 3
    after = end.cq.notify()
    assert end.still_pending(after), "the queue stays usable, and nothing was triggered"
    complete(end)
    assert final(after) == Status.SUCCESS


def test_notify_canceled_when_the_queue_is_closed(end: End) -> None:
    cq = end.new_cq()
    notice = cq.notify()
    cq.close()
    assert final(notice) == Status.CANCELED


def test_notify_device_removed_when_the_adapter_is_closed(end: End) -> None:
    cq, notice = end.cq, end.cq.notify()
    end.close()
    assert final(notice) == Status.CANCELED
    with nd_error(Status.DEVICE_REMOVED, match="notify"):
        cq.notify()


@pytest.mark.parametrize("kind", [3, -1, 0xFFFFFFFF])
def test_notify_invalid_parameter_1_when_the_type_is_unknown(end: End, kind: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_1, match=f"notify.*{kind}") as caught:
        end.cq.notify(kind)
    assert isinstance(caught.value, ValueError)
    assert end.file.poll() == []


@pytest.mark.active_end_here
def test_fileno_is_readable_after_an_armed_notify_completed(connected: Pair) -> None:
    end = connected.active
    for number in range(3):
        notice = end.cq.notify()
        deliver(connected, context=number)
        wait_readable(end.cq.fileno())
        assert final(notice) == Status.SUCCESS
        assert contexts(end.reap()) == [number]


@pytest.mark.active_end_here
def test_fileno_stays_readable_where_other_polls_have_taken_the_rings(connected: Pair) -> None:
    end = connected.active
    fileno = end.cq.fileno()
    notice = end.cq.notify()
    deliver(connected, context="told")
    assert final(notice) == Status.SUCCESS
    for _ in range(3):
        end.adapter._engine.progress()
    assert select.select([fileno], [], [], 0)[0]
    assert contexts(end.reap()) == ["told"]


def wait_readable(fileno: int) -> None:
    if not select.select([fileno], [], [], WAIT)[0]:
        raise Late("the descriptor did not become readable")


# Resize


@pytest.mark.parametrize("depth", [1, 2, 1000])
def test_resize_success_keeps_queued_results(end: End, depth: int) -> None:
    complete(end, 1)
    end.cq.resize(depth)
    assert contexts(end.reap()) == [0]
    complete(end, 8)
    assert contexts(end.reap(8)) == list(range(8))


def test_resize_success_to_the_maximum(end: End) -> None:
    end.cq.resize(end.info.max_completion_queue_depth)
    complete(end, 3)
    assert len(end.reap(3)) == 3


def test_resize_success_under_traffic(connected: Pair) -> None:
    end, depths = connected.active, [4, 500, 16, 64, 3, 1000]
    for number in range(60):
        deliver(connected, context=number)
        with_results = depths[number % len(depths)]
        end.cq.resize(with_results)
        assert contexts(connected.reap(end)) == [number]
        assert statuses(connected.reap(connected.passive)) == [Status.SUCCESS]


def test_resize_success_keeps_a_pending_notify(end: End) -> None:
    notice = end.cq.notify()
    end.cq.resize(7)
    assert end.still_pending(notice)
    complete(end)
    assert final(notice) == Status.SUCCESS


def test_resize_invalid_parameter_when_the_depth_is_zero(end: End) -> None:
    with nd_error(Status.INVALID_PARAMETER, match="resize.*0"):
        end.cq.resize(0)


def test_resize_invalid_parameter_when_the_depth_is_above_the_limit(end: End) -> None:
    limit = end.info.max_completion_queue_depth
    with nd_error(Status.INVALID_PARAMETER, match=f"resize.*{limit + 1}.*{limit}"):
        end.cq.resize(limit + 1)
    complete(end)
    assert len(end.reap()) == 1


def test_resize_buffer_overflow_when_more_results_are_queued(end: End) -> None:
    complete(end, 5)
    with nd_error(Status.BUFFER_OVERFLOW, match="resize"):
        end.cq.resize(4)
    assert contexts(end.reap(5)) == list(range(5))
    end.cq.resize(4)


def test_resize_insufficient_resources_when_memory_is_used_up(
    starving: Callable[..., None], end: End
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match=r"^CompletionQueue\.resize: no memory"):
        starving("cq", "resize", end.info.max_completion_queue_depth)


@pytest.mark.parametrize(("owner", "kind"), [("cq", "CompletionQueue"), ("file", "OverlappedFile")])
def test_a_descriptor_that_cannot_be_made_names_the_call(
    starving: Callable[..., None], owner: str, kind: str
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match=rf"^{kind}\.fileno: .*ulimit -n"):
        starving(owner, "fileno", limit=resource.RLIMIT_NOFILE)


def test_resize_device_removed_when_the_adapter_is_closed(end: End) -> None:
    cq = end.cq
    end.close()
    with nd_error(Status.DEVICE_REMOVED, match="resize"):
        cq.resize(10)


# GetNotifyAffinity


def test_get_notify_affinity_success_is_a_group_and_a_mask(end: End) -> None:
    group, mask = end.cq.get_notify_affinity()
    assert group == 0
    assert mask == sum(1 << cpu for cpu in os.sched_getaffinity(0) if cpu < 64)


def test_get_notify_affinity_device_removed_when_the_adapter_is_closed(end: End) -> None:
    cq = end.cq
    end.close()
    with nd_error(Status.DEVICE_REMOVED, match="affinity"):
        cq.get_notify_affinity()


# Lifetime


def test_close_before_the_queue_pair_that_uses_it(connected: Pair) -> None:
    end = connected.active
    cq, qp = end.cq, end.qp
    qp.receive(None)
    cq.close()
    cq.close()
    connected.passive.qp.receive(None)
    qp.close()
    assert statuses(connected.passive.reap()) == [Status.CANCELED]
    with pytest.raises(NdError):
        cq.notify()


def test_close_with_a_with_block(end: End) -> None:
    with end.new_cq() as cq:
        notice = cq.notify()
    assert final(notice) == Status.CANCELED
