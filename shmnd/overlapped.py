# SPDX-License-Identifier: Apache-2.0
"""Overlapped operations: what a call returns that ends later, and where its end is delivered.

An operation ends once, whatever ends it: its own step, an event, a cancel, or the release of its
object. From the moment the call returned it, its end is delivered exactly once through the
overlapped file of its object, also when it was over at once (rule G1 of the interface).

References point one way: an object keeps its pending operations, an operation keeps its file and
its progress engine, and knows its object only weakly. So the last reference to an object releases
it at once, pending operations or not, and those end with CANCELED. Until it is over an operation
keeps what it was given to work on: the queue pair of a Connect or Accept, the connector of a
request.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self, SupportsIndex

from shmnd.common.arguments import seconds, within, wrong_kind
from shmnd.common.closing import Closing, refuse_copy
from shmnd.common.weak_methods import without_owner
from shmnd.runtime.resuming import until_over
from shmnd.runtime.waiting import Readiness
from shmnd.status import NdError, Status, error, failed

if TYPE_CHECKING:
    from shmnd.handshake.interfaces import AdapterLike
    from shmnd.runtime.progress import ProgressEngine

__all__ = [
    "Overlapped",
    "OverlappedFile",
    "OverlappedObject",
    "Readiness",
    "detail_of",
    "require_file",
]

_SUCCESS: Final = Status.SUCCESS  # looked up once: a member of an enumeration takes long
Step = Callable[[], Status | None]
Cancel = Callable[["Overlapped"], bool]

_REASONS: Final = {
    Status.CANCELED: "canceled",
    Status.CONNECTION_REFUSED: "the peer refused or gave up",
    Status.CONNECTION_ABORTED: "the peer gave up",
    Status.DEVICE_REMOVED: "the adapter is gone, or was opened before fork()",
}


class Overlapped:
    """An operation that was accepted and may still be pending. Use it in a way that suits:

    `result()` waits; `done()` and `status` return at once; `await` gives way to other tasks; and
    the overlapped file of its object delivers it. Cancelling a task that awaits it does not cancel
    the operation; `cancel_overlapped_requests` of its object does.
    """

    __slots__ = (
        "__weakref__",
        "_cancel_hook",
        "_claim",
        "_detail",
        "_engine",
        "_file",
        "_final",
        "_keeps",
        "_owner",
        "_step",
        "_waiters",
        "_waits_for",
        "call",
    )

    def __init__(
        self,
        engine: ProgressEngine,
        owner: OverlappedObject | None,
        file: OverlappedFile | None,
        call: str,
        step: Step | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self.call = call
        self._engine = engine
        self._owner = None if owner is None else weakref.ref(owner)
        self._file = file
        self._step = None if step is None else without_owner(step)
        self._cancel_hook = None if cancel is None else without_owner(cancel)
        self._final: Status | None = None
        self._detail = ""
        self._waits_for = ""
        self._keeps: object = None
        self._waiters: list[Callable[[], None]] = []
        # The thread that pops the one entry ends the operation. A lock would do as well, but not
        # inside a finaliser that interrupts its holder.
        self._claim = [None]
        if step is not None:
            engine.pending_operations.add(self)

    # -- what programs use --

    @property
    def status(self) -> Status:
        """PENDING until the operation has completed, then its status. Reading it makes progress."""
        if self._final is None and self._engine.alive:
            self._engine.progress()
        return self._seen()

    def done(self) -> bool:
        """Return whether the operation has completed. The call also makes progress."""
        return self.status is not Status.PENDING

    def result(self, timeout: float | None = None) -> None:
        """Wait until the operation is over; NdError when it failed.

        Built-in TimeoutError when `timeout` seconds end first; the operation stays pending then.
        """
        if timeout is not None and not (type(timeout) is float and timeout >= 0):
            timeout = seconds(f"Overlapped.result of {self.call}", 1, "timeout", timeout)
        if self._final is None and not self._wait(timeout):
            what = f", waiting for {self._waits_for}" if self._waits_for else ""
            raise TimeoutError(f"{self.call}: still pending after {timeout} s{what}")
        if self._final is not _SUCCESS:
            self._raise_if_failed()

    def __await__(self) -> Generator[Any, None, None]:
        yield from until_over(self)
        if self._final is not _SUCCESS:
            self._raise_if_failed()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy(self)

    def __repr__(self) -> str:
        status = self._seen()
        about = f", waits for {self._waits_for}" if self._final is None and self._waits_for else ""
        if failed(status) and self._detail:
            about = f": {self._detail}"
        return f"<Overlapped {self.call} {status.name}{about}>"

    # -- what the library uses --

    def _complete(self, status: Status, detail: str = "") -> bool:
        """End the operation, unless it is over: tell whether this call did. Delivers and wakes."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        self._detail = detail
        self._final = status
        if self._step is not None:
            self._engine.pending_operations.remove(self)
        self._step = self._cancel_hook = None
        owner = None if self._owner is None else self._owner()
        if owner is not None:
            owner._forget(self)
        if self._file is not None:
            self._file._deliver(self)
        if self._waiters:
            for wake in list(self._waiters):
                wake()
        self._engine.news()
        self._keeps = None  # last: this may release it
        return True

    def _tick(self) -> None:
        """Take the operation's next step, as the progress engine does at every poll."""
        step = self._step
        if step is None or self._final is not None:
            return
        try:
            status = step()
        except NdError as err:
            self._complete(err.status, detail_of(err))
            return
        if status is not None:
            self._complete(status)

    def _keeping(self, kept: object) -> Self:
        """Keep an object alive until the operation is over; return the operation."""
        self._keeps = kept
        if self._final is not None:
            self._keeps = None
        return self

    def _cancel(self) -> None:
        """End it with CANCELED; an operation whose hook refuses continues."""
        hook = self._cancel_hook
        if hook is None or hook(self):
            self._complete(Status.CANCELED)

    def _seen(self) -> Status:
        if self._final is not None:
            return self._final
        return Status.PENDING if self._engine.alive else Status.DEVICE_REMOVED

    def _over(self) -> bool:
        return self._final is not None

    def _wait(self, timeout: float | None) -> bool:
        """Wait until it is over or the time ends; tell whether it is over."""
        return self._over() or not self._engine.alive or self._engine.wait(self._over, timeout)

    def _raise_if_failed(self) -> None:
        status = self._seen()
        if failed(status):
            raise error(status, self.call, self._detail or _REASONS.get(status, "failed"))


