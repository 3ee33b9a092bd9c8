# SPDX-License-Identifier: Apache-2.0
"""The same loops inside the compiled module: no Python code per message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmnd.ring import loops

from .bandwidth import receive_acknowledgement, send_acknowledgement
from .flow import quota

if TYPE_CHECKING:
    from .lane import Lane
    from .reading import Stamps


def pingpong(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Send and Receive to and fro."""
    queues = lane.receive_cq, lane.initiator_cq
    memory = lane.outgoing, lane.incoming
    loops.pingpong(lane.qp, *queues, *memory, count, first, lane.flags, stamps)


def write_pingpong(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Write to and fro."""
    target = lane.remote_address, lane.remote_token
    watch, mark = lane.inbox[-1:], lane.first_mark(count)
    queues = lane.qp, lane.initiator_cq
    loops.write_pingpong(
        *queues, lane.outgoing, *target, watch, mark, count, first, lane.flags, stamps
    )


def read(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Read from the other side."""
    if not first:
        receive_acknowledgement(lane)
        return
    _rdma(lane, count, True, 1, stamps)
    send_acknowledgement(lane)


def stream(lane: Lane, count: int, first: bool, *, credit: bool = False) -> None:
    """Send in one direction."""
    queues = lane.receive_cq, lane.initiator_cq
    step = quota(lane) if credit else 0
    if first:
        memory = lane.outgoing, lane.incoming
        granted = lane.depths.receives if credit else 0
        limits = lane.depths.sends, granted, step
        loops.stream_send(lane.qp, *queues, *memory, count, *limits, lane.flags)
        receive_acknowledgement(lane)
    else:
        memory = lane.incoming, lane.region.sge(0, 0)
        loops.stream_receive(lane.qp, *queues, *memory, count, step)
        send_acknowledgement(lane)


def write_stream(lane: Lane, count: int, first: bool) -> None:
    """Write in one direction."""
    _rdma_stream(lane, count, first, False)


def read_stream(lane: Lane, count: int, first: bool) -> None:
    """Read, several outstanding."""
    _rdma_stream(lane, count, first, True)


def _rdma_stream(lane: Lane, count: int, first: bool, reading: bool) -> None:
    if not first:
        receive_acknowledgement(lane)
        return
    _rdma(lane, count, reading, lane.depths.sends, None)
    send_acknowledgement(lane)


def _rdma(lane: Lane, count: int, reading: bool, window: int, stamps: Stamps | None) -> None:
    queues = lane.qp, lane.initiator_cq
    target = lane.remote_address, lane.remote_token
    flags = 0 if reading else lane.flags
    loops.rdma(*queues, lane.outgoing, *target, reading, count, window, flags, stamps)
