# SPDX-License-Identifier: Apache-2.0
"""The same loops inside the compiled module: no Python code per message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmnd.ring import loops

from .bandwidth import receive_acknowledgement, send_acknowledgement
from .flow import quota

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..measure.reading import Stamps
    from .lane import Lane


def pingpong(lane: Lane, count: int, first: bool, stamps: Stamps | None, rate: float = 0.0) -> None:
    """Send and Receive to and fro."""
    queues = lane.receive_cq, lane.initiator_cq
    memory = lane.whole()
    loops.pingpong(lane.qp, *queues, *memory, count, first, lane.flags, stamps, rate)


def write_pingpong(
    lane: Lane, count: int, first: bool, stamps: Stamps | None, rate: float = 0.0
) -> None:
    """Write to and fro."""
    target = lane.remote_address, lane.remote_token
    watch, mark = lane.inbox[-1:], lane.first_mark(count)
    queues = lane.qp, lane.initiator_cq
    loops.write_pingpong(
        *queues, lane.whole()[0], *target, watch, mark, count, first, lane.flags, stamps, rate
    )


def read(lane: Lane, count: int, first: bool, stamps: Stamps | None, rate: float = 0.0) -> None:
    """Read from the other side."""
    if not first:
        receive_acknowledgement(lane)
        return
    target = lane.remote_address, lane.remote_token
    loops.read(lane.qp, lane.initiator_cq, lane.whole()[0], *target, count, stamps, rate)
    send_acknowledgement(lane)


# -- the same in an open loop: at so many turns a second --


def paced_pingpong(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    """Send and Receive to and fro."""
    pingpong(lane, count, True, times, rate)


def paced_write_pingpong(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    """Write to and fro."""
    write_pingpong(lane, count, True, times, rate)


def paced_read(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    """Read from the other side."""
    read(lane, count, True, times, rate)


# -- streams: each returns the loop, with all that it needs made before the clock runs --


def stream(lanes: Sequence[Lane], *, credit: bool) -> Callable[[int, bool], object]:
    """Return a loop that sends over all lanes in turn, until the other side has everything."""
    lane, together = lanes[0], _together(lanes)
    step = quota(lane) if credit else 0
    sender = lane.depths.sends, lane.depths.receives, step, lane.flags
    empty = lane.places[1].region.sge(0, 0)

    def loop(count: int, first: bool) -> None:
        if first:
            loops.stream_send(together, count, *sender)
        else:
            loops.stream_receive(together, empty, count, step)

    return loop


def rdma(lanes: Sequence[Lane], *, reading: bool) -> Callable[[int, bool], object]:
    """Return a loop of Reads or Writes over all lanes; the other side waits for its end."""
    lane, together = lanes[0], _together(lanes)
    limits = lane.depths.sends, 0 if reading else lane.flags

    def loop(count: int, first: bool) -> None:
        if not first:
            receive_acknowledgement(lane)
            return
        loops.rdma_stream(together, reading, count, *limits)
        send_acknowledgement(lane)

    return loop


def _together(lanes: Sequence[Lane]) -> loops.Lanes:
    return loops.Lanes(
        (lane.qp, *lane.whole(), lane.remote_address, lane.remote_token) for lane in lanes
    )
