# SPDX-License-Identifier: Apache-2.0
"""Sends in bursts, each waited for, with or without a batch around it: the loops of both engines.

What differs between the two is the batch alone, so that its figures can be compared.
"""

from itertools import repeat

from shmnd.ring import loops

from .bandwidth import receive_acknowledgement, send_acknowledgement
from .lane import Lane, check


def stream(lane: Lane, count: int, first: bool, burst: int, batch: bool) -> None:
    """Send `count` messages, `burst` at a time; from Python."""
    if first:
        _send(lane, count, burst, batch)
        receive_acknowledgement(lane)
    else:
        _receive(lane, count, batch)
        send_acknowledgement(lane)


def compiled(lane: Lane, count: int, first: bool, burst: int, batch: bool) -> None:
    """Do the same in the compiled module."""
    if first:
        queues = lane.qp, lane.initiator_cq
        loops.burst_send(*queues, lane.whole()[0], count, burst, batch, lane.flags)
        receive_acknowledgement(lane)
    else:
        loops.burst_receive(lane.qp, lane.receive_cq, lane.whole()[1], count, batch)
        send_acknowledgement(lane)


def _send(lane: Lane, count: int, burst: int, batch: bool) -> None:
    qp, sent, outgoing = lane.qp, lane.initiator_cq.wait, lane.outgoing
    send = lane.send
    while count:
        now = min(burst, count)
        if batch:
            qp._begin_batch()
        for _ in repeat(None, now):
            send(outgoing)
        if batch:
            qp._submit_batch()
        left = now
        while left:
            left -= check(sent(left))
        count -= now


def _receive(lane: Lane, count: int, batch: bool) -> None:
    qp, arrived, incoming = lane.qp, lane.arrived, lane.incoming
    receive = qp.receive
    while count:
        results = arrived(min(count, 256))
        if batch:
            qp._begin_batch()
        for result in results:
            if result.status:
                check([result])
            receive(incoming)
        if batch:
            qp._submit_batch()
        count -= len(results)
