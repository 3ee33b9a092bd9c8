# SPDX-License-Identifier: Apache-2.0
"""The thread that polls requests in progress whose completion queue is not polled.

Requests make progress when a thread polls, so a thread that sleeps for something else does, in a
call, in an event loop or on a descriptor: it polls before it sleeps, and events that let those
requests continue wake it. A queue that another thread polls is left to that thread, and its
traffic wakes no other. A thread that polls one queue in vain polls the others now and then.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from shmnd.common.held import Held
from shmnd.ring.process.waiting import LONGEST_SLEEP, Sleepers
from shmnd.ring.queues.sleeping import others_are_idle

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import PolledQueue
    from shmnd.runtime.waiting import WaitSet

__all__ = ["RequestProgress"]

_ROUND_NS: Final = 5_000_000
"""Nanoseconds between two rounds over all queues, whichever queue's poll begins them."""
_GRACE: Final = 0.01
"""Seconds without a poll of a queue after which sleeping threads poll it."""


class RequestProgress(Sleepers):
    """The completion queues of one progress engine, and what threads that sleep do for them.

    A sleeping thread calls `begin` before and `end` afterwards, with an object of its own, and
    polls by `poll_unattended` in between.
    """

    def __init__(self, wait_set: WaitSet) -> None:
        self._wait_set = wait_set
        # By queue: its number of polls, and the moment since which that has been the same.
        self._seen: dict[int, tuple[int, float]] = {}
        self._others_are_idle = others_are_idle
        self._last_round = 0
        self._left_out: weakref.ref[PolledQueue] | None = None
        """The queue whose call began the last round, until another one has polled it."""

    def add(self, queue: PolledQueue) -> None:
        """Let sleeping threads continue the requests of a queue, which is held weakly."""
        key = id(queue)
        self._forget(key)  # an earlier one that was there may have left its entries
        self._queues[key] = weakref.ref(queue, lambda _: self._forget(key))
        queue._announcing = bool(self._sleepers)

    def _forget(self, key: int) -> None:
        """Drop the entries of a queue.

        If a signal handler raises before that, at the end of a weak reference, the interpreter
        drops the exception and the entries stay.
        """
        self._queues.pop(key, None)
        self._watched.discard(key)
        self._seen.pop(key, None)

    def _all(self) -> list[PolledQueue]:
        found = []
        for key, reference in list(self._queues.items()):
            queue = reference()
            if queue is not None:
                found.append(queue)
            elif self._queues.get(key) is reference:
                self._forget(key)
        return found

    def is_round_due(self, now: int) -> bool:
        """Return whether all queues are to be polled again, at `now` in nanoseconds.

        If each queue that is polled began rounds of its own, a process with many busy queues would
        do nothing else. Two threads may begin a round at once, which is harmless.
        """
        return now - self._last_round >= _ROUND_NS

    def poll_others(self, caller: PolledQueue, now: int) -> None:
        """Begin a round at `now`: continue the requests of all queues but the caller."""
        self._last_round = now
        self._left_out = weakref.ref(caller)
        self.poll(caller)

    def poll_left_out(self, caller: PolledQueue) -> None:
        """Continue the requests of the queue that began the last round, which left it out.

        The program may only post to that queue, and its calls may begin every round.
        """
        queue = None if self._left_out is None else self._left_out()
        if queue is not None and queue is not caller:
            self._left_out = None
            if queue._busy:
                queue._poll()

    def poll(self, besides: PolledQueue | None = None) -> None:
        """Continue the requests of all queues but one, as far as they go now."""
        for queue in self._all():
            if queue._busy and queue is not besides:
                queue._poll()

    # -- while a thread sleeps --

    def _unwatch(self) -> None:
        for queue in self._all():
            self._watch_or_not(queue, False)

    def _poll_soon(self) -> None:
        self._wait_set.wake_at(time.monotonic() + _GRACE)

    def _poll_unattended(self) -> None:
        with Held(self._lock):
            unattended = self._choose() if self._sleepers else []
        for queue, polls in unattended:
            connected = queue._connected
            queue._poll()
            due = queue._due
            self._wait_set.wake_at(time.monotonic() + LONGEST_SLEEP if due is None else due)
            # A thread that began to wait meanwhile has not seen what this poll took, and no
            # connector that this poll ended a connection.
            if queue._polls != polls or queue._notify_mode or queue._connected != connected:
                self._wait_set.ring()

    def _choose(self) -> list[tuple[PolledQueue, int]]:
        """Return the busy queues that no thread polls, with their polls; watch these alone."""
        chosen = []
        for queue in self._all():
            watched = id(queue) in self._watched
            attended = queue._notify_mode != 0 if watched else queue._attended
            queue._announcing = not attended and not queue._busy
            polls = queue._polls
            unattended = not attended and queue._busy and self._is_left_alone(queue, polls)
            if unattended is not watched:
                self._watch_or_not(queue, unattended)
            if unattended:
                chosen.append((queue, polls))
        return chosen

    def _is_left_alone(self, queue: PolledQueue, polls: int) -> bool:
        now = time.monotonic()
        seen, since = self._seen.get(id(queue), (None, now))
        if seen != polls:
            since = now
            self._seen[id(queue)] = polls, now
        if now - since < _GRACE:
            self._wait_set.wake_at(since + _GRACE)
            return False
        return True

    def _watch_or_not(self, queue: PolledQueue, on: bool) -> None:
        key = id(queue)
        if on is (key in self._watched):
            return
        queue._watch(on)
        if on:
            self._watched.add(key)
        else:
            self._watched.remove(key)

    def clear(self) -> None:
        """Forget threads and queues after fork: they are the parent's. No thread sleeps here."""
        self._lock = threading.RLock()  # its holder is not here
        self._sleepers.clear()
        self._queues.clear()
        self._watched.clear()
