# SPDX-License-Identifier: Apache-2.0
"""Latency of messages: the loops in Python, over the public interface.

All work that is not needed between the arrival of a message and the sending of the answer is done
after the sending, while the answer is in transit. This includes the reading of the clock, at which
each loop turns. Nothing is left out: each round reaps both completions and posts its Receive again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import cycle, islice, repeat
from typing import TYPE_CHECKING

from shmnd.ring.loops import Ticks

from ..measure.reading import Stamps
from .bandwidth import receive_acknowledgement, send_acknowledgement
from .lane import MARKS, Lane, check

if TYPE_CHECKING:
    from shmnd import Result

clock_ns = time.perf_counter_ns


def rounds(count: int, stamps: Stamps | None) -> Iterable[None]:
    """Return what a loop goes over: so many rounds, whose times are written down if wanted."""
    return repeat(None, count) if stamps is None else Ticks(stamps, count)


def pingpong(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Send and Receive to and fro; `count` rounds from turn to turn, so one more altogether."""
    send, receive = lane.send, lane.qp.receive
    arrival, sent = lane.arrival, lane.initiator_cq.get_results
    outgoing, incoming = lane.outgoing, lane.incoming
    if first:
        send(outgoing)
        reap(lane, 1)
    for _ in rounds(count, stamps) if first else repeat(None, count + 1):
        result = arrival()
        send(outgoing)
        receive(incoming)
        if result.status:
            check([result])
        results = sent(1)
        if not results or results[0].status:
            complete(lane, results)
    if first:
        check([arrival()])
        receive(incoming)


def write_pingpong(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Write to and fro, one round more than `count` as above; no target makes any call."""
    write, written = lane.write, lane.initiator_cq.get_results
    outgoing, address, token = lane.outgoing, lane.remote_address, lane.remote_token
    inbox, outbox = lane.inbox.data, lane.outbox.data
    last = len(inbox) - 1
    start = lane.first_mark(count + 1) - 1
    marks = islice(cycle(range(1, MARKS + 1)), start, start + count + 1)
    if first:
        mark = next(marks)
        outbox[last] = mark
        write(outgoing, address, token)
        for following, _ in zip(marks, rounds(count, stamps), strict=True):
            results = written(1)
            if not results or results[0].status:
                complete(lane, results)
            while inbox[last] != mark:
                pass
            mark = outbox[last] = following
            write(outgoing, address, token)
        reap(lane, 1)
        while inbox[last] != mark:
            pass
    else:
        for mark in marks:
            while inbox[last] != mark:
                pass
            outbox[last] = mark
            write(outgoing, address, token)
            results = written(1)
            if not results or results[0].status:
                complete(lane, results)


def read(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Read from the other side, which makes no call until all is done."""
    if not first:
        receive_acknowledgement(lane)
        return
    post, done = lane.qp.read, lane.initiator_cq.get_results
    local, address, token = lane.outgoing, lane.remote_address, lane.remote_token
    for _ in rounds(count, stamps):
        post(local, address, token)
        if not check(done(1)):
            reap(lane, 1)
    send_acknowledgement(lane)


# -- the same in an open loop: a turn begins when it is due, whatever became of the last --


def due_times(count: int, rate: float) -> Iterator[int]:
    """Return each multiple of 1/`rate` when it has come: the intended starts of `count` turns.

    A turn begins then, or as soon after it as the last one lets. Its time counts from the
    intended start: a turn that was held up also holds up those behind it, and that is seen.
    """
    clock = clock_ns
    start = clock()
    for place in range(count):
        due = start + int(place * 1e9 / rate)
        while clock() < due:
            pass
        yield due


def paced_pingpong(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    """Send and Receive to and fro, one turn more than `count` as above."""
    send, receive, clock = lane.send, lane.qp.receive, clock_ns
    arrival, sent = lane.arrival, lane.initiator_cq.get_results
    outgoing, incoming = lane.outgoing, lane.incoming
    for place, due in enumerate(due_times(count + 1, rate)):
        send(outgoing)
        result = arrival()
        times[place] = clock() - due
        receive(incoming)
        if result.status:
            check([result])
        if not check(sent(1)):
            reap(lane, 1)


def paced_write_pingpong(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    """Write to and fro, one turn more than `count` as above."""
    write, written, clock = lane.write, lane.initiator_cq.get_results, clock_ns
    outgoing, address, token = lane.outgoing, lane.remote_address, lane.remote_token
    inbox, outbox = lane.inbox.data, lane.outbox.data
    last = len(inbox) - 1
    mark = lane.first_mark(count + 1)
    for place, due in enumerate(due_times(count + 1, rate)):
        outbox[last] = mark
        write(outgoing, address, token)
        while inbox[last] != mark:
            pass
        times[place] = clock() - due
        mark = mark % MARKS + 1
        if not check(written(1)):
            reap(lane, 1)


def paced_read(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    """Read from the other side, one turn more than `count` for as many times as above."""
    post, done, clock = lane.qp.read, lane.initiator_cq.wait, clock_ns
    local, address, token = lane.outgoing, lane.remote_address, lane.remote_token
    for place, due in enumerate(due_times(count + 1, rate)):
        post(local, address, token)
        results = done(1)
        times[place] = clock() - due
        check(results)
    send_acknowledgement(lane)


def complete(lane: Lane, results: list[Result]) -> None:
    """Check the completion that a poll found, or wait for it."""
    if not check(results):
        reap(lane, 1)


def reap(lane: Lane, count: int) -> None:
    """Wait for so many initiator completions."""
    while count > 0:
        count -= check(lane.initiator_cq.wait(count))
