# SPDX-License-Identifier: Apache-2.0
"""Compiled measuring loops: the cost of the data plane without Python.

A loop releases the interpreter's lock except to check signals from time to time, and to sleep: as
`CompletionQueue.wait` does, it polls for the queue's `spin` before it sleeps. Every loop returns
the seconds it took, and raises NdError for a completion that is not a success. The context of a
reposted Receive moves along with it, so reference counts are unchanged when a loop succeeds.

`flags` are those of each Send or Write: INLINE or none. As in `QueuePair.send`, an INLINE message
may be in memory that is not registered. A loop copies it once, before it begins, and posts the
copy, so memory that another thread frees meanwhile is not read.

Loops of latency take `stamps`, a buffer of `count` + 1 signed 64-bit numbers, or None: the time of
each posting and, last, that of the last arrival. A stamp is taken while the message is in flight.
With a `rate` of turns per second, each turn begins when it is due or as soon after as the previous
one ends, and the first `count` stamps are the times from when it was due until its end.
"""

from shmnd.ring.loops.latency import (
    LineEnd,
    Ticks,
    exchange_lines,
    pingpong,
    read,
    write_pingpong,
)
from shmnd.ring.loops.streams import (
    Lanes,
    burst_receive,
    burst_send,
    copy,
    rdma_stream,
    stream_receive,
    stream_send,
)

__all__ = [
    "Lanes",
    "LineEnd",
    "Ticks",
    "burst_receive",
    "burst_send",
    "copy",
    "exchange_lines",
    "pingpong",
    "rdma_stream",
    "read",
    "stream_receive",
    "stream_send",
    "write_pingpong",
]
