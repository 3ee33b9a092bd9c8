# SPDX-License-Identifier: Apache-2.0
"""Requests about adapters and their shared segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shmnd.broker.protocol import FIRST_FOR_TOOLS, Fields, PassedFd, Refusal, name_of
from shmnd.broker.service.connections import Connections
from shmnd.broker.service.directory import Directory
from shmnd.broker.service.records import (
    Adapter,
    Bound,
    Limits,
    Outbox,
    Process,
    Segment,
    require_room,
)
from shmnd.status import Status

__all__ = ["AdapterRequests", "own_adapter"]


class AdapterRequests:
    """Handlers of the requests by which a process declares its adapters and segments.

    Each handler returns the fields of its reply.
    """

    def __init__(
        self,
        adapters: dict[str, Adapter],
        outbox: Outbox,
        limits: Limits,
        connections: Connections,
        directory: Directory,
        unbind: Callable[[Bound], None],
    ) -> None:
        self._adapters = adapters
        self._outbox = outbox
        self._limits = limits
        self._connections = connections
        self._directory = directory
        self._unbind = unbind

    def open(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Register an adapter, or its new table."""
        uid = name_of(fields["key"])
        known = self._adapters.get(uid)
        if known is not None and known.process is not process:
            raise Refusal(Status.SHARING_VIOLATION, f"adapter {uid} belongs to another process")
        if known is not None:
            known.table = fields["table"]
            return {}
        require_room(len(process.adapters), self._limits.adapters, "adapters of a process")
        adapter = Adapter(uid, process, fields["table"])
        self._adapters[uid] = process.adapters[uid] = adapter
        self._directory.adapter_came(adapter)
        return {}

    def close(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Close an adapter with the objects bound on it."""
        adapter = process.adapters.get(fields["adapter"])
        if adapter is not None:
            for bound in list(process.objects.values()):
                if bound.adapter is adapter:
                    self._unbind(bound)
            self.forget(adapter, lost=False)
        return {}

    def forget(self, adapter: Adapter, *, lost: bool) -> None:
        """Remove an adapter; `lost` when its whole process is gone."""
        self._connections.forget_adapter(adapter, lost=lost)
        self._directory.forget_adapter(adapter)
        process = adapter.process
        process.segments -= len(adapter.segments)
        adapter.segments.clear()
        adapter.shared = 0
        for other in adapter.known_by.values():
            other.knows.pop(adapter.uid, None)
            if not lost:  # else the event is that the whole process is gone
                self._outbox.event(other, "adapter_gone", adapter=adapter.uid)
        adapter.known_by.clear()
        del self._adapters[adapter.uid], process.adapters[adapter.uid]

    def segment(self, process: Process, fields: Fields, fds: Sequence[PassedFd]) -> Fields:
        """Register a segment, and share it with every process that has the adapter."""
        adapter = own_adapter(process, fields["adapter"])
        size = fields["size"]
        if not 0 < size <= fds[0].size():
            raise Refusal(
                Status.INVALID_BUFFER_SIZE,
                f"segment {fields['seg']}: {size} bytes announced, but its descriptor is of"
                f" {max(fds[0].size(), 0)} of sealed shared memory",
            )
        old = adapter.segments.get(fields["seg"])
        if old is not None:
            if (old.size, old.writable) == (size, fields["writable"]):
                return {}  # registered again after a restart
            raise Refusal(
                Status.SHARING_VIOLATION, f"segment {fields['seg']} exists with {old.size} bytes"
            )
        limits = self._limits
        require_room(
            process.segments, limits.segments, "segments of a process", limits.why_segments
        )
        adapter.segments[fields["seg"]] = Segment(size, fields["writable"], fds[0])
        adapter.shared += fields["seg"] < FIRST_FOR_TOOLS
        process.segments += 1
        self._connections.share_segment(adapter)
        self._directory.share_segment(adapter)
        return {}

    def segment_close(self, process: Process, fields: Fields, _: Sequence[PassedFd]) -> Fields:
        """Withdraw a segment."""
        adapter = own_adapter(process, fields["adapter"])
        number = fields["seg"]
        if adapter.segments.pop(number, None) is not None:
            adapter.shared -= number < FIRST_FOR_TOOLS
            process.segments -= 1
            for other in adapter.known_by.values():
                if number in other.knows[adapter.uid]:
                    other.knows[adapter.uid].discard(number)
                    self._outbox.event(other, "segment_gone", adapter=adapter.uid, seg=number)
        return {}


def own_adapter(process: Process, uid: str) -> Adapter:
    """Return an adapter of a process. Refuse one of another process."""
    adapter = process.adapters.get(uid)
    if adapter is None:
        raise Refusal(Status.INVALID_HANDLE, f"adapter {uid} does not belong to this process")
    return adapter
