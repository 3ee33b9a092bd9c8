# SPDX-License-Identifier: Apache-2.0
"""Streams over several queue pairs, and one whose receiver grants credit, as in ndping.

With credit, a Send is posted only when the sender knows of a Receive for it: the receiver says
so, by an empty Send, each time it has posted half of its Receives again.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from .bandwidth import receive_acknowledgement, send_acknowledgement
from .lane import Lane, check

if TYPE_CHECKING:
    from shmnd import Result

_BATCH = 256


def stream(lanes: Sequence[Lane], count: int, first: bool, *, credit: bool) -> None:
    """Send `count` messages in turn over all lanes, which share their completion queues."""
    if first:
        _send(lanes, count, credit)
        receive_acknowledgement(lanes[0])
    else:
        _receive(lanes, count, credit)
        send_acknowledgement(lanes[0])


def rdma(lanes: Sequence[Lane], count: int, first: bool, *, reading: bool) -> None:
    """Read or Write `count` times in turn over all lanes; the other side waits for the end."""
    if not first:
        receive_acknowledgement(lanes[0])
        return
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
    send_acknowledgement(lanes[0])


def quota(lane: Lane) -> int:
    """Give how many messages one credit stands for."""
    return max(lane.depths.receives // 2, 1)


def _send(lanes: Sequence[Lane], count: int, credit: bool) -> None:
    depth, step = lanes[0].depths.sends, quota(lanes[0])
    granted = lanes[0].depths.receives if credit else count
    rooms, credits = [depth] * len(lanes), [granted] * len(lanes)
    receive_cq, initiator_cq = lanes[0].receive_cq, lanes[0].initiator_cq
    left = count
    while left:
        for place, lane in enumerate(lanes):
            send, outgoing = lane.send, lane.outgoing
            burst = min(rooms[place], credits[place], left)
            for _ in repeat(None, burst):
                send(outgoing)
            rooms[place] -= burst
            credits[place] -= burst
            left -= burst
        _add(initiator_cq.get_results(_BATCH), rooms, 1)
        if credit and left:
            stuck = not any(credits) and min(rooms) == depth
            _take(lanes, lanes[0].arrived(1) if stuck else receive_cq.get_results(_BATCH), credits)
    while min(rooms) < depth:
        _add(initiator_cq.wait(_BATCH), rooms, 1)
    # One by one: behind the last credit of a run comes the acknowledgement.
    while credit and min(credits) <= granted - step:
        _take(lanes, lanes[0].arrived(1), credits)


def _take(lanes: Sequence[Lane], results: Sequence["Result"], credits: list[int]) -> None:
    _add(results, credits, quota(lanes[0]))
    for result in results:
        lane = lanes[result.queue_pair_context]
        lane.qp.receive(lane.incoming)


def _add(results: Sequence["Result"], sums: list[int], step: int) -> None:
    if len(sums) == 1:
        sums[0] += step * check(results)
        return
    for result in results:
        if result.status:
            check([result])
        sums[result.queue_pair_context] += step


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
