# SPDX-License-Identifier: Apache-2.0
"""IND2QueuePair: Bind and Invalidate; what windows do is in test_memory_window.py."""

import pytest

from shmnd import OpFlag, RequestType, Status
from spi.harness import (
    WAIT,
    contexts,
    final,
    nd_error,
    statuses,
)
from spi.pair import Pair
from spi.queues.queue_pair_kit import ended, post, saw_the_end, watched
from spi.remote import Ends


# Bind and Invalidate: the statuses; what windows do is in test_memory_window.py
def test_bind_success_with_any_of_its_flags(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(64)
    for flags in (0, 0x08, 0x10, 0x18, 0x1A):
        window = end.adapter.create_memory_window()
        end.qp.bind(buffer.mr, window, buffer.address, 64, flags, flags=flags)
        (bound,) = end.reap()
        assert (bound.status, bound.request_type) == (Status.SUCCESS, RequestType.BIND)
        assert bound.request_context == flags


def test_bind_connection_invalid_when_never_connected(pair: Pair) -> None:
    buffer = pair.active.memory(16)
    with nd_error(Status.CONNECTION_INVALID, match="bind"):
        post(pair.active, "bind", buffer)
    assert final(buffer.mr.deregister()) == Status.SUCCESS, "the window is not bound"


def test_bind_no_more_entries_when_depth_is_outstanding(patient: Pair) -> None:
    buffer = patient.active.memory(16)
    patient.active.fill_initiator_queue()
    with nd_error(Status.NO_MORE_ENTRIES, match="bind"):
        post(patient.active, "bind", buffer)
    assert final(buffer.mr.deregister()) == Status.SUCCESS, "the window is not bound"


def test_bind_access_violation_when_the_region_does_not_grant_writing(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16, 0)
    with nd_error(Status.ACCESS_VIOLATION, match="bind") as caught:
        post(end, "bind", buffer, flags=OpFlag.ALLOW_WRITE)
    assert isinstance(caught.value, PermissionError)
    assert end.leftover() == []
    connected.exchange()


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 17), (1, 16), (-1, 4), (16, 1), (1 << 40, 1), (16, -16)]
)
def test_bind_access_violation_when_the_range_is_outside_the_region(
    connected: Pair, offset: int, length: int
) -> None:
    end = connected.active
    buffer = end.memory(16)
    with nd_error(Status.ACCESS_VIOLATION):
        post(end, "bind", buffer, address=buffer.address + offset, length=length)
    assert end.leftover() == []
    connected.exchange()


def test_bind_access_violation_when_the_region_is_not_registered(connected: Pair) -> None:
    end = connected.active
    window, region = end.adapter.create_memory_window(), end.adapter.create_memory_region()
    with nd_error(Status.ACCESS_VIOLATION):
        end.qp.bind(region, window, 0x1000, 16, flags=OpFlag.ALLOW_READ)
    connected.exchange()


def test_bind_checks_its_arguments_when_the_peer_has_left(connected: Pair) -> None:
    """A request that is correct ends with CANCELED there; another one is refused as ever."""
    end = connected.active
    readable, unregistered = end.memory(16, 0), end.memory(16)
    assert final(unregistered.mr.deregister()) == Status.SUCCESS
    connected.hang_up(connected.passive)
    with nd_error(Status.ACCESS_VIOLATION, match="without ALLOW_LOCAL_WRITE"):
        post(end, "bind", readable, flags=OpFlag.ALLOW_WRITE)
    with nd_error(Status.ACCESS_VIOLATION, match="no registered buffer"):
        post(end, "bind", readable, memory_region=unregistered.mr)
    with nd_error(Status.ACCESS_VIOLATION, match="are not all within the region"):
        post(end, "bind", readable, length=17)
    window = end.adapter.create_memory_window()
    window.close()
    with nd_error(Status.INVALID_PARAMETER_3, match="the window is closed"):
        post(end, "bind", readable, memory_window=window)
    window = end.adapter.create_memory_window()
    post(end, "bind", readable, memory_window=window)
    assert statuses(end.reap()) == [Status.CANCELED], "those that were refused have no result"
    assert (window.remote_token, window.length) == (0, 0), "nothing is bound"


def test_bind_refuses_other_objects_and_objects_of_another_adapter(ends: Ends) -> None:
    pair = ends.pair("one").connect()
    end, other = pair.active, pair.passive
    near, far = end.memory(16), other.memory(16)
    window, foreign = end.adapter.create_memory_window(), other.adapter.create_memory_window()
    for bad in (far.mr, None, window):
        with nd_error(Status.INVALID_PARAMETER_2, match="bind"):
            end.qp.bind(bad, window, near.address, 16)
    for bad in (foreign, None, near.mr):
        with nd_error(Status.INVALID_PARAMETER_3, match="bind"):
            end.qp.bind(near.mr, bad, near.address, 16)
        with nd_error(Status.INVALID_PARAMETER_2, match="invalidate"):
            end.qp.invalidate(bad)
    assert end.leftover() == []
    pair.exchange()


