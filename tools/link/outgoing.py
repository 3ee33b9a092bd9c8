# SPDX-License-Identifier: Apache-2.0
"""A topic of this host, sent to the links of others as long as they want it."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmnd import ipc
from shmnd.ipc.types import forms
from shmnd.status import NdError

from ..sample_kinds import KINDS
from . import wire
from .chosen import Chosen, Start
from .incoming import WINDOW
from .wire import Message
from .wishes import Wishes

if TYPE_CHECKING:
    from .carrier import Carrier

__all__ = ["Outgoing"]

_POLL_SECONDS: Final = 0.25
"""Seconds after which the thread of a topic checks whether it is to end."""
_GRACE: Final = 1.0
"""Seconds in which a publisher that has just come is read from its first sample on."""
_LONGEST_AGAIN: Final = 30.0
"""Seconds for which a sample that is not to be lost is sent again, while the wire refuses it."""
_SILENCE: Final = 1.0
"""Seconds after which a link that is waited for is asked how far it has come."""
_BEHIND: Final = 256
"""Samples that wait for the wire, where no far subscriber is waited for."""
_MOST_DRAINED: Final = 1 << 16
"""Samples that are read of a subscriber before it is replaced."""
_CALL: Final = "link"


@dataclass(slots=True)
class _Sending:
    """A publisher of the topic, from when it is offered until its end is sent."""

    token: Any
    """Its offer; None from when its end was sent."""
    came: float | None
    """When it came, if the topic was wanted then and it is not read yet."""
    sent: int = -1
    """The last sample of it that was sent."""
    next: int = 0
    """The sample that follows those that were read."""
    ending: bool = False
    """It has gone, and its end is still to be sent."""
    again: str | None = None
    """It came again before its end was sent: as others hear of it then."""


class Outgoing:
    """A topic: one subscriber for all its publishers, in a thread of its own.

    The subscriber drops the oldest samples, or blocks the publishers where a far subscriber does.
    """

    def __init__(self, carrier: Carrier, name: str) -> None:
        self.name: Final = name
        self._session = carrier.session
        self._here = carrier.origin
        self._traffic = carrier.counts("out", "topic", name)
        self._namespace = carrier.namespace
        self._complain = carrier.say
        self._objects = carrier.objects
        self._changed = threading.Condition()
        self._publishers: dict[str, _Sending] = {}
        """By their adapters."""
        self._wishes = Wishes()
        self._to_begin = False
        """Whether BEGIN may be missing for a link: nothing is looked for at each sample."""
        self._totals: dict[str, int] = {}
        """How many samples each publisher had sent when it was read for the last time."""
        self._ended: list[str] = []
        """The publishers that have gone, in this order."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"link to {name}")
        self._thread.start()

    # -- called by the link

    def enter(self, uid: str, announced: str) -> None:
        """Offer a publisher to other links; one that comes again, behind its end."""
        with self._changed:
            found = self._publishers.get(uid)
            if found is not None and found.ending:
                found.again = announced
            else:
                self._offer(uid, announced)

    def _offer(self, uid: str, announced: str) -> None:
        came = time.monotonic() if self._wishes.wants else None
        token = self._session.token(wire.key("pub", self._here, uid, announced))
        self._publishers[uid] = _Sending(token, came)

    def leave(self, uid: str) -> None:
        """Let the thread send what a publisher that has gone left, and then its end."""
        with self._changed:
            found = self._publishers.get(uid)
            if found is None:
                return
            found.again = None
            if not found.ending:
                found.ending = True
                self._ended.append(uid)
                self._changed.notify_all()

    def offers(self, uid: str) -> bool:
        """Return whether a publisher is offered: it is there, or its end is still to be sent."""
        with self._changed:
            return uid in self._publishers

    def want(self, uid: str, far: str, mode: str, *, wanted: bool) -> None:
        """Note that a link wants a publisher in a manner, or no longer."""
        with self._changed:
            found = self._publishers.get(uid)
            if found is None or found.token is None:
                return  # the publisher has ended
            if wanted:
                self._wishes.add(uid, far, mode)
                self._to_begin = True
            else:
                self._wishes.remove(uid, far, mode)
            self._changed.notify_all()

    def taken(self, uid: str, far: str, sequence: int) -> None:
        """Note how far a link has come."""
        with self._changed:
            if self._wishes.taken(uid, far, sequence):
                self._changed.notify_all()

    def close(self) -> None:
        """End the thread and the offers of the topic."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        self._thread.join()
        tokens = [each.token for each in self._publishers.values() if each.token is not None]
        self._session.end(tokens)

    # -- the thread of the topic

    def _run(self) -> None:
        sub: Chosen | None = None
        try:
            while not self._closed.is_set():
                try:
                    sub = self._subscriber_as_wanted(sub)
                    self._step(sub)
                except TimeoutError:
                    continue
                except (ipc.PeerLost, ipc.TypeMismatch, ipc.LoanLimit) as exc:
                    self._complain(f"{self.name}: {exc}")
                    if sub is None:
                        self._closed.wait(_POLL_SECONDS)  # there was no place for one
                    else:
                        sub.close()
                        sub = None
                except (OSError, NdError, MemoryError) as exc:  # of the wire, or of memory
                    self._complain(f"{self.name}: {exc}")
                    self._closed.wait(_POLL_SECONDS)
        finally:
            if sub is not None:
                sub.close()

    def _step(self, sub: Chosen | None) -> None:
        """Send what precedes the next sample, wait for that one and send it."""
        if sub is not None:
            self._begin(sub)
        self._send_ends(sub)
        if sub is not None:
            with sub.receive(_POLL_SECONDS) as sample:
                self._send(sub, sample, newest=not sub.ready())
            return
        with self._changed:
            if not (self._closed.is_set() or self._ended or self._wishes.wants):
                self._changed.wait()

    def _subscriber_as_wanted(self, sub: Chosen | None) -> Chosen | None:
        """Return the subscriber for the publishers that links want: as it is, or a new one."""
        with self._changed:
            policy, wanted = self._wishes.policy(), set(self._wishes.wants)
        if (None if sub is None else sub.overflow) != policy:
            sub = self._replaced(sub, policy)
        if sub is not None:
            for uid in sub.chosen - wanted:
                sub.leave(uid)
            for uid in wanted - sub.chosen:
                sub.choose(uid, self._start(uid))
        return sub

    def _start(self, uid: str) -> Start:
        found = self._publishers[uid]
        came, found.came = found.came, None
        return Start(early=came is not None and time.monotonic() - came < _GRACE)

    def _begin(self, sub: Chosen) -> None:
        """Send each link that wants a publisher the number with which its samples begin.

        They may be dropped, here or on the way: a link counts those that are missing from there on.
        """
        if not self._to_begin:
            return
        with self._changed:
            self._to_begin = False
            news = self._wishes.not_begun()
        try:
            self._begin_each(sub, news)
        except BaseException:
            self._to_begin = True  # at the next sample, with those that were left
            raise

    def _begin_each(self, sub: Chosen, news: set[str]) -> None:
        for uid in news:
            first = sub.first(uid)
            if first is None:
                self._to_begin = True  # it is not read yet
                continue
            number = max(first, self._publishers[uid].next)
            begin = wire.pack(Message(wire.BEGIN, number))
            with self._changed:
                links = self._wishes.begin(uid)
            try:
                self._session.send(wire.key("data", self._here, uid), b"", begin, block=True)
            except BaseException:
                with self._changed:
                    self._wishes.begin_failed(links)
                raise

    def _replaced(self, old: Chosen | None, policy: str | None) -> Chosen | None:
        """Return a subscriber of this policy; the one before gives what it has first."""
        new = None
        if policy is not None:
            new = Chosen(
                self.name,
                self._totals,
                {uid: Start(history=0) for uid in (() if old is None else old.chosen)},
                overflow=policy,
                buffer=WINDOW if policy == "block" else _BEHIND,
                namespace=self._namespace,
            )
        if old is not None:
            try:
                if new is not None:
                    self._drain(old)
            except BaseException:
                if new is not None:
                    new.close()  # the old one is replaced at the next time
                raise
            old.close()
        return new

    def _drain(self, sub: Chosen) -> None:
        for _ in range(_MOST_DRAINED):
            sample = sub.try_receive()
            if sample is None or self._closed.is_set():
                return
            with sample:
                self._send(sub, sample, newest=not sub.ready())

    def _send_ends(self, sub: Chosen | None) -> None:
        """Send what publishers that have gone left, and then how many samples they had sent."""
        with self._changed:
            ended, self._ended = self._ended, []
        if not ended:
            return
        try:
            if sub is not None:
                _ = sub.publishers  # hears of all that came and went
                self._drain(sub)
                sub.note_totals()
                for uid in ended:
                    sub.leave(uid)  # here, as it notes a total once more
            while ended:
                self._end(ended[0])
                del ended[0]
        except BaseException:
            with self._changed:
                self._ended[:0] = ended  # sent at the next time
            raise

    def _end(self, uid: str) -> None:
        """Report to the links how many samples a publisher has sent, and end its token."""
        found = self._publishers[uid]
        total = max(self._totals.get(uid, 0), found.next)
        message = wire.pack(Message(wire.END, total))
        self._session.send(wire.key("data", self._here, uid), b"", message, block=True)
        self._totals.pop(uid, None)
        with self._changed:
            token, found.token = found.token, None
            self._wishes.forget(uid)
        self._session.end([token] if token is not None else [])
        with self._changed:
            del self._publishers[uid]
            if found.again is not None:
                self._offer(uid, found.again)

    def _send(self, sub: Chosen, sample: Any, *, newest: bool = False) -> None:
        """Send a sample. The newest one is never dropped on the way: none may come after it."""
        uid = sample.publisher.uid
        self._begin(sub)
        with self._changed:
            if uid not in self._wishes.wants:
                return
            self._wishes.expect(uid, sample.sequence)
        found = self._publishers[uid]  # this thread ends it
        waited = self._await_room(uid, sample.sequence)
        found.next = max(found.next, sample.sequence + 1)
        try:
            kind = sample.kind
            if kind == "object" and not self._objects:
                self._traffic.lost += 1
                return
            array = sample.array
            meta = b"" if kind != "array" else forms.description(array, _CALL)
        except (ValueError, TypeError) as exc:  # its publisher wrote what makes no sense
            self._traffic.lost += 1
            self._complain(f"{self.name}: a sample is left out: {exc}")
            return
        packed = wire.pack(Message(KINDS[kind], sample.sequence, sample.header, meta))
        end = time.monotonic() + _LONGEST_AGAIN
        before, found.sent = found.sent, sample.sequence  # first: it may be taken at once
        while not self._try_send(uid, array, packed, block=newest or bool(waited)):
            waited = self._still_waited(uid, waited)
            newest = newest and not sub.ready()
            if not (waited or newest) or self._closed.is_set() or time.monotonic() > end:
                self._traffic.lost += 1  # the far side finds the gap in the numbers
                found.sent = before
                return
            self._closed.wait(_POLL_SECONDS)

    def _await_room(self, uid: str, sequence: int) -> list[str]:
        """Wait until few samples are unacknowledged; return the links that are waited for then.

        A silent link is asked once how far it has come: its zenoh may have refused messages, for
        example because they are too long, and this side gets no notice of that.
        """
        ask_at = time.monotonic() + _SILENCE
        while True:
            with self._changed:
                waited = self._wishes.waited_for(uid)
                full = self._wishes.is_full(uid, sequence, self._publishers[uid].sent)
                if not waited or self._closed.is_set() or not full:
                    return waited
                self._changed.wait(_POLL_SECONDS)
            if time.monotonic() > ask_at:
                ask_at = math.inf if self._ask_progress(uid) else time.monotonic() + _SILENCE

    def _ask_progress(self, uid: str) -> bool:
        """Ask each link how far it has come, after all other messages; return False on failure."""
        message = wire.pack(Message(wire.BEGIN, self._publishers[uid].sent + 1))
        try:
            self._session.send(wire.key("data", self._here, uid), b"", message, block=True)
        except OSError as exc:
            self._complain(f"{self.name}: {exc}")
            return False
        return True

    def _try_send(self, uid: str, array: Any, packed: bytes, *, block: bool) -> bool:
        """Send the bytes of a sample; return whether the wire took them."""
        try:
            payload = np.ascontiguousarray(array).tobytes()
            self._session.send(wire.key("data", self._here, uid), payload, packed, block=block)
        except (OSError, MemoryError) as exc:
            self._complain(f"{self.name}: {exc}")
            return False
        self._traffic.number += 1
        self._traffic.nbytes += len(payload)
        return True

    def _still_waited(self, uid: str, waited: list[str]) -> list[str]:
        with self._changed:
            now = self._wishes.waited_for(uid)
        return [far for far in waited if far in now]
