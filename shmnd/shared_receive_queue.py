# SPDX-License-Identifier: Apache-2.0
"""The shared receive queue: its overlapped operations, its thresholds and its limits."""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from shmnd.common.arguments import within
from shmnd.common.closing import made_by, why_closed
from shmnd.common.held import Held
from shmnd.common.native import direct_calls
from shmnd.completion_queue import processor_affinity
from shmnd.overlapped import (
    Overlapped,
    OverlappedFile,
    OverlappedObject,
)
from shmnd.ring import ReceiveCore
from shmnd.status import Status, error

if TYPE_CHECKING:
    from shmnd.handshake.interfaces import MemoryAdapter
    from shmnd.ring.queues.polling import PollingCore

__all__ = ["SharedReceiveQueue"]

_RETRY: Final = 0.002
"""Seconds after which a queue with requests in progress is polled again."""


@direct_calls
@made_by("Adapter.create_shared_receive_queue")
class SharedReceiveQueue(ReceiveCore, OverlappedObject):
    """Receives for several queue pairs, used in the order in which messages arrive."""

    def __init__(
        self,
        adapter: MemoryAdapter,
        depth: int,
        max_request_sge: int,
        notify_threshold: int,
        file: OverlappedFile | None,
    ) -> None:
        OverlappedObject.__init__(self, adapter._engine, file)
        ReceiveCore.__init__(self, adapter, adapter._registry, max(1, depth), max_request_sge)
        if not depth:  # it takes a Receive once Modify has set another depth
            self._set_depth(depth)
        self._threshold = notify_threshold
        # The completion queues of its receives, while a Notify waits for them to be used up.
        self._watched: weakref.WeakSet[PollingCore] = weakref.WeakSet()
        self._watching = threading.RLock()

    def modify(self, depth: int = 0, notify_threshold: int = 0) -> None:
        """Change the depth, the threshold, or both; 0 leaves one as it is, also a depth of 0."""
        call = "SharedReceiveQueue.modify"
        self._adapter._check_open(call)
        self._check_usable(call)
        most = self._adapter._limits.max_shared_receive_queue_depth
        depth = within(call, 0, "depth", depth, 0, most)
        notify_threshold = within(call, 0, "notify_threshold", notify_threshold, 0, most)
        if depth and depth < self._outstanding:
            raise error(
                Status.BUFFER_OVERFLOW,
                call,
                f"{self._outstanding} receives are outstanding, more than depth {depth}",
            )
        if depth:
            self._set_depth(depth)
        if notify_threshold:
            self._threshold = notify_threshold
        self._used_up()

    def notify(self) -> Overlapped:
        """Request a notification once fewer receives than the threshold are outstanding."""
        call = "SharedReceiveQueue.notify"
        self._adapter._check_open(call)
        self._check_usable(call)
        with Held(self._watching):
            overlapped = self._start(call, self._below, None, "receives to be used up")
            self._awaited = True
            self._engine.pending_operations.add(self)
        self._tick()
        return overlapped

    def _below(self) -> Status | None:
        return Status.SUCCESS if self._outstanding < self._threshold else None

    def _used_up(self) -> None:
        """Complete the Notify operations whose threshold the outstanding Receives have passed."""
        if self._pending:
            for overlapped in list(self._pending):
                overlapped._tick()

    def _tick(self) -> None:
        """Take messages, which use up Receives, for Notify operations that wait for that.

        Messages use up Receives at a poll of their completion queue; a waiter need not poll it.
        """
        if self._pending:
            self._poll_queues()
        self._used_up()
        self._stop_polling()

    def _poll_queues(self) -> None:
        with Held(self._watching):
            for queue in self._queues():
                if queue not in self._watched:
                    self._watched.add(queue)
                    queue._watch(True)
            watched = list(self._watched)
        for queue in watched:
            queue._poll()
        if any(queue._busy for queue in watched):
            retry = time.monotonic() + _RETRY
            due = min((due for queue in watched if (due := queue._due)), default=retry)
            self._engine.wake_at(min(due, retry))

    def _stop_polling(self) -> None:
        """Stop polling, if no Notify waits any more."""
        with Held(self._watching):
            if self._pending:
                return
            self._awaited = False
            self._engine.pending_operations.remove(self)
            for queue in list(self._watched):
                self._watched.discard(queue)
                queue._watch(False)
            self._engine.request_progress.poller_left()

    def get_notify_affinity(self) -> tuple[int, int]:
        """Return the processor group and mask that notifications come from."""
        call = "SharedReceiveQueue.get_notify_affinity"
        self._adapter._check_open(call)
        self._check_usable(call)
        return processor_affinity()

    def _check_usable(self, call: str) -> None:
        if self._closed:
            why = why_closed(self._adapter, "shared receive queue")
            raise error(Status.INVALID_HANDLE, call, why)

    def close(self) -> None:
        """Release the queue: posted Receives are dropped without completions."""
        if self._ended:
            return  # else an interrupted close is continued
        self._shut()
        OverlappedObject.close(self)
        self._stop_polling()
        self._ended = True

    def __repr__(self) -> str:
        if self._closed:
            return "<SharedReceiveQueue closed>"
        return (
            f"<SharedReceiveQueue {self._outstanding} of {self._depth} receives, "
            f"{self._pairs} queue pairs, threshold {self._threshold}>"
        )
