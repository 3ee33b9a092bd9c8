# SPDX-License-Identifier: Apache-2.0
"""The same loops inside the compiled module: no Python code per message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from shmnd.ring import loops

from .bandwidth import receive_acknowledgement, send_acknowledgement
from .question import Kind

if TYPE_CHECKING:
    from .lane import Lane


def pingpong(lane: Lane, count: int, first: bool) -> None:
    """Send and Receive to and fro."""
    queues = lane.receive_cq, lane.initiator_cq
    loops.pingpong(lane.qp, *queues, lane.outgoing, lane.incoming, count, first)


def write_pingpong(lane: Lane, count: int, first: bool) -> None:
    """Write to and fro."""
    target = lane.remote_address, lane.remote_token
    watch, mark = lane.inbox[-1:], lane.first_mark(count)
    source = lane.outgoing
    loops.write_pingpong(lane.qp, lane.initiator_cq, source, *target, watch, mark, count, first)


def stream(lane: Lane, count: int, first: bool) -> None:
    """Send in one direction."""
    if first:
        loops.stream_send(lane.qp, lane.initiator_cq, lane.outgoing, count, lane.depths.sends)
        receive_acknowledgement(lane)
    else:
        loops.stream_receive(lane.qp, lane.receive_cq, lane.incoming, count)
        send_acknowledgement(lane)


LOOPS: Final[Mapping[Kind, Callable[[Lane, int, bool], None]]] = {
    Kind.PINGPONG: pingpong,
    Kind.WRITE: write_pingpong,
    Kind.STREAM: stream,
}