@pytest.mark.parametrize("flags", [0x04, 0x20, 0x40, 0x80000000])
def test_bind_invalid_parameter_6_when_flags_are_unknown(connected: Pair, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_6, match="(?i)bind.*flags"):
        post(connected.active, "bind", connected.active.memory(16), flags=flags)
    connected.exchange()


def test_bind_completes_success_and_silently_if_asked(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    post(end, "bind", buffer, context="silent", flags=OpFlag.SILENT_SUCCESS | OpFlag.ALLOW_READ)
    post(end, "bind", buffer, context="loud", flags=OpFlag.READ_FENCE | OpFlag.ALLOW_READ)
    assert contexts(end.reap()) == ["loud"]
    assert end.leftover() == []


def test_bind_completes_canceled_when_flushed_behind_a_waiting_send(patient: Pair) -> None:
    end = patient.active
    end.qp.send(None, "waits")
    post(end, "bind", end.memory(16), context="behind")
    end.qp.flush()
    canceled = end.reap(2)
    assert contexts(canceled) == ["waits", "behind"]
    assert statuses(canceled) == [Status.CANCELED] * 2


def test_bind_completes_invalid_device_request_when_the_window_is_bound(
    connected: Pair,
) -> None:
    end = connected.active
    buffer = end.memory(16)
    window = connected.window(end, buffer, OpFlag.ALLOW_READ)
    notice = watched(connected.passive)
    post(end, "bind", buffer, memory_window=window, context="twice")
    post(end, "bind", buffer, context="behind")
    completions = connected.reap(end, 2)
    assert statuses(completions) == [Status.INVALID_DEVICE_REQUEST, Status.CANCELED]
    assert contexts(completions) == ["twice", "behind"]
    saw_the_end(connected, connected.passive, notice)


def test_invalidate_success_and_the_window_can_be_bound_again(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    window = connected.window(end, buffer, OpFlag.ALLOW_READ)
    for number in range(20):
        end.qp.invalidate(window, number)
        (done,) = end.reap()
        assert (done.status, done.request_type) == (Status.SUCCESS, RequestType.INVALIDATE)
        assert done.request_context == number
        post(end, "bind", buffer, memory_window=window)
        assert statuses(end.reap()) == [Status.SUCCESS]


def test_invalidate_connection_invalid_when_never_connected(pair: Pair) -> None:
    with nd_error(Status.CONNECTION_INVALID, match="invalidate"):
        post(pair.active, "invalidate", pair.active.memory(16))


def test_invalidate_no_more_entries_when_depth_is_outstanding(patient: Pair) -> None:
    end = patient.active
    buffer = end.memory(16)
    window = patient.window(end, buffer, OpFlag.ALLOW_READ)
    end.fill_initiator_queue()
    with nd_error(Status.NO_MORE_ENTRIES, match="invalidate"):
        end.qp.invalidate(window)
    with nd_error(Status.DEVICE_BUSY):
        buffer.mr.deregister()


def test_a_window_of_a_connection_that_the_peer_ended_is_not_bound(connected: Pair) -> None:
    """Its owner has not polled since."""
    end = connected.passive
    buffer = end.memory(16)
    window = connected.window(end, buffer, OpFlag.ALLOW_READ)
    connected.active.connector.disconnect().result(timeout=WAIT)
    assert final(buffer.mr.deregister()) == Status.SUCCESS
    assert window.length == 16  # it lives; its end would unbind it too


@pytest.mark.parametrize("flags", [0x04, 0x08, 0x10, 0x20, 0x40])
def test_invalidate_invalid_parameter_3_when_flags_are_unknown(connected: Pair, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_3, match="(?i)invalidate.*flags"):
        post(connected.active, "invalidate", connected.active.memory(16), flags=flags)
    connected.exchange()


def test_invalidate_completes_success_and_silently_if_asked(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    first = connected.window(end, buffer, OpFlag.ALLOW_READ)
    second = connected.window(end, buffer, OpFlag.ALLOW_READ)
    end.qp.invalidate(first, "silent", flags=OpFlag.SILENT_SUCCESS)
    end.qp.invalidate(second, "loud", flags=OpFlag.READ_FENCE)
    assert contexts(end.reap()) == ["loud"]
    assert end.leftover() == []


def test_invalidate_completes_canceled_when_flushed_behind_a_waiting_send(patient: Pair) -> None:
    end = patient.active
    window = patient.window(end, end.memory(16), OpFlag.ALLOW_READ)
    end.qp.send(None, "waits")
    end.qp.invalidate(window, "behind")
    end.qp.flush()
    canceled = end.reap(2)
    assert contexts(canceled) == ["waits", "behind"]
    assert statuses(canceled) == [Status.CANCELED] * 2


def test_invalidate_completes_invalid_device_request_when_the_window_is_unbound(
    connected: Pair,
) -> None:
    end = connected.active
    notice = watched(connected.passive)
    end.qp.invalidate(end.adapter.create_memory_window(), "unbound")
    end.qp.send(None, "behind")
    completions = connected.reap(end, 2)
    assert statuses(completions) == [Status.INVALID_DEVICE_REQUEST, Status.CANCELED]
    assert contexts(completions) == ["unbound", "behind"]
    saw_the_end(connected, connected.passive, notice)
    ended(connected, end, connected.passive)
