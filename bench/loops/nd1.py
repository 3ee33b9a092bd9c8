# SPDX-License-Identifier: Apache-2.0
"""The loops in Python through version 1 of the interface.

They are those of `latency`, `bandwidth` and `flow`, turn by turn, so that what they take longer is
what version 1 costs. A result object of the caller's goes with each request, and is used again
when it came back.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

from . import latency
from .bandwidth import receive_acknowledgement, send_acknowledgement
from .flow import quota
from .lane import MARKS, check
from .latency import due_times, rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..measure.reading import Stamps
    from .nd1_lane import Nd1Lane, Ticket

    Loop = Callable[[int, bool], object]

_BATCH = 256


def pingpong(lane: Nd1Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Send and Receive to and fro; `count` rounds from turn to turn, so one more altogether."""
    send, receive = lane.endpoint.send, lane.endpoint.receive
    arrived, done = lane.arrived, lane.initiator_cq.get_results
    outgoing, incoming, sent = lane.outgoing, lane.incoming, lane.sent
    if first:
        send(sent, outgoing)
        _reap(lane)
    for _ in rounds(count, stamps) if first else range(count + 1):
        (result,) = arrived(1)
        if result.status:
            check([result])
        send(sent, outgoing)
        receive(result, incoming)
        if not check(done(1)):
            _reap(lane)
    if first:
        (result,) = arrived(1)
        check([result])
        receive(result, incoming)


