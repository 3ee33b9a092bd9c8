# SPDX-License-Identifier: Apache-2.0
"""What the broker says about itself to tools: counts, and records page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from shmnd.broker.protocol import FIRST_FOR_TOOLS, MAX_FDS, Fields, PassedFd
from shmnd.broker.service.records import Adapter, Bound, Connection, End, Process

__all__ = ["report"]

_PAGE: Final = 48
"""Records of one reply: that many of the longest kind fit into one message."""


def report(
    processes: Mapping[str, Process],
    adapters: Mapping[str, Adapter],
    connections: Mapping[tuple[int, str, str], Connection],
    fields: Fields,
    reply_fds: list[PassedFd],
) -> Fields:
    """Return the counts, and the page of the wanted kind; `next` (not 0) leads to the one after.

    The descriptors of a page of counters are appended to `reply_fds`, in the order of its records.
    """
    listeners = [
        bound
        for process in processes.values()
        for bound in process.objects.values()
        if bound.listening
    ]
    counts: Fields = {
        "processes": len(processes),
        "adapters": len(adapters),
        "listeners": len(listeners),
        "connections": len(connections),
    }
    pages: dict[str, Iterator[Fields]] = {
        "processes": map(_process, processes.values()),
        "adapters": map(_adapter, adapters.values()),
        "listeners": map(_listener, listeners),
        "connections": map(_connection, connections.values()),
    }
    kind, after = fields["kind"], fields["after"]
    if kind == "none":
        return counts
    if kind == "counters":
        return {**counts, **_counter_segments(adapters, after, reply_fds)}
    page = list(islice(pages[kind], after, after + _PAGE))
    seen = after + len(page)
    return {**counts, "page": page, "next": seen if page and seen < counts[kind] else 0}


def _counter_segments(
    adapters: Mapping[str, Adapter], after: int, reply_fds: list[PassedFd]
) -> Fields:
    """Return the segments that adapters keep for tools. Only their owners can write them."""
    every = (
        (adapter, number, segment)
        for adapter in adapters.values()
        for number, segment in adapter.segments.items()
        if number >= FIRST_FOR_TOOLS
    )
    found = list(islice(every, after, after + MAX_FDS + 1))
    page = found[:MAX_FDS]
    reply_fds += [segment.fd for _, _, segment in page]
    rows = [
        {**_process(adapter.process), "adapter": adapter.uid, "size": segment.size}
        for adapter, _, segment in page
    ]
    return {"page": rows, "next": after + MAX_FDS if len(found) > MAX_FDS else 0}


def _process(process: Process) -> Fields:
    return {
        "process": process.uid,
        "pid": process.trusted_pid or process.pid,
        "adapters": len(process.adapters),
        "objects": len(process.objects),
        "connections": len(process.connections),
        "segments": process.segments,
    }


def _adapter(adapter: Adapter) -> Fields:
    return {
        "adapter": adapter.uid,
        "process": adapter.process.uid,
        "segments": len(adapter.segments),
        "bytes": sum(segment.size for segment in adapter.segments.values()),
    }


def _listener(bound: Bound) -> Fields:
    return {
        "process": bound.adapter.process.uid,
        "adapter": bound.adapter.uid,
        "object": bound.number,
        "address": [bound.host, bound.port],
        "protocol": bound.protocol,
        "backlog": bound.backlog,
        "waiting": len(bound.queue),
        "armed": len(bound.armed),
    }


def _connection(connection: Connection) -> Fields:
    return {
        "connection": connection.number,
        "stage": connection.stage.value,
        "protocol": connection.protocol,
        "active": _end(connection.active),
        "passive": _end(connection.passive),
    }


def _end(end: End) -> Fields:
    state = "over" if end.over else "vacant" if end.process is None else "held"
    return {"adapter": end.adapter, "address": list(end.address), "state": state}
