# SPDX-License-Identifier: Apache-2.0
"""Streams over several queue pairs, and one whose receiver grants credit, as in ndping.

With credit, a Send is posted only when the sender knows of a Receive for it: the receiver says
so, by an empty Send, each time it has posted half of its Receives again.
"""

import functools
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from . import bandwidth
from .lane import Lane, check

if TYPE_CHECKING:
    from shmnd import Result

    from .nd1_lane import Nd1Lane

_BATCH = 256


Loop = Callable[[int, bool], object]
"""So many messages; True on the side that sends."""


def stream(lanes: Sequence[Lane], *, credit: bool) -> Loop:
    """Return the loop that sends in turn over all lanes, which share their completion queues."""
    if len(lanes) == 1 and not credit:
        return functools.partial(bandwidth.stream, lanes[0])

    def loop(count: int, first: bool) -> None:
        if first:
            _send(lanes, count, credit)
        else:
            _receive(lanes, count, credit)
            bandwidth.send_acknowledgement(lanes[0])

    return loop


def rdma(lanes: Sequence[Lane], *, reading: bool) -> Loop:
    """Return the loop that reads or writes in turn over all lanes; the other side waits."""
    if len(lanes) == 1:
        return functools.partial(bandwidth.rdma, lanes[0], reading=reading)

    def loop(count: int, first: bool) -> None:
        if first:
            _rdma(lanes, count, reading)
            bandwidth.send_acknowledgement(lanes[0])
        else:
            bandwidth.receive_acknowledgement(lanes[0])

    return loop


def quota(lane: "Lane | Nd1Lane") -> int:
    """Return how many messages one credit stands for."""
    return max(lane.depths.receives // 2, 1)


def _send(lanes: Sequence[Lane], count: int, credit: bool) -> None:
    depth, step = lanes[0].depths.sends, quota(lanes[0])
    granted = lanes[0].depths.receives if credit else count
    rooms, credits = [depth] * len(lanes), [granted] * len(lanes)
    receive_cq, done = lanes[0].receive_cq, lanes[0].initiator_cq.wait
    left, outstanding, taken, sent = count, 0, 0, [0] * len(lanes)
    while left:
        for place, lane in enumerate(lanes):
            send, outgoing = lane.send, lane.outgoing
            burst = min(rooms[place], credits[place], left)
            for _ in repeat(None, burst):
                send(outgoing)
            rooms[place] -= burst
            credits[place] -= burst
            sent[place] += burst
            left -= burst
            outstanding += burst
        if outstanding:
            outstanding -= _add(done(_BATCH), rooms, 1)
            if credit:
                taken += _take(lanes, receive_cq.get_results(_BATCH), credits)
        elif left:
            taken += _take(lanes, lanes[0].arrived(_BATCH), credits)
    while outstanding:
        outstanding -= _add(done(_BATCH), rooms, 1)
    # Credits of several lanes and the word that all is there come in any order.
    coming = 1 + (sum(number // step for number in sent) if credit else 0)
    while taken < coming:
        taken += _take(lanes, lanes[0].arrived(_BATCH), credits)


def _take(lanes: Sequence[Lane], results: Sequence["Result"], credits: list[int]) -> int:
    for result in results:
        lane = lanes[result.queue_pair_context]
        lane.qp.receive(lane.incoming)
    return _add(results, credits, quota(lanes[0]))


def _add(results: Sequence["Result"], sums: list[int], step: int) -> int:
    """Add `step` to the sum of the lane of each result; return how many there were."""
    number = check(results)
    if len(sums) == 1:
        sums[0] += step * number
    else:
        for result in results:
            sums[result.queue_pair_context] += step
    return number


def _receive(lanes: Sequence[Lane], count: int, credit: bool) -> None:
    arrived, incoming = lanes[0].arrived, lanes[0].incoming
    posts = [lane.qp.receive for lane in lanes]
    taken, step = [0] * len(lanes), quota(lanes[0])
    left = count
    while left:
        batch = arrived(min(left, _BATCH))
        for result in batch:
            if result.status:
                check([result])
            place = result.queue_pair_context
            posts[place](incoming)
            taken[place] += 1
            if credit and taken[place] == step:
                taken[place] = 0
                lanes[place].qp.send(None)
                check(lanes[0].initiator_cq.wait(1))
        left -= len(batch)


def _rdma(lanes: Sequence[Lane], count: int, reading: bool) -> None:
    depth, done = lanes[0].depths.sends, lanes[0].initiator_cq.wait
    rooms, left = [depth] * len(lanes), count
    while left:
        for place, lane in enumerate(lanes):
            post = lane.qp.read if reading else lane.write
            local, address, token = lane.outgoing, lane.remote_address, lane.remote_token
            burst = min(rooms[place], left)
            for _ in repeat(None, burst):
                post(local, address, token)
            rooms[place] -= burst
            left -= burst
        _add(done(_BATCH), rooms, 1)
    while min(rooms) < depth:
        _add(done(_BATCH), rooms, 1)
