# SPDX-License-Identifier: Apache-2.0
"""Completion queues and shared receive queues: their overlapped operations and their limits.

Posting and polling are the data plane's (`shmnd.ring`); here is what happens now and then: Notify,
Resize, Modify, and the end.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Final

from shmnd.common.arguments import within
from shmnd.common.closing import made_by, why_closed
from shmnd.common.interruption import pass_on
from shmnd.common.loops import Loop
from shmnd.common.native import direct_calls
from shmnd.common.weak import without_owner
from shmnd.overlapped import (
    Overlapped,
    OverlappedFile,
    OverlappedObject,
    Readiness,
)
from shmnd.ring import NotifyCore, Result
from shmnd.status import CqNotify, NdError, Status, error, renamed

if TYPE_CHECKING:
    from shmnd.handshake.interfaces import MemoryAdapter

__all__ = ["CompletionQueue", "Result", "check_affinity"]

_ANY: Final = CqNotify.ANY  # looked up once: a member of an enumeration takes long


def processor_affinity() -> tuple[int, int]:
    """Return the processor group and mask of notifications: those this thread may run on."""
    mask = 0
    for cpu in os.sched_getaffinity(0):
        mask |= 1 << cpu
    return 0, mask & 0xFFFFFFFFFFFFFFFF


def check_affinity(call: str, number: int, group: object, affinity: object) -> None:
    """Raise unless these are a processor group and a mask. An affinity has no effect."""
    within(call, number, "group", group, 0, 0xFFFF)
    within(call, number + 1, "affinity", affinity, 0, 0xFFFFFFFFFFFFFFFF)


@direct_calls
@made_by("Adapter.create_completion_queue")
class CompletionQueue(NotifyCore, OverlappedObject):
    """A queue of results for any number of queue pairs.

    `spin` is the time in seconds for which `wait`, or the `await` of a Notify, polls before it
    sleeps: 50 µs in a new queue; 0 sleeps at once.
    """

    _depth_name: ClassVar[str] = "depth"
    """The parameter of `resize`, in errors; version 1 has another word for it."""

    def __init__(self, adapter: MemoryAdapter, depth: int, file: OverlappedFile | None) -> None:
        OverlappedObject.__init__(self, adapter._engine, file)
        self._place = adapter._bells.take()
        self._cancel_notify = without_owner(self._forget_notify)
        NotifyCore.__init__(self, adapter, depth, self._place)
        self._engine.request_progress.add(self)

    # -- one result at a time --

    _loops_wait_for: Overlapped | None = None
    """The Notify that all loops over this queue wait for; the last one may be over."""

    def _notify_loops(self) -> Overlapped:
        """Return a pending Notify for loops: one for all, or those that a time limit ends pile up.

        No file delivers it, since the program has not begun it.
        """
        call = "CompletionQueue.__aiter__"
        self._adapter._check_open(call)
        self._check_usable(call)
        shared = self._loops_wait_for
        if shared is None or shared.done():
            shared = self._start(call, None, self._cancel_notify, "a completion", delivered=False)
            self._add_notify(shared, _ANY)
            self._loops_wait_for = shared  # last: one that is not armed would hold all loops up
        return shared

    def __aiter__(self) -> ResultLoop:
        """Return results as they come, one by one, and let other tasks run meanwhile.

        No overlapped file delivers its waits, and `cancel_overlapped_requests` does not end it.
        """
        return ResultLoop(self)

    # -- Notify --

    def notify(self, type: int = CqNotify.ANY) -> Overlapped:
        """Request a notification of the next completion; the operation ends with it.

        ANY: any completion. SOLICITED: a Receive whose Send asked for it, or an error. ERRORS: a
        failure of the queue itself. One event completes all that wait.
        """
        call = "CompletionQueue.notify"
        self._adapter._check_open(call)
        kind = type
        if kind is not _ANY:
            kind = CqNotify(within(call, 1, "type", type, CqNotify.ERRORS, CqNotify.SOLICITED))
        if self._closed:
            self._check_usable(call)
        overlapped = self._start(call, None, self._cancel_notify, "a completion")
        self._add_notify(overlapped, kind)
        return overlapped

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when an armed Notify completes.

        It stays readable until `get_results` is called.
        """
        call = "CompletionQueue.fileno"
        self._check_usable(call)
        self._engine.check(call)
        readiness: Readiness = self._keep_readiness(Readiness(self._engine, call))
        try:
            fd = readiness.fileno()
        except ValueError as exc:
            pass_on(exc)
            fd = -1
        if self._closed:  # meanwhile, by another thread, which may have found no descriptor yet
            self._readiness = None
            readiness.close()
            self._check_usable(call)
        return fd

    # -- the rest --

    def resize(self, depth: int) -> None:
        """Change the depth of the queue. No result is lost; traffic may continue."""
        call = "CompletionQueue.resize"
        self._adapter._check_open(call)
        self._check_usable(call)
        most = self._adapter._limits.max_completion_queue_depth
        depth = within(call, 0, self._depth_name, depth, 1, most)
        queued = self._gather()
        if depth < queued:
            raise error(
                Status.BUFFER_OVERFLOW, call, f"{queued} results are queued, more than {depth}"
            )
        try:
            self._set_depth(depth)
        except NdError as exc:
            raise renamed(exc, call) from None

    def get_notify_affinity(self) -> tuple[int, int]:
        """Return the processor group and mask that notifications come from."""
        call = "CompletionQueue.get_notify_affinity"
        self._adapter._check_open(call)
        self._check_usable(call)
        return processor_affinity()

    def _check_usable(self, call: str) -> None:
        if self._closed:
            why = why_closed(self._adapter, "completion queue")
            raise error(Status.INVALID_HANDLE, call, why)

    def close(self) -> None:
        """Release the queue: pending Notify requests end with CANCELED, waiting threads wake up.

        Queue pairs that use it live on. Every call raises INVALID_HANDLE from then on, and
        results not taken are lost.
        """
        if self._ended:
            return  # else an interrupted close is continued
        self._shut()
        self._end_notifies()
        OverlappedObject.close(self)
        self._engine.news()
        readiness = self._readiness
        if readiness is not None:
            readiness.close()
            self._readiness = None
        self._ended = True

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._closed:
            return f"<{name} closed>"
        waiting = f", {len(self._waiting)} Notify pending" if self._waiting else ""
        return (
            f"<{name} {self._queued} of {self._depth} results, "
            f"{self._connected} queue pairs connected{waiting}>"
        )


class ResultLoop(Loop[CompletionQueue]):
    """The results of a completion queue as they come; without an end of its own."""

    def __init__(self, source: CompletionQueue) -> None:
        super().__init__(source)
        self._notification: Overlapped | None = None

    async def __anext__(self) -> Result:
        while (queue := self._source) is not None:
            # No handler of a signal runs between the step of the loop and the return.
            for results in map(queue.get_results, (1,)):
                if results:
                    return results[0]
            notification = queue._notify_loops()
            if notification is not self._notification:
                self._notification = notification
                continue  # one may have come before the Notify
            try:
                await notification
            except NdError as exc:
                queue._check_usable("CompletionQueue.__aiter__")  # closed meanwhile
                if exc.status is not Status.CANCELED:
                    raise  # else the program has canceled its own requests, and this one with them
        raise StopAsyncIteration
