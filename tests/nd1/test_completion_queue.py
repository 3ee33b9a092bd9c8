# SPDX-License-Identifier: Apache-2.0
"""INDCompletionQueue."""

import resource
import time
from pathlib import Path
from typing import Any

import pytest

import shmnd.nd1 as nd
from nd1.ends import End, Pair
from nd1.test_adapter import at_the_limit
from shmnd import CqNotify, Status
from spi.harness import WAIT, nd_error, outcome


def test_get_results_success_gives_the_callers_objects_back(connected: Pair) -> None:
    """In the order of posting, each direction for itself; filled, and the caller's again."""
    source, sink = connected.active.memory(64), connected.passive.memory(64)
    incoming, outgoing = [nd.Result() for _ in range(5)], [nd.Result() for _ in range(5)]
    for result in incoming:
        connected.passive.endpoint.receive(result, sink.sge())
    for length, result in enumerate(outgoing):
        connected.active.endpoint.send(result, source.sge(0, length))
    for end, posted in ((connected.active, outgoing), (connected.passive, incoming)):
        taken = end.reap(5)
        assert all(one is other for one, other in zip(taken, posted, strict=True))
        assert [result.status for result in taken] == [Status.SUCCESS] * 5
        assert [result.bytes_transferred for result in taken] == list(range(5))
    assert connected.active.cq.get_results(8) == []


def test_get_results_success_with_one_object_in_two_requests(connected: Pair) -> None:
    """A16: each completion overwrites it and gives it back again."""
    both = nd.Result()
    sink = connected.passive.memory(8)
    connected.passive.endpoint.receive(both, sink.sge())
    connected.passive.endpoint.receive(both, sink.sge())
    for data in (b"abc", b"de"):
        connected.active.endpoint.send(nd.Result(), nd.Sge(data, len(data), None))
    assert connected.passive.reap(2) == [both, both]
    assert both.bytes_transferred == 2


def test_get_results_success_of_a_subclass_with_its_own_data(connected: Pair) -> None:
    class Request(nd.Result):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    request = Request("mine")
    assert request.status is Status.PENDING
    connected.passive.endpoint.receive(request, None)
    connected.active.endpoint.send(nd.Result(), None)
    (taken,) = connected.passive.reap()
    assert taken is request
    assert request.name == "mine"


def test_get_results_success_of_a_released_endpoint(connected: Pair) -> None:
    result = nd.Result()
    end = connected.active
    end.endpoint.receive(result, None)
    end.endpoint.close()
    assert end.reap() == [result]
    assert result.status is Status.CANCELED


def test_resize_success_loses_nothing(connected: Pair) -> None:
    end = connected.active
    results = [nd.Result() for _ in range(8)]
    for result in results:
        end.endpoint.receive(result, None)
    end.endpoint.flush()
    end.cq.resize(8)
    end.cq.resize(end.adapter.query().max_cq_entries)
    assert end.reap(8) == results


@pytest.mark.parametrize("entries", [0, 65537])
def test_resize_invalid_parameter_when_it_cannot_be(end: End, entries: int) -> None:
    with nd_error(Status.INVALID_PARAMETER, match="resize"):
        end.cq.resize(entries)


def test_resize_buffer_overflow_when_more_is_queued(connected: Pair) -> None:
    end = connected.active
    for _ in range(4):
        end.endpoint.receive(nd.Result(), None)
    end.endpoint.flush()
    with nd_error(Status.BUFFER_OVERFLOW):
        end.cq.resize(3)
    assert len(end.reap(4)) == 4


def test_resize_insufficient_resources_when_memory_is_used_up(end: End) -> None:
    queues = [end.adapter.create_completion_queue(1) for _ in range(60)]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096

    def all_of_them() -> None:
        for cq in queues:
            cq.resize(65536)

    status = at_the_limit(resource.RLIMIT_AS, used + (1 << 18), all_of_them)
    assert status is Status.INSUFFICIENT_RESOURCES
    all_of_them()


def test_resize_device_removed_when_the_adapter_is_closed(end: End) -> None:
    cq = end.cq
    end.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        cq.resize(8)


def test_notify_success_at_the_next_completion(connected: Pair) -> None:
    end = connected.passive
    end.endpoint.receive(nd.Result(), None)
    waiting = [end.cq.notify(CqNotify.ANY) for _ in range(2)]
    connected.active.endpoint.send(nd.Result(), None)
    for each in waiting:
        each.result(WAIT)
    assert len(end.reap()) == 1


def test_notify_success_at_once_for_earlier_completions(connected: Pair) -> None:
    end = connected.active
    end.endpoint.receive(nd.Result(), None)
    end.endpoint.flush()
    assert outcome(end.cq.notify, CqNotify.ANY) is Status.SUCCESS


def test_notify_success_for_a_solicited_message_only(connected: Pair) -> None:
    end = connected.passive
    for _ in range(2):
        end.endpoint.receive(nd.Result(), None)
    waiting = end.cq.notify(CqNotify.SOLICITED)
    connected.active.endpoint.send(nd.Result(), None)
    time.sleep(0.02)
    assert not waiting.done()
    connected.active.endpoint.send(nd.Result(), None, 0x4)
    waiting.result(WAIT)


def test_notify_pending_until_there_is_something(end: End) -> None:
    assert end.cq.notify(CqNotify.ERRORS).status is Status.PENDING


def test_notify_canceled_by_a_cancel_and_by_the_end(end: End) -> None:
    first = end.cq.notify()
    end.cq.cancel_overlapped_requests()
    second = end.cq.notify()
    end.cq.close()
    assert first.status is second.status is Status.CANCELED


def test_notify_device_removed_when_the_adapter_is_closed(end: End) -> None:
    cq = end.cq
    end.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        cq.notify()


@pytest.mark.parametrize("kind", [3, -1, "any"])
def test_notify_invalid_parameter_1_when_the_type_is_none(end: End, kind: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_1):
        end.cq.notify(kind)
