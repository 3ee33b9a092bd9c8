# SPDX-License-Identifier: Apache-2.0
"""A publisher of another host, published again here."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from shmnd import ipc
from shmnd.status import NdError

from ..sample_kinds import ARRAYS, BYTES, OBJECT
from . import wire
from .wire import BEGIN, END, Message

if TYPE_CHECKING:
    from .carrier import Carrier

__all__ = ["LATEST", "WAITING", "WINDOW", "Incoming"]

LATEST: Final = "latest"
"""Samples that find no room on the way are dropped."""
WAITING: Final = "waiting"
"""The far publisher waits, as a subscriber here has the policy 'block'."""
WINDOW: Final = 64
"""Samples that may be on the way to subscribers that are waited for."""
_END_LIMIT: Final = 2.0
"""Seconds for which the end of a publisher is waited for, where its link lives."""
_QUIET: Final = 0.1
"""Seconds without a sample after which none is on the way from a link that has ended."""
_AGAIN_SECONDS: Final = 0.25
"""Seconds from a message that the wire did not take to its next try."""
_BEHIND: Final = 256
"""Samples that wait to be published here, where no subscriber is waited for."""


class Incoming:
    """A far publisher: samples arrive, wait in line, and are published by a thread of their own.

    The thread that receives for zenoh never waits for a subscriber here, so no topic holds up
    another one, nor the signs of life of the connection.
    """

    def __init__(
        self, carrier: Carrier, origin: str, uid: str, offer: dict[str, Any], last: int | None
    ) -> None:
        name = str(offer["name"])
        self.uid: Final = uid
        self.origin: Final = origin
        self.mode: str | None = None
        self.last: int | None = last
        """The number of the last sample; None where none is expected to follow it."""
        self._session = carrier.session
        self._here = carrier.origin
        self._traffic = carrier.counts("in", "topic", name)
        self._complain = carrier.say
        self._token: Any = None
        self._waiting: deque[tuple[Message, bytes]] = deque()
        self._came = threading.Condition()
        self._arrived = 0
        """How many messages have come."""
        self._ended = self._link_gone = False
        self._closed = self._withdrawn = False
        self._seated: set[tuple[str, int]] = set()
        type_ = ipc.TopicType.from_description(offer["type"])
        self._objects = carrier.objects
        self._kind: Final = type_.description
        """`bytes`, `object`, `any`, or what the arrays of the topic are."""
        self.history: Final = int(offer["history"])
        self.publisher: Final = ipc.Publisher(
            name,
            type_,
            history=self.history,
            attributes=offer["attributes"] or None,
            namespace=carrier.namespace,
        )
        self._data = self._session.listen(wire.key("data", origin, uid), self._on_sample)
        self._thread = threading.Thread(target=self._run, name=f"link of {name}")
        self._thread.start()

    @property
    def publisher_uid(self) -> str:
        """The adapter of the publisher here."""
        return self.publisher._adapter.uid

    def seat(self, found: set[tuple[str, int]]) -> None:
        """Let the publisher here take in its subscribers, before samples come for them.

        Its board gets the length that they ask for; the samples may come faster than that.
        """
        if found - self._seated:
            try:
                _ = self.publisher.subscribers
            except ipc.Closed:
                return
        self._seated = found

    def want(self, mode: str | None) -> None:
        """Ask the far link to send samples in this manner, or none."""
        if mode == self.mode:
            return
        if self.mode is None and self._withdrawn:
            self.last = None  # samples sent while no subscriber wanted them are not lost
        before, self._token = self._token, None
        self.mode = mode
        if mode is not None:
            self._token = self._session.token(
                wire.key("want", self.origin, self.uid, self._here, mode)
            )
        self._withdrawn = mode is None
        if before is not None:
            self._session.end([before])

    def withdraw(self) -> None:
        """Withdraw the wish for the far publisher, which has ended: its key may come again."""
        token, self._token = self._token, None
        if token is not None:
            self._session.end([token])

    def _on_sample(self, key: str, payload: bytes, attachment: bytes) -> None:
        try:
            message = wire.unpack(attachment)
        except ValueError as exc:
            self._complain(f"{self.publisher.name}: {exc}")
            return
        with self._came:
            if self.mode != WAITING and len(self._waiting) >= _BEHIND:
                # Its number is missing, and counts as lost: BEGIN, if it waits, says since when.
                del self._waiting[self._waiting[0][0].kind == BEGIN]
            self._waiting.append((message, payload))
            self._arrived += 1
            self._came.notify_all()

    def _run(self) -> None:
        while True:
            with self._came:
                while not self._waiting and not self._closed:
                    self._came.wait()
                if not self._waiting:
                    return
                message, payload = self._waiting.popleft()
                left = len(self._waiting)
            try:
                self._take(message, payload)
            except ipc.Closed:
                return
            except (ValueError, TypeError, MemoryError, ipc.LoanLimit, NdError) as exc:
                self._traffic.lost += 1
                self._complain(f"{self.publisher.name}: a sample was dropped: {exc}")
            if self.mode == WAITING and (not left or message.sequence % (WINDOW // 4) == 0):
                self._acknowledge(message.sequence)

    def _take(self, message: Message, payload: bytes) -> None:
        last = self.last
        if message.kind == BEGIN:
            if last is None:
                self.last = message.sequence - 1
            return
        if last is not None and not (message.kind == END and self.mode is None):
            if message.sequence <= last and message.kind != END:
                return  # it came before, by the subscription that this one replaces
            self._traffic.lost += max(0, message.sequence - last - 1)
        if message.kind == END:
            self.last = message.sequence - 1
            with self._came:
                self._ended = True
                self._came.notify_all()
            return
        self.last = message.sequence
        publisher = self.publisher
        if message.kind in ARRAYS and self._kind not in ("bytes", "object"):
            publisher.send(wire.array_of(message, payload), message.header)
        elif message.kind == BYTES and self._kind in ("bytes", "any"):
            publisher.send(memoryview(payload), message.header)
        elif message.kind == OBJECT and self._objects:
            publisher.send(ipc.PackedObject(payload), message.header)
        else:
            raise ValueError(f"kind {message.kind} on a topic of {publisher.type!r}")
        self._traffic.number += 1
        self._traffic.nbytes += len(payload)

    def _acknowledge(self, sequence: int) -> None:
        """Report to the far link how far this one has come: it waits for that."""
        key = wire.key("taken", self.origin, self.uid, self._here)
        while not self._closed:
            try:
                self._session.send(key, sequence.to_bytes(8, "little"), block=True)
            except OSError as exc:
                self._complain(f"{self.publisher.name}: {exc}")
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def note_link(self, *, there: bool) -> None:
        """Note whether the far link is there: one that has ended sends no end of a publisher."""
        with self._came:
            self._link_gone = not there
            self._came.notify_all()

    def _await_end(self) -> None:
        """Wait for the samples that are on the way: the end of the token may have overtaken them.

        Behind them comes the end of the publisher, unless its link has ended.
        """
        limit = time.monotonic() + _END_LIMIT
        with self._came:
            while not self._ended and (left := limit - time.monotonic()) > 0:
                if not self._link_gone:
                    self._came.wait(left)
                    continue
                if not self._comes_within(min(left, _QUIET)):
                    return

    def _comes_within(self, seconds: float) -> bool:
        """Return whether a message comes; the lock is held."""
        before = self._arrived
        return self._came.wait_for(lambda: self._arrived != before, seconds)

    def close(self, *, drain: bool = True) -> None:
        """End the publisher here, after the samples that have come or are on the way."""
        if drain:
            self._await_end()
        self._session.end([self._data])
        self.withdraw()
        with self._came:
            self._closed = True
            if not drain:
                self._waiting.clear()
            self._came.notify_all()
        self._thread.join(1.0 if drain else 0.0)
        self.publisher.close()  # wakes the thread, if it waits for a subscriber
        self._thread.join()
