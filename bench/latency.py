# SPDX-License-Identifier: Apache-2.0
"""How long does a message take? The loops in Python, through the public interface.

What does not lie between the arrival of a message and the sending of the answer is done after
the sending, while the answer travels. Nothing is left out: each round reaps both completions
and posts its Receive again.
"""

from itertools import cycle, islice, repeat

from .lane import MARKS, Lane, check


def pingpong(lane: Lane, count: int, first: bool) -> None:
    """Send and Receive to and fro, `count` times."""
    send, receive = lane.qp.send, lane.qp.receive
    arrived, sent = lane.receive_cq.wait, lane.initiator_cq.get_results
    outgoing, incoming = lane.outgoing, lane.incoming
    if first:
        send(outgoing)
        _reap(lane, 1)
    # The client answers all arrivals but the last.
    for _ in repeat(None, count - first):
        (result,) = arrived(1)
        send(outgoing)
        receive(incoming)
        if result.status:
            check([result])
        if not check(sent(1)):
            _reap(lane, 1)
    if first:
        check(arrived(1))
        receive(incoming)


def write_pingpong(lane: Lane, count: int, first: bool) -> None:
    """Write to and fro; the target sees it in its memory and makes no call."""
    write, written = lane.qp.write, lane.initiator_cq.get_results
    outgoing, address, token = lane.outgoing, lane.remote_address, lane.remote_token
    inbox, outbox = lane.inbox.data, lane.outbox.data
    last = len(inbox) - 1
    start = lane.first_mark(count) - 1
    marks = islice(cycle(range(1, MARKS + 1)), start, start + count)
    if first:
        for mark in marks:
            outbox[last] = mark
            write(outgoing, address, token)
            if not check(written(1)):
                _reap(lane, 1)
            while inbox[last] != mark:
                pass
    else:
        for mark in marks:
            while inbox[last] != mark:
                pass
            outbox[last] = mark
            write(outgoing, address, token)
            if not check(written(1)):
                _reap(lane, 1)


def _reap(lane: Lane, count: int) -> None:
    """Wait for so many initiator completions."""
    while count > 0:
        count -= check(lane.initiator_cq.wait(count))