def detail_of(err: NdError) -> str:
    """Return the message of an error without the call before it and the status behind it."""
    _, _, detail = str(err).partition(": ")
    return detail.removesuffix(f" [{err.status.name}]") or str(err)


class OverlappedObject(Closing):
    """Base of the objects with overlapped operations: completion queues, regions, connectors, …"""

    _engine: ProgressEngine
    _file: OverlappedFile | None
    _operation: ClassVar[type[Overlapped]] = Overlapped
    """What its operations are; version 1 gives other statuses."""

    def __init__(self, engine: ProgressEngine, file: OverlappedFile | None = None) -> None:
        self._engine = engine
        self._file = file
        self._pending: dict[Overlapped, None] = {}  # in the order of submission
        self._released = False

    def cancel_overlapped_requests(self) -> None:
        """End every pending operation of this object with CANCELED, in order of submission.

        They are delivered when this returns. UNSUCCESSFUL when one could not be canceled.
        """
        call = f"{type(self).__name__}.cancel_overlapped_requests"
        self._engine.check(call)
        begun = list(self._pending)  # not what begins meanwhile, by other threads or by callbacks
        for overlapped in begun:
            overlapped._cancel()
        left = [overlapped.call for overlapped in begun if not overlapped._over()]
        if left:
            raise error(Status.UNSUCCESSFUL, call, f"too late to cancel {', '.join(left)}")

    def get_overlapped_result(self, overlapped: Overlapped, wait: bool = False) -> Status:
        """Return the final status of an operation, of this object or any other.

        PENDING while it is not over; with `wait` this blocks instead. It raises for no failure.
        """
        if not isinstance(overlapped, Overlapped):
            raise error(
                Status.INVALID_PARAMETER_1,
                f"{type(self).__name__}.get_overlapped_result",
                f"{type(overlapped).__name__} object is not an Overlapped",
            )
        if wait:
            overlapped._wait(None)
        return overlapped.status

    def close(self) -> None:
        """Release the object; pending operations end with CANCELED. Harmless when repeated."""
        self._released = True  # first: what another thread begins now sees it, or is seen below
        self._cancel_pending()

    def _poll_window(self) -> float:
        """Return the seconds for which a task polls before it sleeps; none, if a poll is dear."""
        return 0.0

    def _begin_turns(self) -> None:
        """A task polls from now on, a turn of its event loop between two polls."""

    def _take_turn(self) -> None:
        """Poll once."""

    def _end_turns(self) -> None:
        """It polls no more: what it waits for was found, or it sleeps."""

    def _start(
        self,
        call: str,
        step: Step | None = None,
        cancel: Cancel | None = None,
        waits_for: str = "",
    ) -> Overlapped:
        """Accept an operation: from here on it is delivered exactly once, whatever happens.

        `step` is called now and at every poll of the progress engine; the status that it
        returns ends the operation. `cancel` undoes the beginning and returns whether it could.
        Bound methods of the object do not keep it alive. `waits_for` is named in a TimeoutError.
        """
        overlapped = self._operation(self._engine, self, self._file, call, step, cancel)
        overlapped._waits_for = waits_for
        self._pending[overlapped] = None
        if self._released:
            overlapped._complete(Status.CANCELED, "its object was released")
        elif step is not None:
            overlapped._tick()
        return overlapped

    def _forget(self, overlapped: Overlapped) -> None:
        self._pending.pop(overlapped, None)

    def _cancel_pending(self) -> None:
        """End pending operations without asking their hooks, as a release does."""
        for overlapped in list(self._pending):
            overlapped._complete(Status.CANCELED, "its object was released")


