# SPDX-License-Identifier: Apache-2.0
"""Finding: topics, services, events, blackboards and queues, and comings and goings."""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shmnd.common import records
from shmnd.common.closing import Closing
from shmnd.common.deadline import end_of
from shmnd.common.interruption import pass_on
from shmnd.common.late import asyncio
from shmnd.common.weak import without_owner
from shmnd.directory import Directory
from shmnd.ipc.blackboard.keys import BLACKBOARD
from shmnd.ipc.errors import Closed, unusable
from shmnd.ipc.event.notifying import EVENT
from shmnd.ipc.queue.queueing import QUEUE
from shmnd.ipc.service.service_user import SERVICE
from shmnd.ipc.topic.seats import SEAT, TOPIC
from shmnd.provider import open_adapter
from shmnd.runtime.awaiting.awaited import resolve_from_elsewhere
from shmnd.status import NdError

if TYPE_CHECKING:
    from shmnd.directory import Entry

__all__ = [
    "Change", "Description", "Watch",
    "blackboards", "events", "queues", "services", "topics", "watch",
]  # fmt: skip

_KINDS: Final = {
    TOPIC: "topic",
    SEAT: "topic",
    SERVICE: "service",
    EVENT: "event",
    BLACKBOARD: "blackboard",
    QUEUE: "queue",
}
_ROLES: Final = {TOPIC: "publisher", SEAT: "subscriber"}


@dataclass(frozen=True, slots=True)
class Description:
    """A name that is in use: its processes with their roles, and how many have each role."""

    name: str
    kind: str
    """'topic', 'service', 'event', 'blackboard' or 'queue'."""
    type: Any
    """The type as text; of a service, those of request and response; None where there is none."""
    attributes: Mapping[str, Any]
    who: tuple[tuple[int, str], ...]
    """The processes, each with its role: publisher, subscriber, server, client and so on."""
    counts: Mapping[str, int]
    """How many there are of each role."""

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {role}" for role, count in self.counts.items())
        return f"{self.kind} {self.name}: {counts}"


@dataclass(frozen=True, slots=True)
class Change:
    """One that came or went."""

    name: str
    kind: str
    event: str
    """'came' or 'gone'."""
    role: str
    pid: int


@dataclass(slots=True)
class _Found:
    type: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    who: list[tuple[int, str]] = field(default_factory=list)


def _name_of(entry: Entry) -> str:
    return str(entry.data.get("topic", "")) if entry.kind == SEAT else entry.name


def _role_of(entry: Entry) -> str:
    return _ROLES.get(entry.kind) or str(entry.data.get("role", ""))


def _type_of(entry: Entry) -> Any:
    if "type" in entry.data:
        try:
            return json.loads(entry.data["type"])
        except (TypeError, ValueError, RecursionError) as exc:
            pass_on(exc)
            return entry.data["type"]
    if "request" in entry.data:
        return {part: entry.data.get(part) for part in ("request", "response")}
    return None


def _attributes_of(entry: Entry) -> Mapping[str, Any]:
    found = entry.data.get("attributes")
    return found if isinstance(found, Mapping) else {}  # a record may have anything


def _list(
    kinds: tuple[str, ...], namespace: str | None, group: int | str | None
) -> tuple[Description, ...]:
    found: dict[str, _Found] = {}
    with open_adapter(namespace=namespace, group=group) as adapter:
        directory = Directory(adapter)
        for kind in kinds:
            for entry in directory.find(kind):
                one = found.setdefault(_name_of(entry), _Found())
                one.type = one.type if one.type is not None else _type_of(entry)
                one.attributes = _attributes_of(entry) or one.attributes
                one.who.append((entry.pid, _role_of(entry)))
    return tuple(
        Description(
            name,
            _KINDS[kinds[0]],
            one.type,
            one.attributes,
            tuple(sorted(one.who)),
            dict(sorted(Counter(role for _, role in one.who).items())),
        )
        for name, one in sorted(found.items())
    )


def topics(
    *, namespace: str | None = None, group: int | str | None = None
) -> tuple[Description, ...]:
    """Return the topics that have a publisher or a subscriber."""
    return _list((TOPIC, SEAT), namespace, group)


def services(
    *, namespace: str | None = None, group: int | str | None = None
) -> tuple[Description, ...]:
    """Return the services that have a server or a client."""
    return _list((SERVICE,), namespace, group)


