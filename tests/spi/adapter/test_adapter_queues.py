# SPDX-License-Identifier: Apache-2.0
"""IND2Adapter: CreateSharedReceiveQueue and CreateQueuePair."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmnd import Status
from spi.adapter.adapter_kit import above, device_removed, maxima, refuses_bad_files
from spi.harness import End, nd_error, statuses
from spi.pair import Pair
from spi.remote import Ends

MakePair = Callable[..., Pair]


# Create: shared receive queues
def test_create_shared_receive_queue_success_up_to_the_limits(end: End) -> None:
    info = end.info
    for depth, sge in ((1, 1), (info.max_shared_receive_queue_depth, info.max_receive_sge)):
        with end.adapter.create_shared_receive_queue(depth, sge, depth // 2) as srq:
            srq.receive(None)


def test_create_shared_receive_queue_success_with_depth_zero_takes_receives_after_modify(
    end: End,
) -> None:
    with end.adapter.create_shared_receive_queue(0, 0) as srq:
        with nd_error(Status.NO_MORE_ENTRIES):
            srq.receive(None)
        srq.modify(1)
        srq.receive(None)
        with nd_error(Status.NO_MORE_ENTRIES):
            srq.receive(None)


def test_create_shared_receive_queue_invalid_parameter_3_when_the_depth_is_above_the_limit(
    end: End,
) -> None:
    limit = end.info.max_shared_receive_queue_depth
    with nd_error(Status.INVALID_PARAMETER_3, match=str(limit + 1)):
        end.adapter.create_shared_receive_queue(limit + 1)


def test_create_shared_receive_queue_invalid_parameter_4_when_the_sge_are_above_the_limit(
    end: End,
) -> None:
    limit = end.info.max_receive_sge
    with nd_error(Status.INVALID_PARAMETER_4, match=str(limit + 1)):
        end.adapter.create_shared_receive_queue(8, limit + 1)


def test_create_shared_receive_queue_insufficient_resources_when_memory_is_used_up(
    starving: Callable[..., None], end: End
) -> None:
    depth, sge = end.info.max_shared_receive_queue_depth, end.info.max_receive_sge
    with nd_error(Status.INSUFFICIENT_RESOURCES):
        starving("adapter", "create_shared_receive_queue", depth, sge)


def test_create_shared_receive_queue_invalid_handle_when_the_file_is_not_of_this_adapter(
    end: End, ends: Ends
) -> None:
    refuses_bad_files(end, ends, "create_shared_receive_queue")


def test_create_shared_receive_queue_device_removed_when_the_adapter_is_closed(end: End) -> None:
    device_removed(end, lambda: end.adapter.create_shared_receive_queue(8))


def without_receives(limits: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in limits.items() if "receive" not in name}


def test_create_queue_pair_success_with_defaults_and_its_context(end: End) -> None:
    context = object()
    with end.adapter.create_queue_pair(end.cq, end.cq, context=context) as qp:
        assert qp.context is context
        qp.receive(None)


def test_create_queue_pair_success_at_the_advertised_maxima(make_pair: MakePair) -> None:
    """Limits that are true: such a queue pair takes and moves all it promises."""
    pair = make_pair()
    for side in (pair.active, pair.passive):
        info = side.info
        assert info.max_receive_queue_depth > 0
    limits = maxima(pair.active.info)
    pair = make_pair(
        depth=limits["receive_depth"],
        sge=limits["max_receive_sge"],
        inline=limits["inline_size"],
        cq_depth=pair.active.info.max_completion_queue_depth,
    ).connect()
    sge, depth = limits["max_receive_sge"], limits["receive_depth"]
    source, sink = pair.active.memory(sge), pair.passive.memory(sge)
    source.put(bytes(range(1, sge + 1)))
    pair.passive.qp.receive([sink.sge(i, 1) for i in range(sge)])
    pair.active.qp.send([source.sge(i, 1) for i in range(sge)])
    assert statuses(pair.reap(pair.active)) == [Status.SUCCESS]
    assert pair.reap(pair.passive)[0].bytes_transferred == sge
    assert sink.get() == bytes(range(1, sge + 1))
    for number in range(depth):
        pair.active.qp.receive(None, number)
    pair.active.qp.flush()
    assert [c.request_context for c in pair.active.reap(depth)] == list(range(depth))


def test_create_queue_pair_success_with_every_value_zero(end: End) -> None:
    zeros = dict.fromkeys(maxima(end.info), 0)
    qp = end.adapter.create_queue_pair(end.cq, end.cq, **zeros)
    with nd_error(Status.NO_MORE_ENTRIES):
        qp.receive(None)


def test_create_success_with_the_integers_of_numpy(end: End) -> None:
    adapter, number = end.adapter, np.int64(8)
    cq = adapter.create_completion_queue(number)
    srq = adapter.create_shared_receive_queue(number, number, number)
    qp = adapter.create_queue_pair(cq, cq, **{name: np.uint8(3) for name in maxima(end.info)})
    for posted in range(3):
        qp.receive(None, posted)
    with nd_error(Status.NO_MORE_ENTRIES):
        qp.receive(None)
    limits = dict.fromkeys(without_receives(maxima(end.info)), number)
    adapter.create_queue_pair_with_srq(cq, cq, srq, **limits)
    cq.resize(number)
    srq.modify(number, number)
    assert len(adapter.allocate(number)) == 8
    assert cq.get_results(number) == []


@pytest.mark.parametrize("bad", [None, "8", 8.0, True, -1], ids=repr)
def test_create_invalid_parameters_when_a_number_is_none(end: End, bad: Any) -> None:
    adapter, cq = end.adapter, end.cq
    for status, call in (
        (Status.INVALID_PARAMETER_3, lambda: adapter.create_completion_queue(bad)),
        (Status.INVALID_PARAMETER_3, lambda: adapter.create_shared_receive_queue(bad)),
        (Status.INVALID_PARAMETER_4, lambda: adapter.create_shared_receive_queue(8, bad)),
        (Status.INVALID_PARAMETER_5, lambda: adapter.create_shared_receive_queue(8, 1, bad)),
        (Status.INVALID_PARAMETER_5, lambda: adapter.create_queue_pair(cq, cq, receive_depth=bad)),
        (Status.INVALID_PARAMETER_9, lambda: adapter.create_queue_pair(cq, cq, inline_size=bad)),
        (Status.INVALID_PARAMETER_1, lambda: adapter.allocate(bad)),
        (Status.INVALID_PARAMETER, lambda: cq.resize(bad)),
    ):
        with nd_error(status, match=re.escape(repr(bad))):
            call()


def test_create_queue_pair_success_deeper_than_its_completion_queue(end: End) -> None:
    cq = end.new_cq(2)
    end.adapter.create_queue_pair(cq, cq, receive_depth=64, initiator_depth=64).close()


def bad_queues(end: End, ends: Ends) -> list[Any]:
    closed = end.new_cq()
    closed.close()
    return [None, 17, object(), end.srq, closed, ends.here().cq]


def test_create_queue_pair_invalid_parameter_2_when_the_receive_queue_is_bad(
    end: End, ends: Ends
) -> None:
    for bad in bad_queues(end, ends):
        with nd_error(Status.INVALID_PARAMETER_2, match="create_queue_pair"):
            end.adapter.create_queue_pair(bad, end.cq)


def test_create_queue_pair_invalid_parameter_3_when_the_initiator_queue_is_bad(
    end: End, ends: Ends
) -> None:
    for bad in bad_queues(end, ends):
        with nd_error(Status.INVALID_PARAMETER_3, match="create_queue_pair"):
            end.adapter.create_queue_pair(end.cq, bad)


def test_create_queue_pair_invalid_parameter_5_when_the_receive_depth_is_above_the_limit(
    end: End,
) -> None:
    above(end, "receive_depth", Status.INVALID_PARAMETER_5)


def test_create_queue_pair_invalid_parameter_6_when_the_initiator_depth_is_above_the_limit(
    end: End,
) -> None:
    above(end, "initiator_depth", Status.INVALID_PARAMETER_6)


def test_create_queue_pair_invalid_parameter_7_when_the_receive_sge_are_above_the_limit(
    end: End,
) -> None:
    above(end, "max_receive_sge", Status.INVALID_PARAMETER_7)


def test_create_queue_pair_invalid_parameter_8_when_the_initiator_sge_are_above_the_limit(
    end: End,
) -> None:
    above(end, "max_initiator_sge", Status.INVALID_PARAMETER_8)


def test_create_queue_pair_invalid_parameter_9_when_the_inline_size_is_above_the_limit(
    end: End,
) -> None:
    above(end, "inline_size", Status.INVALID_PARAMETER_9)


def test_create_queue_pair_insufficient_resources_when_memory_is_used_up(
    starving: Callable[..., None], end: End
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match="create_queue_pair"):
        starving("self", "new_deepest_qp", False)


def test_create_queue_pair_device_removed_when_the_adapter_is_closed(end: End) -> None:
    cq = end.cq
    device_removed(end, lambda: end.adapter.create_queue_pair(cq, cq))


def test_create_queue_pair_with_srq_success_at_the_advertised_maxima(end: End) -> None:
    context, limits = object(), without_receives(maxima(end.info))
    with end.adapter.create_queue_pair_with_srq(
        end.cq, end.cq, end.srq, context=context, **limits
    ) as qp:
        assert qp.context is context


def test_create_queue_pair_with_srq_invalid_parameter_2_when_the_receive_queue_is_bad(
    end: End, ends: Ends
) -> None:
    for bad in bad_queues(end, ends):
        with nd_error(Status.INVALID_PARAMETER_2, match="create_queue_pair"):
            end.adapter.create_queue_pair_with_srq(bad, end.cq, end.srq)


def test_create_queue_pair_with_srq_invalid_parameter_3_when_the_initiator_queue_is_bad(
    end: End, ends: Ends
) -> None:
    for bad in bad_queues(end, ends):
        with nd_error(Status.INVALID_PARAMETER_3, match="create_queue_pair"):
            end.adapter.create_queue_pair_with_srq(end.cq, bad, end.srq)


def test_create_queue_pair_with_srq_invalid_parameter_4_when_the_shared_queue_is_bad(
    end: End, ends: Ends
) -> None:
    closed = end.adapter.create_shared_receive_queue(8)
    closed.close()
    for bad in (None, 17, object(), end.cq, closed, ends.here().srq):
        with nd_error(Status.INVALID_PARAMETER_4):
            end.adapter.create_queue_pair_with_srq(end.cq, end.cq, bad)


def above_with_srq(end: End, name: str, status: Status) -> None:
    limit = maxima(end.info)[name]
    with nd_error(status, match=str(limit + 1)):
        end.adapter.create_queue_pair_with_srq(end.cq, end.cq, end.srq, **{name: limit + 1})


def test_create_queue_pair_with_srq_invalid_parameter_6_when_the_depth_is_above_the_limit(
    end: End,
) -> None:
    above_with_srq(end, "initiator_depth", Status.INVALID_PARAMETER_6)


def test_create_queue_pair_with_srq_invalid_parameter_7_when_the_sge_are_above_the_limit(
    end: End,
) -> None:
    above_with_srq(end, "max_initiator_sge", Status.INVALID_PARAMETER_7)


def test_create_queue_pair_with_srq_invalid_parameter_8_when_the_inline_size_is_above_the_limit(
    end: End,
) -> None:
    above_with_srq(end, "inline_size", Status.INVALID_PARAMETER_8)


def test_create_queue_pair_with_srq_insufficient_resources_when_memory_is_used_up(
    starving: Callable[..., None], end: End
) -> None:
    with nd_error(Status.INSUFFICIENT_RESOURCES, match="create_queue_pair"):
        starving("self", "new_deepest_qp", True)


def test_create_queue_pair_with_srq_device_removed_when_the_adapter_is_closed(end: End) -> None:
    cq, srq = end.cq, end.srq
    device_removed(end, lambda: end.adapter.create_queue_pair_with_srq(cq, cq, srq))
