# SPDX-License-Identifier: Apache-2.0
"""Named records that processes announce to each other, and introductions without a connection.

A record belongs to an adapter and has a kind, a name and a few bytes of data; it ends with the
adapter, with the process, or when its owner retracts it. A process that watches a kind, or one
name of a kind, receives an event for each record that comes or goes from then on; `find` returns
the records that exist.

`meet` introduces two adapters to each other as a connect would: each process receives the other's
doorbell, pidfd and segments, also segments that are announced later. A meeting with an adapter
that is not there yet is kept until it comes, since after a restart of the broker processes come
back in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from shmnd.broker.protocol import Fields, Refusal, text_of
from shmnd.broker.service.records import Adapter, Limits, Outbox, Process, require_room
from shmnd.status import Status

__all__ = ["Directory"]

_PAGE_BYTES = 24 << 10


@dataclass(eq=False, slots=True)
class Record:
    """A name that an adapter has announced."""

    adapter: Adapter
    number: int
    kind: str
    name: str
    data: Fields
    since: int
    """When it was announced first, as its process says; 0 of one that is new to all brokers."""

    def wire(self) -> Fields:
        """Return the record as clients receive it."""
        return {
            "adapter": self.adapter.uid,
            "process": self.adapter.process.uid,
            "pid": self.adapter.process.trusted_pid or self.adapter.process.pid,
            "pid_space": self.adapter.process.pid_space,
            "object": self.number,
            "kind": self.kind,
            "name": self.name,
            "data": self.data,
            "since": self.since,
        }


@dataclass(eq=False, slots=True)
class _Member:
    """What one process does in the directory."""

    records: dict[int, Record] = field(default_factory=dict)
    watches: set[tuple[str, str]] = field(default_factory=set)
    """Kinds and names; an empty name stands for all of a kind."""
    meetings: set[tuple[str, str]] = field(default_factory=set)
    """Adapters of its own, and adapters that these are to meet."""


class Directory:
    """All records, the processes that watch them, and those that meet."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        outbox: Outbox,
        limits: Limits,
        introduce: Callable[[Adapter, Process | None], None],
    ) -> None:
        self._adapters = adapters
        self._outbox = outbox
        self._limits = limits
        self._introduce = introduce
        self._members: dict[Process, _Member] = {}
        self._index: dict[tuple[str, str], dict[Record, None]] = {}
        """Records by kind and name, and by kind alone under an empty name."""
        self._watchers: dict[tuple[str, str], dict[Process, None]] = {}
        self._meeting: dict[str, dict[Process, None]] = {}
        """Adapters, and the processes that meet them or want to."""

    # --- records -------------------------------------------------------------------------------

    def announce(self, process: Process, adapter: Adapter, fields: Fields) -> None:
        """Add a record, or replace the data of one."""
        records = self._member(process).records
        number = fields["object"]
        known = records.get(number)
        if known is None:
            require_room(len(records), self._limits.records, "records of a process")
        if known is not None and (known.kind, known.name) != (fields["kind"], fields["name"]):
            raise Refusal(
                Status.SHARING_VIOLATION,
                f"object {number} is announced as {known.kind} {known.name!r}",
            )
        record = Record(
            adapter, number, fields["kind"], fields["name"], fields["data"], fields["since"]
        )
        if known is not None:
            self._leave_index(known)
        records[number] = record
        for key in _keys_of(record):
            self._index.setdefault(key, {})[record] = None
        self._notify("record", record)

    def retract(self, process: Process, number: int) -> None:
        """Remove a record; harmless when there is none."""
        record = self._member(process).records.pop(number, None)
        if record is not None:
            self._leave_index(record)
            self._notify("record_gone", record)

    def _leave_index(self, record: Record) -> None:
        for key in _keys_of(record):
            records = self._index[key]
            del records[record]
            if not records:
                del self._index[key]

    def find(self, fields: Fields) -> Fields:
        """Return a page of records; `next` (not 0) leads to the one after.

        They are in the order in which this broker has heard of them; new data counts as a new
        record. Records that come or go between two pages may be missing or stand twice; a client
        for which that matters watches first.
        """
        found = self._index.get((fields["kind"], fields["name"]), {})
        page: list[Fields] = []
        size, seen = 0, fields["after"]
        for record in islice(found, seen, None):
            wire = record.wire()
            size += len(text_of(wire))
            if page and size > _PAGE_BYTES:
                return {"page": page, "next": seen}
            page.append(wire)
            seen += 1
        return {"page": page, "next": 0}

    def _notify(self, event: str, record: Record) -> None:
        receivers: dict[Process, None] = {}
        for key in _keys_of(record):
            receivers.update(self._watchers.get(key, {}))
        for process in receivers:
            self._outbox.event(process, event, **record.wire())

    # --- watching ------------------------------------------------------------------------------

    def watch(self, process: Process, kind: str, name: str) -> None:
        """Send the process the changes of the records of a name, or of a kind."""
        watches = self._member(process).watches
        if (kind, name) not in watches:
            require_room(len(watches), self._limits.watches, "watches of a process")
        watches.add((kind, name))
        self._watchers.setdefault((kind, name), {})[process] = None

    def unwatch(self, process: Process, kind: str, name: str) -> None:
        """Send it no more; harmless when it does not watch."""
        self._member(process).watches.discard((kind, name))
        watchers = self._watchers.get((kind, name), {})
        watchers.pop(process, None)
        if not watchers:
            self._watchers.pop((kind, name), None)

    # --- meeting -------------------------------------------------------------------------------

    def meet(self, process: Process, adapter: Adapter, peer: str) -> bool:
        """Introduce two adapters to each other; return False if the other is not there (yet)."""
        meetings = self._member(process).meetings
        if (adapter.uid, peer) not in meetings:
            require_room(len(meetings), self._limits.meetings, "meetings of a process")
        found = self._adapters.get(peer)
        if found is not None:
            self._introduce(found, process)
            self._introduce(adapter, found.process)
        meetings.add((adapter.uid, peer))
        self._meeting.setdefault(peer, {})[process] = None
        return found is not None

    def part(self, process: Process, adapter: str, peer: str) -> None:
        """Forget a meeting: segments that are announced from now on are not shared for it."""
        meetings = self._member(process).meetings
        meetings.discard((adapter, peer))
        if not any(met == peer for _, met in meetings):
            self._stop_meeting(process, peer)

    def _stop_meeting(self, process: Process, peer: str) -> None:
        waiting = self._meeting.get(peer, {})
        waiting.pop(process, None)
        if not waiting:
            self._meeting.pop(peer, None)

    def adapter_came(self, adapter: Adapter) -> None:
        """Introduce an adapter to the processes that want to meet it, and these to it."""
        for process in list(self._meeting.get(adapter.uid, ())):
            for own, peer in self._members[process].meetings:
                mine = self._adapters.get(own)
                if peer != adapter.uid or mine is None:
                    continue
                try:
                    self._introduce(adapter, process)
                    self._introduce(mine, adapter.process)
                except Refusal:
                    continue  # as if they had not met yet: a later segment tries again

    def share_segment(self, adapter: Adapter) -> None:
        """Send a new segment to each process that a meeting connects with its adapter."""
        for process in list(self._meeting.get(adapter.uid, ())):
            if adapter.uid in process.knows:
                self._introduce(adapter, process)
        for own, peer in list(self._member(adapter.process).meetings):
            found = self._adapters.get(peer)
            if own == adapter.uid and found is not None and own in found.process.knows:
                self._introduce(adapter, found.process)

    # --- ends ----------------------------------------------------------------------------------

    def forget_adapter(self, adapter: Adapter) -> None:
        """Remove the records and meetings of an adapter that is closed or lost."""
        member = self._members.get(adapter.process)
        if member is None:
            return
        for number, record in list(member.records.items()):
            if record.adapter is adapter:
                self.retract(adapter.process, number)
        for own, peer in list(member.meetings):
            if own == adapter.uid:
                self.part(adapter.process, own, peer)

    def leave(self, process: Process) -> None:
        """Forget a process that is gone, after its adapters."""
        member = self._members.pop(process, None)
        if member is None:
            return
        for key in member.watches:
            watchers = self._watchers.get(key, {})
            watchers.pop(process, None)
            if not watchers:
                self._watchers.pop(key, None)
        for _, peer in member.meetings:
            self._stop_meeting(process, peer)

    def _member(self, process: Process) -> _Member:
        return self._members.setdefault(process, _Member())


def _keys_of(record: Record) -> set[tuple[str, str]]:
    """Return the kinds and names under which a record is found; one where it has no name."""
    return {(record.kind, record.name), (record.kind, "")}
