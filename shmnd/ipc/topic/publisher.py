# SPDX-License-Identifier: Apache-2.0
"""Publishers: the objects that programs send samples with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.closing import Closing
from shmnd.common.deadline import end_of, left_until
from shmnd.common.interruption import pass_on
from shmnd.common.native import direct_calls
from shmnd.common.weak import without_owner
from shmnd.directory import Changes, Directory
from shmnd.ipc.common.limits import MOST_SAMPLE, attributes_of, checked_name, number
from shmnd.ipc.common.namespace_adapter import NamespaceAdapter, remember
from shmnd.ipc.errors import LoanLimit, TypeMismatch
from shmnd.ipc.topic import here
from shmnd.ipc.topic.seats import SEAT, TOPIC, Seats
from shmnd.ipc.topic.sending import SenderInLoops
from shmnd.ipc.topic.writer_board import LEAST_LINES_LOG, MOST_SEATS, class_bytes
from shmnd.ipc.types import forms
from shmnd.provider import open_adapter
from shmnd.status import NdError
from shmnd.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shmnd.directory import Change

__all__ = ["Publisher", "SlowSubscriber"]

_HEAD_BYTES: Final = 256
_SEAT_BYTES: Final = 32
_MOST_HISTORY: Final = 1 << 18
_GROUP_BYTES: Final = 256 << 10
_FEW_SLOTS: Final = 64
_PERIOD: Final = 1.0
"""Seconds after which it gives back memory that it did not use for two of them."""


@dataclass(frozen=True)
class SlowSubscriber:
    """A subscriber that loses samples, or that the publisher waits for."""

    pid: int
    topic: str
    behind: int
    """How many samples it has not received."""
    evict: Callable[[], None] = field(repr=False, compare=False, default=lambda: None)
    """Let go of it: the publisher waits for it no longer. It gets PeerLost behind the samples that
    it still finds, and `lost` counts those that it does not."""


@direct_calls
class Publisher(SenderInLoops, Closing):
    """Sends samples to all subscribers of a topic.

    `type` is a numpy dtype, an `Array`, `Arrays`, a dataclass of numbers and arrays, bytes or
    object; None: each sample says what it is. The publisher keeps the last `history` samples for
    subscribers that come late. `max_sample` bounds the bytes of a sample, `slots` how many samples
    are on loan, unread or held, besides the history. Without them the memory grows by size classes.
    Memory that is not used for some seconds is given back to the system (`shrink`).
    `max_subscribers` bounds how many subscribers there may be. Other processes see the
    `attributes`. `on_slow`, a function, is called with a `SlowSubscriber` when a subscriber begins
    to lose samples or to block.
    """

    _shared: NamespaceAdapter
    _has_left = False

    def __init__(
        self,
        name: str,
        type: Any = None,
        *,
        history: int = 0,
        max_sample: int | None = None,
        slots: int | None = None,
        max_subscribers: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        group: int | str | None = None,
    ) -> None:
        call = "Publisher"
        self.topic = self.name = checked_name(name, call)
        self._form = forms.form_of(type, call)
        history = number(call, "history", history, 0, _MOST_HISTORY)
        self.most_sample = (
            0 if max_sample is None else number(call, "max_sample", max_sample, 1, MOST_SAMPLE)
        )
        self._most_slots = None if slots is None else number(call, "slots", slots, 1, 1 << 24)
        most = 1024 if max_subscribers is None else max_subscribers
        seats = number(call, "max_subscribers", most, 1, MOST_SEATS)
        self.attributes: Final = attributes_of(attributes, call)
        self._on_slow: Callable[[SlowSubscriber], object] | None = None
        self._slow_ones: set[int] = set()
        self._history = history
        self._shrunk = time.monotonic()
        self._groups = 0
        self._making = 0  # slots whose memory threads are about to make
        try:
            NamespaceAdapter.share(namespace, group, self)
            self._adapter = open_adapter(namespace=namespace, group=group)
            self._join(type, history, seats, call)
            remember(self)
            here.enter(self._adapter.uid, self)
            here.announce(self.name)
        except BaseException:
            self.close()
            raise

    def _find_members(self) -> None:
        """Find members, after the broker has reported all subscribers."""
        if not self.closed:
            self._shared.read_records(SEAT, self._adapter.uid)
            self._check_members()

    def _join(self, type_: Any, history: int, seats: int, call: str) -> None:
        """Make the memory of the publisher, and announce it to the subscribers of the topic."""
        directory = Directory(self._adapter)
        self._agree_with_others(directory, type_, call)
        form = self._form
        self.kind, self.dtype, self.shape = form.kind, form.dtype, form.shape
        self.fixed = form.shape is not None
        log = max(LEAST_LINES_LOG, (2 * history + 2).bit_length())
        head = self._adapter.allocate_segment(_HEAD_BYTES + _SEAT_BYTES * seats, peers="read")
        lines = self._adapter.allocate_segment(64 << log, peers="read")
        sleepers = self._adapter.allocate_segment((seats + 63) // 64 * 8)
        where = self._adapter.locate(lines)[0] << 8 | log
        self._open(head, lines, sleepers, seats, where, history)
        self._lines_log = log
        self._waiter = Waiter(self._adapter, self._may_have_room, self._block)
        self._arrivals = Waiter(self._adapter, self._enough)
        self._wanted = 0
        self._seats = Seats(self, self._adapter, seats, history)
        self._watch = directory.watch(SEAT, self._adapter.uid)
        self._changes = Changes(self._watch)
        self._watch.wake = without_owner(self._wake)
        self._announcement = directory.announce(
            TOPIC,
            self.name,
            {
                "head": self._adapter.locate(head)[0],
                "sleepers": self._adapter.locate(sleepers)[0],
                "type": form.text,
                "attributes": self.attributes,
                "history": history,
            },
        )

    def _agree_with_others(self, directory: Directory, type_: Any, call: str) -> None:
        """Take the type of the topic's other publishers if none was given, or require the same."""
        for entry in directory.find(TOPIC, self.name):
            try:
                theirs = forms.form_from_text(entry.data.get("type"))
            except ValueError as exc:
                pass_on(exc)
                continue  # no subscriber reads from one that announces nonsense
            if type_ is None:
                self._form = theirs
            forms.require_same(self._form, theirs, f"process {entry.pid}", call, self.name)
            others = entry.data.get("attributes") or {}
            if self.attributes and others and others != self.attributes:
                raise TypeMismatch(
                    f"{call}: topic {self.name!r} has attributes {self.attributes} here, and "
                    f"{others} at process {entry.pid}"
                )

    # -- memory --

    def _grow(self, number: int) -> bool:
        """Make more slots of a class; return False where no more are allowed."""
        each = (class_bytes(number) + 63) // 64 * 64
        count = max(1, min(8, _GROUP_BYTES // each), min(self._present // 16, _GROUP_BYTES // each))
        if self._most_slots is not None:
            # Those of the history come on top: they are never free.
            left = self._most_slots + self._history - self._slot_count - self._making
            if left <= 0:
                return False
            # One by one they can be given back for slots of another size.
            count = min(count, left) if self._most_slots > _FEW_SLOTS else 1
        self._making += count
        try:
            memory = self._adapter.allocate_segment(count * each, peers="read")
            segment = self._adapter.locate(memory)[0]
            self._groups += 1
            self._add_slots(memory, segment, number, each, self._groups)
        except NdError:
            self._require_open("Publisher.send")  # another thread has closed it
            raise
        finally:
            self._making -= count
        return True

    def shrink(self) -> None:
        """Release all memory that no sample needs to the system, at once.

        Memory that was not used for some seconds returns there in any call, and all but that of a
        few samples when the publisher finds that its last subscriber has left. A publisher that
        makes no further call keeps its memory.
        """
        self._require_open("Publisher.shrink")
        self._find_members()
        self._shrink_all()

    def _give_back_unused(self) -> None:
        """Release the memory that was not used for two periods to the system."""
        passed = int((time.monotonic() - self._shrunk) / _PERIOD)
        if passed:
            self._shrink(2, passed)
            self._shrunk += passed * _PERIOD

    def _full(self, call: str) -> LoanLimit:
        return LoanLimit(
            f"{call}: all {self._most_slots} slots of topic {self.name!r} are in use: "
            f"{self.loans} on loan, the others kept or held by subscribers; open the "
            "publisher with more slots, or have samples released"
        )

    # -- subscribers --

    @property
    def subscribers(self) -> int:
        """How many subscribers there are now."""
        self._require_open("Publisher.subscribers")
        self._find_members()
        return self._seats.count

    def wait_for_subscribers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until there are `n` subscribers. TimeoutError when `timeout` seconds end first.

        A subscriber counts from a call of its own on in which it meets this publisher.
        """
        call = "Publisher.wait_for_subscribers"
        self._require_open(call)
        self._wanted = number(call, "n", n, 0, MOST_SEATS)
        end = end_of(timeout, call)
        while True:
            self._check_members()
            if self._seats.count >= self._wanted:
                return
            left = left_until(end)
            if left == 0:
                raise self._too_few(n, timeout, call)
            try:
                self._arrivals.wait(self._seats.unreached.longest(left))
            except NdError:
                self._require_open(call)  # another thread has closed it
                raise
            self._require_open(call)

    def _enough(self) -> bool:
        return self._seats.count >= self._wanted or bool(self._watch.pending)

    def _wake(self) -> None:
        self._shared.attend_soon(self)

    def _attend(self) -> None:
        if not self.closed:
            self._take_changes()
            self._give_back_unused()

    def _check_members(self) -> None:
        """Find members that came or went; called every few milliseconds while the program sends."""
        if self.closed:
            return
        self._waiter.rest()
        self._take_changes()
        self._seats.come_again()
        self._seats.drop_dead()
        for seat in self._seats.closed():
            self._let_go(seat)  # it takes no more samples, whatever it still holds
        self._give_back_unused()
        if self.on_slow is not None:
            self._report_slow()

    def _take_changes(self) -> None:
        self._changes.take_in(self._take_change)

    def _take_change(self, change: Change) -> None:
        if change.gone:
            self._seats.leave(change.entry)
            if not self._seats.count:
                self._shrink(0)  # it may send nothing more for long
        else:
            self._seats.come(change.entry)

    def _more_lines(self, buffer: int, history: int) -> None:
        """Make the board as long as a subscriber with such a buffer needs it."""
        log = max(LEAST_LINES_LOG, (2 * (buffer + history) + 2).bit_length())
        if log <= self._lines_log:
            return
        lines = self._adapter.allocate_segment(64 << log, peers="read")
        self._lines_log = log
        self._move(lines, self._adapter.locate(lines)[0] << 8 | log)
        self._ring_all()

    # -- subscribers that are slow --

    @property
    def on_slow(self) -> Callable[[SlowSubscriber], object] | None:
        """The function that is called when a subscriber begins to lose samples or to block."""
        return self._on_slow

    @on_slow.setter
    def on_slow(self, report: Callable[[SlowSubscriber], object] | None) -> None:
        if report is not None and not callable(report):
            raise TypeError(
                f"Publisher.on_slow: {report!r} cannot be called; pass a function of one "
                "SlowSubscriber, or None"
            )
        self._on_slow = report

    def _report_slow(self) -> None:
        now = set(self._slow())
        self._slow_ones &= now
        for seat in now - self._slow_ones:
            self._slow_ones.add(seat)  # reported once, also where the report raises
            self._report(seat)

    def _report(self, seat: int) -> None:
        report, pid = self.on_slow, self._seats.pid_of(seat)
        if report is not None and pid is not None:
            behind = self._behind(seat)
            report(SlowSubscriber(pid, self.name, behind, lambda: self._let_go(seat)))

    def _let_go(self, seat: int) -> None:
        if not self.closed:
            self._evict(seat)
            self._seats.evicted(seat)
            self._waiter.wake()

    def _wait_for_room(self, timeout: float | None, end: float | None, call: str) -> float:
        """Wait for the subscribers that block, and return the end of the wait, for the next one.

        TimeoutError names the subscribers.
        """
        if end is None:
            end = end_of(timeout, call)
        while True:
            self._check_members()
            if self.closed or self._has_room():
                return end
            left = left_until(end)
            if left == 0:
                raise self._no_room(timeout, call)
            try:
                self._waiter.wait(left)
            except NdError:
                self._require_open(call)
                raise
            finally:
                if not self.closed:
                    self._block(False)

    def _may_have_room(self) -> bool:
        return self._has_room() or bool(self._seats.closed())

    # -- the end --

    def close(self) -> None:
        """End it: subscribers receive the samples sent so far, and learn that no more come.

        Harmless twice. Samples that subscribers hold stay as they are.
        """
        if self._has_left:
            return
        self._shut()
        self._close_parts("_announcement", "_watch")
        self._ring_all()
        self._close_parts("_waiter", "_arrivals", "_seats", "_adapter")
        shared = getattr(self, "_shared", None)
        if shared is not None:
            shared.give_back(self)
        self._has_left = True  # last: what a handler of a signal has interrupted is called again

    def _close_parts(self, *names: str) -> None:
        """Close these parts, as far as it was opened."""
        for name in names:
            part = getattr(self, name, None)
            if part is not None:
                part.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._seats.count} subscribers"
        return f"<Publisher of {self.name!r}, {self._form!r}, {self._next} samples, {state}>"
