# SPDX-License-Identifier: Apache-2.0
"""Throughput in messages or bytes: the loops in Python, over the public interface.

One buffer on each side serves all messages, as in perftest and in the OSU benchmarks. Both sides
handle completions in batches; each is checked, and each Receive is posted again.
"""

from itertools import repeat
from typing import TYPE_CHECKING

from .lane import Lane, check

if TYPE_CHECKING:
    from .nd1_lane import Nd1Lane

_BATCH = 256


def stream(lane: Lane, count: int, first: bool) -> None:
    """Send `count` messages one after another, or receive them and say when all are there."""
    if first:
        _send(lane, count)
        receive_acknowledgement(lane)
    else:
        _receive(lane, count)
        send_acknowledgement(lane)


def rdma(lane: Lane, count: int, first: bool, *, reading: bool) -> None:
    """Read or Write `count` times, several outstanding; the other side waits for the end."""
    if not first:
        receive_acknowledgement(lane)
        return
    post, done = lane.qp.read if reading else lane.write, lane.initiator_cq.wait
    local, address, token = lane.outgoing, lane.remote_address, lane.remote_token
    room, left = lane.depths.sends, count
    while left:
        burst = min(room, left)
        for _ in repeat(None, burst):
            post(local, address, token)
        left -= burst
        room += check(done(_BATCH)) - burst
    while room < lane.depths.sends:
        room += check(done(_BATCH))
    send_acknowledgement(lane)


def receive_acknowledgement(lane: "Lane | Nd1Lane") -> None:
    """Wait until the other side has everything: only then does a sender's clock stop."""
    check(lane.arrived(1))
    lane.qp.receive(lane.incoming)


def send_acknowledgement(lane: "Lane | Nd1Lane") -> None:
    """Send the other side the acknowledgement that all messages have arrived."""
    lane.qp.send(None)
    check(lane.initiator_cq.wait(1))


def _send(lane: Lane, count: int) -> None:
    send, sent, outgoing = lane.send, lane.initiator_cq.wait, lane.outgoing
    room, left = lane.depths.sends, count
    while left:
        burst = min(room, left)
        for _ in repeat(None, burst):
            send(outgoing)
        left -= burst
        room += check(sent(_BATCH)) - burst
    while room < lane.depths.sends:
        room += check(sent(_BATCH))


def _receive(lane: Lane, count: int) -> None:
    receive, arrived, incoming = lane.qp.receive, lane.arrived, lane.incoming
    left = count
    while left:
        batch = arrived(min(left, _BATCH))
        for result in batch:
            if result.status:
                check([result])
            receive(incoming)
        left -= len(batch)