class OverlappedFile(Closing):
    """Delivers the operations of the objects that were created with it when they complete."""

    def __init__(self, adapter: AdapterLike) -> None:
        self._adapter: Final = adapter
        self._queue: deque[Overlapped] = deque()
        self._readiness = Readiness(adapter._engine)
        self._closed = False

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._closed

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `poll` may return operations.

        For `select`, `selectors` and asyncio. A `poll` may nevertheless return none.
        """
        self._check("OverlappedFile.fileno")
        return self._readiness.fileno()

    def poll(self, max: int | None = None) -> list[Overlapped]:
        """Return the operations that ended since the last call, at most `max`, in the order of
        their ends.

        Never waits. Every operation of every object made with this file comes out exactly once,
        those that the end of the adapter has ended too.
        """
        call = "OverlappedFile.poll"
        engine = self._adapter._engine
        if not (self._queue and engine.closed):
            self._check(call)
        if max is not None:
            max = within(call, 1, "max", max, 0)
        engine.progress()
        self._readiness.clear()
        taken: list[Overlapped] = []
        try:
            while self._queue and (max is None or len(taken) < max):
                taken.append(self._queue.popleft())
        except IndexError:
            pass  # another thread took the last one
        except BaseException:
            self._queue.extendleft(reversed(taken))  # Ctrl-C: the next poll gives them
            raise
        finally:
            if self._queue:
                self._readiness.set()
        return taken

    def close(self) -> None:
        """Close the file. Its objects stay open; their operations are no longer delivered."""
        self._closed = True
        self._queue.clear()
        self._readiness.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"open, {len(self._queue)} operations to poll"
        return f"<OverlappedFile {state}>"

    def _check(self, call: str) -> None:
        if self._closed:
            raise error(Status.INVALID_HANDLE, call, "the overlapped file is closed")
        self._adapter._engine.check(call)

    def _deliver(self, overlapped: Overlapped) -> None:
        if not self._closed:
            self._queue.append(overlapped)
            self._readiness.set()


def require_file(file: object, adapter: AdapterLike, call: str) -> OverlappedFile | None:
    """Let pass None and an open file of this adapter; INVALID_HANDLE for anything else."""
    if file is None:
        return None
    if not isinstance(file, OverlappedFile):
        raise error(Status.INVALID_HANDLE, call, wrong_kind(file, "OverlappedFile"))
    if file.closed:
        raise error(Status.INVALID_HANDLE, call, "the overlapped file is closed")
    if file._adapter is not adapter:
        raise error(Status.INVALID_HANDLE, call, "the overlapped file is of another adapter")
    return file