def write_pingpong(lane: Nd1Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Write to and fro, one round more than `count` as above; no target makes any call."""
    write, written = lane.endpoint.write, lane.initiator_cq.get_results
    outgoing, target, sent = lane.outgoing, lane.target, lane.tickets[0]
    inbox, outbox = lane.inbox.data, lane.outbox.data
    last = len(inbox) - 1
    start = lane.first_mark(count + 1) - 1
    marks = islice(cycle(range(1, MARKS + 1)), start, start + count + 1)
    if first:
        mark = next(marks)
        outbox[last] = mark
        write(sent, outgoing, target, 0)
        for following, _ in zip(marks, rounds(count, stamps), strict=True):
            if not check(written(1)):
                _reap(lane)
            while inbox[last] != mark:
                pass
            mark = outbox[last] = following
            write(sent, outgoing, target, 0)
        _reap(lane)
        while inbox[last] != mark:
            pass
    else:
        for mark in marks:
            while inbox[last] != mark:
                pass
            outbox[last] = mark
            write(sent, outgoing, target, 0)
            if not check(written(1)):
                _reap(lane)


def read(lane: Nd1Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Read from the other side, which makes no call until all is done."""
    if not first:
        receive_acknowledgement(lane)
        return
    post, done = lane.endpoint.read, lane.initiator_cq.get_results
    local, target, sent = lane.outgoing, lane.target, lane.tickets[0]
    for _ in rounds(count, stamps):
        post(sent, local, target, 0)
        if not check(done(1)):
            _reap(lane)
    send_acknowledgement(lane)


# -- the same in an open loop, as in `latency` --


def paced_pingpong(lane: Nd1Lane, count: int, rate: float, times: Stamps) -> None:
    """Send and Receive to and fro, one turn more than `count` as above."""
    send, receive, clock = lane.endpoint.send, lane.endpoint.receive, latency.clock_ns
    arrived, done = lane.arrived, lane.initiator_cq.get_results
    outgoing, incoming, sent = lane.outgoing, lane.incoming, lane.sent
    for place, due in enumerate(due_times(count + 1, rate)):
        send(sent, outgoing)
        (result,) = arrived(1)
        times[place] = clock() - due
        if result.status:
            check([result])
        receive(result, incoming)
        if not check(done(1)):
            _reap(lane)


def paced_write_pingpong(lane: Nd1Lane, count: int, rate: float, times: Stamps) -> None:
    """Write to and fro, one turn more than `count` as above."""
    write, written, clock = lane.endpoint.write, lane.initiator_cq.get_results, latency.clock_ns
    outgoing, target, sent = lane.outgoing, lane.target, lane.tickets[0]
    inbox, outbox = lane.inbox.data, lane.outbox.data
    last = len(inbox) - 1
    mark = lane.first_mark(count + 1)
    for place, due in enumerate(due_times(count + 1, rate)):
        outbox[last] = mark
        write(sent, outgoing, target, 0)
        while inbox[last] != mark:
            pass
        times[place] = clock() - due
        mark = mark % MARKS + 1
        if not check(written(1)):
            _reap(lane)


def paced_read(lane: Nd1Lane, count: int, rate: float, times: Stamps) -> None:
    """Read from the other side, one turn more than `count` for as many times as above."""
    post, done, clock = lane.endpoint.read, lane.initiator_cq.wait, latency.clock_ns
    local, target, sent = lane.outgoing, lane.target, lane.tickets[0]
    for place, due in enumerate(due_times(count + 1, rate)):
        post(sent, local, target, 0)
        results = done(1)
        times[place] = clock() - due
        check(results)
    send_acknowledgement(lane)


# -- streams, over one endpoint or several that share their completion queues --


def stream(lanes: Sequence[Nd1Lane], *, credit: bool) -> Loop:
    """Return the loop that sends in turn over all lanes."""

    def loop(count: int, first: bool) -> None:
        if first:
            _send(lanes, count, credit)
        elif credit or len(lanes) > 1:
            _receive(lanes, count, credit)
        else:
            _receive_plainly(lanes[0], count)

    return loop


def rdma(lanes: Sequence[Nd1Lane], *, reading: bool) -> Loop:
    """Return the loop that reads or writes in turn over all lanes; the other side waits."""

    def loop(count: int, first: bool) -> None:
        if first:
            _rdma(lanes, count, reading)
            send_acknowledgement(lanes[0])
        else:
            receive_acknowledgement(lanes[0])

    return loop


def _send(lanes: Sequence[Nd1Lane], count: int, credit: bool) -> None:
    step, done = quota(lanes[0]), lanes[0].initiator_cq.wait
    idle = [[*lane.tickets] for lane in lanes]
    credits = [lanes[0].depths.receives if credit else count] * len(lanes)
    left, outstanding, taken, sent = count, 0, 0, [0] * len(lanes)
    while left:
        for place, lane in enumerate(lanes):
            send, outgoing = lane.endpoint.send, lane.outgoing
            burst = idle[place][: min(credits[place], left)]
            for ticket in burst:
                send(ticket, outgoing)
            number = len(burst)
            del idle[place][:number]
            credits[place] -= number
            sent[place] += number
            left -= number
            outstanding += number
        if outstanding:
            outstanding -= _give_back(done(_BATCH), idle)
            if credit:
                taken += _take(lanes, lanes[0].receive_cq.get_results(_BATCH), credits)
        elif left:
            taken += _take(lanes, lanes[0].arrived(_BATCH), credits)
    while outstanding:
        outstanding -= _give_back(done(_BATCH), idle)
    # Credits of several lanes and the word that all is there come in any order.
    coming = 1 + (sum(number // step for number in sent) if credit else 0)
    while taken < coming:
        taken += _take(lanes, lanes[0].arrived(_BATCH), credits)


def _give_back(results: list[Ticket], idle: list[list[Ticket]]) -> int:
    number = check(results)
    if len(idle) == 1:
        idle[0] += results
    else:
        for result in results:
            idle[result.queue_pair_context].append(result)
    return number


def _take(lanes: Sequence[Nd1Lane], results: list[Ticket], credits: list[int]) -> int:
    number, step = check(results), quota(lanes[0])
    for result in results:
        place = result.queue_pair_context
        credits[place] += step
        lanes[place].endpoint.receive(result, lanes[place].incoming)
    return number


def _receive_plainly(lane: Nd1Lane, count: int) -> None:
    receive, arrived, incoming = lane.endpoint.receive, lane.arrived, lane.incoming
    left = count
    while left:
        results = arrived(min(left, _BATCH))
        left -= check(results)
        for result in results:
            receive(result, incoming)
    send_acknowledgement(lane)


def _receive(lanes: Sequence[Nd1Lane], count: int, credit: bool) -> None:
    arrived, incoming = lanes[0].arrived, lanes[0].incoming
    posts = [lane.endpoint.receive for lane in lanes]
    taken, step = [0] * len(lanes), quota(lanes[0])
    left = count
    while left:
        results = arrived(min(left, _BATCH))
        left -= check(results)
        for result in results:
            place = result.queue_pair_context
            posts[place](result, incoming)
            taken[place] += 1
            if credit and taken[place] == step:
                taken[place] = 0
                send_acknowledgement(lanes[place])
    send_acknowledgement(lanes[0])


def _rdma(lanes: Sequence[Nd1Lane], count: int, reading: bool) -> None:
    done = lanes[0].initiator_cq.wait
    idle = [[*lane.tickets] for lane in lanes]
    left, outstanding = count, 0
    while left or outstanding:
        for place, lane in enumerate(lanes):
            post = lane.endpoint.read if reading else lane.endpoint.write
            local, target = lane.outgoing, lane.target
            burst = idle[place][:left]
            for ticket in burst:
                post(ticket, local, target, 0)
            del idle[place][: len(burst)]
            left -= len(burst)
            outstanding += len(burst)
        outstanding -= _give_back(done(_BATCH), idle)


def _reap(lane: Nd1Lane) -> None:
    """Wait for the one request that is outstanding."""
    check(lane.initiator_cq.wait(1))