def events(
    *, namespace: str | None = None, group: int | str | None = None
) -> tuple[Description, ...]:
    """Return the events that have a notifier or a listener."""
    return _list((EVENT,), namespace, group)


def blackboards(
    *, namespace: str | None = None, group: int | str | None = None
) -> tuple[Description, ...]:
    """Return the blackboards that have a writer."""
    return _list((BLACKBOARD,), namespace, group)


def queues(
    *, namespace: str | None = None, group: int | str | None = None
) -> tuple[Description, ...]:
    """Return the queues that a process has opened by a name."""
    return _list((QUEUE,), namespace, group)


class Watch(Closing):
    """The comings and goings of all names: an iterator, also in asyncio.

    It first returns all that exist already. It may be read late: of more than 4,096 changes that
    were not read, it leaves out those of objects that came and went since.
    """

    def __init__(self, *, namespace: str | None = None, group: int | str | None = None) -> None:
        self._adapter = open_adapter(namespace=namespace, group=group)
        self._closed = self._has_left = False
        self._pid = os.getpid()
        self._watches: list[records.Watch] = []
        self._changes: deque[records.Change] = deque()
        self._wakers: set[Callable[[], None]] = set()  # of the tasks that wait
        try:
            directory = Directory(self._adapter)
            for kind in _KINDS:
                self._watches.append(directory.watch(kind))
                self._watches[-1].wake = without_owner(self._wake)
        except BaseException:
            self.close()
            raise

    def _take(self) -> bool:
        for each in self._watches:
            each.changes_into(self._changes)
        return bool(self._changes)

    def _check(self) -> None:
        if self._closed or self._pid != os.getpid():
            raise unusable("ipc.watch", "watch", closed=self._closed)

    def wait(self, timeout: float | None = None) -> Change | None:
        """Wait for the next change; None when `timeout` seconds end first."""
        self._check()
        end_of(timeout, "ipc.watch")
        if not self._changes and not self._take():
            try:
                self._adapter._engine.wait(self._pending, timeout)
            except NdError:
                self._check()  # another thread has closed it, or this is a child by now
                raise
            self._check()
            self._take()
        return self._next_known()

    def _next_known(self) -> Change | None:
        while self._changes:
            first = self._changes[0]
            entry = first.entry
            change = Change(
                _name_of(entry),
                _KINDS[entry.kind],
                "gone" if first.gone else "came",
                _role_of(entry),
                entry.pid,
            )
            # No call from here on: a handler that raises behind it would lose the change, and
            # another thread may take it.
            if self._changes and self._changes[0] is first:
                del self._changes[0]
                return change
        return None

    def _wake(self) -> None:
        for each in tuple(self._wakers):
            each()

    def _pending(self) -> bool:
        return self._closed or any(each.pending for each in self._watches)

    def __iter__(self) -> Iterator[Change]:
        return self  # no generator: a handler that raises in one ends it

    def __next__(self) -> Change:
        while not self._closed:
            try:
                change = self.wait()
            except Closed:
                if self._pid != os.getpid():
                    raise
                break
            if change is not None:
                return change
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        try:
            return await self._next()
        except Closed:
            if self._pid != os.getpid():
                raise
            raise StopAsyncIteration from None

    async def _next(self) -> Change:
        loop = asyncio.get_running_loop()
        while True:
            self._check()
            if (self._changes or self._take()) and (change := self._next_known()) is not None:
                return change
            came: asyncio.Future[None] = loop.create_future()
            wake = partial(resolve_from_elsewhere, loop, came)
            self._wakers.add(wake)
            self._adapter._engine.loops.begin(loop, wake)
            try:
                if not (self._changes or self._pending()):
                    await came
            finally:
                self._wakers.discard(wake)
                self._adapter._engine.loops.end(loop, wake)

    def close(self) -> None:
        """End the watch. Harmless when repeated."""
        if getattr(self, "_has_left", True):
            return
        self._closed = True
        for each in self._watches:
            each.close()
        self._wake()
        self._adapter._engine.news()  # for threads
        self._adapter.close()
        self._has_left = True  # last: what a handler of a signal has interrupted is called again

    async def aclose(self) -> None:
        """End the watch as `close` does; it waits for nothing."""
        self.close()

    def __repr__(self) -> str:
        return f"<ipc.Watch {'closed' if self._closed else 'open'}>"


def watch(*, namespace: str | None = None, group: int | str | None = None) -> Watch:
    """Return an iterator over comings and goings, for `for` and `async for`."""
    return Watch(namespace=namespace, group=group)
