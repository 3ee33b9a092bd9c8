# SPDX-License-Identifier: Apache-2.0
"""Subscribers: the objects that programs receive samples with."""

from __future__ import annotations

from functools import partial
from typing import Any

from shmnd.common.deadline import end_of, left_until
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.common.late import asyncio
from shmnd.common.loops import Loop
from shmnd.common.native import direct_calls
from shmnd.common.weak import without_owner
from shmnd.directory import Changes
from shmnd.ipc.common.closed import announce_closed, descriptor_while_open
from shmnd.ipc.common.limits import checked_name, number
from shmnd.ipc.common.namespace_adapter import NamespaceAdapter, remember
from shmnd.ipc.errors import Closed, NoPublisher
from shmnd.ipc.topic import here
from shmnd.ipc.topic.publishers import MeetsPublishers
from shmnd.ipc.topic.sample import Sample
from shmnd.ipc.topic.seats import MOST_BUFFER, POLICIES, TOPIC
from shmnd.ipc.topic.writer_board import MOST_HELD
from shmnd.ipc.types import forms
from shmnd.status import NdError
from shmnd.waiter import Waiter

__all__ = ["Subscriber"]


@direct_calls
class Subscriber(MeetsPublishers):
    """Receives the samples of a topic, from all its publishers.

    `type` is that of the publishers; None takes theirs. The subscriber may fall `buffer` samples
    behind; `overflow` says what happens then: 'drop_oldest', 'drop_newest', 'conflate' (only the
    newest is received) or 'block' (the publisher waits).
    `history` bounds how many samples it receives that were sent before it was opened; None: all
    that are kept. `max_held` bounds how many samples of a publisher it holds at once; None: 256 of
    which the publisher must keep the memory, and any number of those that were copied. Without
    `wait_for_publisher` a receive raises NoPublisher when there is none. Its attribute `spin` is
    the time in seconds for which `receive` polls before it sleeps, which the waits before it make
    longer or shorter: 50 µs in a new one; 0 sleeps at once.
    """

    def __init__(
        self,
        name: str,
        type: Any = None,
        *,
        buffer: int = 8,
        overflow: str = "drop_oldest",
        history: int | None = None,
        max_held: int | None = None,
        wait_for_publisher: bool = True,
        namespace: str | None = None,
        group: int | str | None = None,
    ) -> None:
        call = "Subscriber"
        self.topic = self.name = checked_name(name, call)
        self._form = None if type is None else forms.form_of(type, call)
        self._buffer = number(call, "buffer", buffer, 1, MOST_BUFFER)
        if overflow not in POLICIES:
            raise ValueError(f"{call}: overflow {overflow!r} is none of {', '.join(POLICIES)}")
        self.overflow = overflow
        self._history = (
            None if history is None else number(call, "history", history, 0, MOST_BUFFER)
        )
        self._max_held = (
            None if max_held is None else number(call, "max_held", max_held, 1, MOST_HELD)
        )
        self._wait_for_publisher = bool(wait_for_publisher)
        self._has_descriptor = False
        self._prepare()
        try:
            NamespaceAdapter.share(namespace, group, self)
            self._waiter = Waiter(self._shared.adapter, self._anything, self._doze)
            self._watch = self._shared.directory.watch(TOPIC, self.name)
            self._changes = Changes(self._watch)
            self._watch.wake = without_owner(self._wake)
            self._take_changes()
            self._require_served()
            self._opened = True
            remember(self)
            here.enter_subscriber(self)
        except BaseException:
            self.close()
            raise

    # -- receiving --

    def _receive_later(self, timeout: float | None, box: list[Sample]) -> None:
        call = "Subscriber.receive"
        end = end_of(timeout, call)
        if timeout != 0 and self._spin_for(timeout, box):
            return
        poll = partial(self._take_armed, box)
        slept = False
        while True:
            self._require_open(call)
            self._check_members()
            if self._take(box):
                return
            self._require_publisher(call)
            left = left_until(end)
            if left == 0:
                raise self._late(call, timeout)
            if not slept and self._may_sleep_at_counter():
                slept = True
                if self._sleep_at_counter(1.0 if left is None else left, box):
                    return
                continue
            try:
                self._waiter.sleep(poll, self._unreached.longest(left))
            except (NdError, ValueError, OSError) as exc:
                pass_on(exc)
                # Another thread has closed it, and the last adapter; or this is a child by now.
                self._require_open(call)
                raise
            if box:
                return

    async def areceive(self, timeout: float | None = None) -> Sample:
        """Return the next sample as `receive` does, and let other tasks run meanwhile."""
        call = "Subscriber.areceive"
        self._require_open(call)
        end = end_of(timeout, call)
        box: list[Sample] = []
        loop = None  # in whose line it has waited
        try:
            while not self._take(box, call):
                self._check_members()
                if self._take(box, call):
                    break
                self._require_publisher(call)
                left = left_until(end)
                if left == 0:
                    raise self._late(call, timeout)
                loop = asyncio.get_running_loop()
                try:
                    await self._waiter._wait_in_line(self._unreached.longest(left))
                except (NdError, ValueError, OSError) as exc:
                    pass_on(exc)
                    self._require_open(call)  # as where another thread closes it meanwhile
                    raise
                self._require_open(call)
            self._waiter._wake_next(loop)
            self._require_own(call)
            return box[0]
        except BaseException as exc:
            if not is_interruption(exc):
                self._require_own(call)  # what fails in a child says less
            self._keep(box)
            self._waiter._wake_next(loop)
            raise

    def __iter__(self) -> SampleLoop:
        """Return the samples as they come, until it is closed or must not wait."""
        return SampleLoop(self)

    def __aiter__(self) -> SampleLoop:
        """Return the samples as they come, until it is closed or must not wait."""
        return SampleLoop(self)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `try_receive` may find a sample."""
        number = descriptor_while_open(self._waiter.fileno, self._require_open, "Subscriber.fileno")
        self._has_descriptor = True
        return number

    def _waits_by(self) -> tuple[Waiter, None]:
        """Return what a wait set sleeps by: a waiter, and no further descriptor."""
        self._require_open("Subscriber.fileno")
        return self._waiter, None

    def ready(self) -> bool:
        """Return whether `try_receive` would find something, be it an error. Never waits."""
        self._require_open("Subscriber.ready")
        if self._finds():
            return True
        self._check_members()
        if self._finds():
            return True
        self._trouble = bool(
            self._mismatch
            or self._evicted
            or self._unreached.trouble
            or any(source.refused for source in self._sources)
            or not (self._sources or self._wait_for_publisher)
        )
        return self._trouble

    def _late(self, call: str, timeout: float | None) -> TimeoutError:
        count = len(self._sources)
        publishers = f"{count} publisher{'s' * (count > 1)}" if count else "no publisher"
        return TimeoutError(
            f"{call}: no sample on topic {self.name!r} within {timeout} s; it has {publishers}"
            f"{self._unreached}"
        )

    # -- what it knows --

    @property
    def lost(self) -> int:
        """How many samples its policy has dropped."""
        self._find_seats()
        return self._lost_before + sum(source.lost for source in self._sources)

    @property
    def held(self) -> int:
        """How many samples are held."""
        parted = (each() for each in self._parted.valuerefs())  # another thread may add one
        return sum(source.held for source in (*self._sources, *parted) if source is not None)

    @property
    def publishers(self) -> int:
        """How many publishers the topic has now."""
        self._require_open("Subscriber.publishers")
        self._find_members()
        return sum(1 for source in self._sources if not source.gone)

    # -- what happens to it --

    def _wake(self) -> None:
        self._shared.attend_soon(self)

    def _attend(self) -> None:
        if not self.closed:
            self._take_changes()
            self._find_seats()

    def _anything(self) -> bool:
        """Return whether a poll may find a sample, a publisher, or that one is gone."""
        if self.closed or self._watch.pending or self._mismatch or self._evicted:
            return True
        return bool(self._ready() or self._unreached.trouble or self._find_seats()) or any(
            source.refused or (not source.gone and (source.neighbour.dead or source.ended))
            for source in self._sources
        )

    def _doze(self, on: bool) -> None:
        if on:
            for source in self._sources:
                source.doze()

    def _require_publisher(self, call: str) -> None:
        if self._evicted is not None:
            raise self._evicted
        self._require_served()
        if not self._wait_for_publisher and not self._sources:
            raise NoPublisher(f"{call}: topic {self.name!r} has no publisher")

    def _require_served(self) -> None:
        if self._mismatch is not None:
            raise self._mismatch
        self._unreached.raise_trouble()
        for source in self._sources:
            source._require_seat()

    # -- the end --

    def close(self) -> None:
        """End it. Samples that are held stay as they are. Harmless twice."""
        if self._has_left:
            return
        self._part_from_all()
        for part in (getattr(self, "_watch", None), getattr(self, "_waiter", None)):
            if part is not None:  # it is half-made where it was not opened
                part.close()
        shared = getattr(self, "_shared", None)
        if shared is not None:
            shared.give_back(self)
        announce_closed(self)
        self._has_left = True  # last: what a handler of a signal has interrupted is called again

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._sources)} publishers"
        return f"<Subscriber of {self.name!r}, {self.overflow}, {self.held} held, {state}>"


class SampleLoop(Loop[Subscriber]):
    """The samples of a subscriber as they come. One that the program drops goes back at once."""

    def __next__(self) -> Sample:
        subscriber = self._source
        if subscriber is None:
            raise StopIteration
        box: list[Sample] = []
        try:
            if not subscriber.closed:
                subscriber._receive_into(box)
                sample = box[0]
                del box[0]
                return sample
        except (Closed, NoPublisher):
            subscriber._require_own("Subscriber")  # in a child, nothing has closed it
        except BaseException:
            subscriber._keep(box)
            raise
        self._source = None
        raise StopIteration

    async def __anext__(self) -> Sample:
        subscriber = self._source
        if subscriber is None:
            raise StopAsyncIteration
        try:
            if not subscriber.closed:
                return await subscriber.areceive()
        except (Closed, NoPublisher):
            subscriber._require_own("Subscriber")  # in a child, nothing has closed it
        self._source = None
        raise StopAsyncIteration
