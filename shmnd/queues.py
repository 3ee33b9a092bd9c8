# SPDX-License-Identifier: Apache-2.0
"""Completion queues and shared receive queues: their overlapped operations and their limits.

Posting and polling are the data plane's (`shmnd.ring`); here is what happens now and then: Notify,
Resize, Modify, and the end.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from shmnd.overlapped import Overlapped, OverlappedFile, OverlappedObject, Readiness
from shmnd.ring import CompletionCore, QueuePair, ReceiveCore, Result
from shmnd.status import CqNotify, Status, error
from shmnd.within import within

if TYPE_CHECKING:
    from shmnd.adapter_like import MemoryAdapter

__all__ = ["CompletionQueue", "QueuePair", "Result", "SharedReceiveQueue"]

_ANY: Final = 1
_SOLICITED: Final = 2
_RETRY: Final = 0.002
"""Seconds after which a queue with requests in progress is looked at again."""


def _affinity() -> tuple[int, int]:
    """The processor group and mask that notifications come from: those this thread may run on."""
    mask = 0
    for cpu in os.sched_getaffinity(0):
        mask |= 1 << cpu
    return 0, mask & 0xFFFFFFFFFFFFFFFF


class CompletionQueue(CompletionCore, OverlappedObject):
    """Where requests of any number of queue pairs complete.

    `spin` is how many seconds `wait` looks before it sleeps; 0 sleeps at once.
    """

    def __init__(self, adapter: MemoryAdapter, depth: int, file: OverlappedFile | None) -> None:
        OverlappedObject.__init__(self, adapter.hub, file)
        self._place = adapter.bells.take()
        self._waiting: dict[Overlapped, CqNotify] = {}
        # Taken again by a finaliser that interrupts its holder.
        self._notifies = threading.RLock()
        CompletionCore.__init__(self, adapter, depth, self._place, adapter.hub.doorbell_fd)
        self._hub.carriers.add(self)

    # -- Notify --

    def notify(self, type: int = CqNotify.ANY) -> Overlapped:
        """Ask to be told of the next completion; over when there is one.

        ANY: any completion. SOLICITED: a Receive whose Send asked for it, or an error. ERRORS: a
        failure of the queue itself. One event completes all that wait.
        """
        call = "CompletionQueue.notify"
        self.adapter.check_open(call)
        kind = CqNotify(within(call, 1, "type", type, CqNotify.ERRORS, CqNotify.SOLICITED))
        self._check_usable(call)
        overlapped = self._start(call, None, self._forget_notify, "a completion")
        with self._notifies:
            self._waiting[overlapped] = kind
            self._arm()
        self.tick()
        return overlapped

    def _arm(self) -> None:
        """Arm for the strongest kind that waits, and be looked at as long as any does."""
        kinds = self._waiting.values()
        strongest = 0
        if CqNotify.ANY in kinds:
            strongest = _ANY
        elif CqNotify.SOLICITED in kinds:
            strongest = _SOLICITED
        self.arm_for(strongest)
        if strongest:
            self._hub.affairs.add(self)
        else:
            self._hub.affairs.remove(self)
            self._hub.carriers.left()

    def _forget_notify(self, overlapped: Overlapped) -> bool:
        with self._notifies:
            self._waiting.pop(overlapped, None)
            self._arm()
        return True

    def tick(self) -> None:
        """Look whether a completion satisfies those who wait for one."""
        if not self.notify_mode:
            return
        with self._notifies:
            self._arm()  # anew: a producer rings once an arming
        self.gather()
        with self._notifies:
            told = list(self._waiting) if self.triggered(self.notify_mode) else []
            for overlapped in told:
                del self._waiting[overlapped]
            if told:
                self._arm()
        for overlapped in told:
            overlapped._complete(Status.SUCCESS)
        if told and self.readiness is not None:
            self.readiness.set()
        if self.notify_mode and self.busy:
            self._hub.wake_at(time.monotonic() + _RETRY)

    def fileno(self) -> int:
        """Give a descriptor that is readable after an armed Notify completed.

        It stays readable until `get_results` is called.
        """
        call = "CompletionQueue.fileno"
        self._check_usable(call)
        self._hub.check(call)
        if self.readiness is None:
            self.readiness = Readiness(self._hub)
        return self.readiness.fileno()

    # -- the rest --

    def resize(self, depth: int) -> None:
        """Change how many results the queue holds. Nothing is lost; traffic may go on."""
        call = "CompletionQueue.resize"
        self.adapter.check_open(call)
        self._check_usable(call)
        most = self.adapter.limits.max_completion_queue_depth
        depth = within(call, 0, "depth", depth, 1, most)
        queued = self.gather()
        if depth < queued:
            raise error(
                Status.BUFFER_OVERFLOW, call, f"{queued} results are queued, more than {depth}"
            )
        self.set_depth(depth)

    def get_notify_affinity(self) -> tuple[int, int]:
        """Give the processor group and mask that notifications come from."""
        call = "CompletionQueue.get_notify_affinity"
        self.adapter.check_open(call)
        self._check_usable(call)
        return _affinity()

    def _check_usable(self, call: str) -> None:
        if self.closed:
            raise error(Status.INVALID_HANDLE, call, "the completion queue is closed")

    def close(self) -> None:
        """Release it: pending Notify requests end with CANCELED, and threads that wait wake up.

        Queue pairs that use it live on; results that are here stay readable.
        """
        if self.closed:
            return
        self.shut()
        with self._notifies:
            self._waiting.clear()
            self._arm()
        OverlappedObject.close(self)
        self._hub.news()
        readiness, self.readiness = self.readiness, None
        if readiness is not None:
            readiness.close()


class SharedReceiveQueue(ReceiveCore, OverlappedObject):
    """Receives that several queue pairs take from, in the order in which messages come."""

    def __init__(
        self,
        adapter: MemoryAdapter,
        depth: int,
        max_request_sge: int,
        notify_threshold: int,
        file: OverlappedFile | None,
    ) -> None:
        OverlappedObject.__init__(self, adapter.hub, file)
        ReceiveCore.__init__(self, adapter, adapter.registry, depth, max_request_sge)
        self._threshold = notify_threshold
        # Where its receives complete to, while somebody waits for them to be used up.
        self._watched: weakref.WeakSet[CompletionCore] = weakref.WeakSet()
        self._watching = threading.RLock()

    def modify(self, depth: int = 0, notify_threshold: int = 0) -> None:
        """Change the depth, the threshold, or both; 0 leaves one as it is."""
        call = "SharedReceiveQueue.modify"
        self.adapter.check_open(call)
        self._check_usable(call)
        most = self.adapter.limits.max_shared_receive_queue_depth
        depth = within(call, 0, "depth", depth, 0, most)
        notify_threshold = within(call, 0, "notify_threshold", notify_threshold, 0, most)
        if depth and depth < self.outstanding:
            raise error(
                Status.BUFFER_OVERFLOW,
                call,
                f"{self.outstanding} receives are outstanding, more than depth {depth}",
            )
        if depth:
            self.set_depth(depth)
        if notify_threshold:
            self._threshold = notify_threshold
        self.used_up()

    def notify(self) -> Overlapped:
        """Ask to be told when fewer receives than the threshold are outstanding."""
        call = "SharedReceiveQueue.notify"
        self.adapter.check_open(call)
        self._check_usable(call)
        with self._watching:
            overlapped = self._start(call, self._below, None, "receives to be used up")
            self.awaited = True
            self._hub.affairs.add(self)
        self.tick()
        return overlapped

    def _below(self) -> Status | None:
        return Status.SUCCESS if self.outstanding < self._threshold else None

    def used_up(self) -> None:
        """Receives may have been used up: tell those who wait for it."""
        if self._pending:
            for overlapped in list(self._pending):
                overlapped.tick()

    def tick(self) -> None:
        """Look for messages that have used receives up, for those who wait for that.

        They do so when their completion queue is looked at: who waits here need not poll.
        """
        if self._pending:
            self._look()
        self.used_up()
        self._look_away()

    def _look(self) -> None:
        with self._watching:
            for queue in self.queues():
                if queue not in self._watched:
                    self._watched.add(queue)
                    queue.watch(True)
            watched = list(self._watched)
        for queue in watched:
            queue.look()
        if any(queue.busy for queue in watched):
            self._hub.wake_at(time.monotonic() + _RETRY)

    def _look_away(self) -> None:
        """Nobody waits any more, if that is so."""
        with self._watching:
            if self._pending:
                return
            self.awaited = False
            self._hub.affairs.remove(self)
            for queue in list(self._watched):
                self._watched.discard(queue)
                queue.watch(False)
            self._hub.carriers.left()

    def get_notify_affinity(self) -> tuple[int, int]:
        """Give the processor group and mask that notifications come from."""
        call = "SharedReceiveQueue.get_notify_affinity"
        self.adapter.check_open(call)
        self._check_usable(call)
        return _affinity()

    def _check_usable(self, call: str) -> None:
        if self.closed:
            raise error(Status.INVALID_HANDLE, call, "the shared receive queue is closed")

    def close(self) -> None:
        """Release it: what is posted is dropped without completions."""
        if self.closed:
            return
        self.shut()
        OverlappedObject.close(self)
        self._look_away()
