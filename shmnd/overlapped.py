# SPDX-License-Identifier: Apache-2.0
"""Overlapped operations: what a call returns that ends later, and where its end is delivered.

An operation ends once, whatever ends it: its own step, an event, a cancel, or the release of its
object. From the moment the call returned it, its end is delivered exactly once through the
overlapped file of its object, also when it was over at once (rule G1 of the interface).

References point one way: an object keeps its pending operations, an operation keeps its file and
its progress engine, and refers to its object only weakly. So the last reference to an object
releases it at once, pending operations or not, and those end with CANCELED. Until it is over an
operation keeps its arguments: the queue pair of a Connect or Accept, the connector of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, SupportsIndex

from shmnd.common.arguments import seconds, truth_given, within, wrong_kind
from shmnd.common.closing import Closing, made_by, refuse_copy
from shmnd.runtime.awaiting.operation import Deliveries, Operation
from shmnd.runtime.waiting import Readiness
from shmnd.status import Status, error, failed

if TYPE_CHECKING:
    from shmnd.handshake.interfaces import AdapterLike
    from shmnd.runtime.progress import ProgressEngine

__all__ = [
    "Overlapped",
    "OverlappedFile",
    "OverlappedObject",
    "Readiness",
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


class Overlapped(Operation):
    """An operation that was accepted and may still be pending. Use it in a way that suits:

    `result()` waits; `done()` and `status` return at once; `await` lets other tasks run; and
    the overlapped file of its object delivers it. Cancelling a task that awaits it does not cancel
    the operation; `cancel_overlapped_requests` of its object does.
    """

    __slots__ = ()

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

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy(self)

    def __repr__(self) -> str:
        status = self._seen()
        about = f", waits for {self._waits_for}" if self._final is None and self._waits_for else ""
        detail = self._reported_detail()
        if failed(status) and detail:
            about = f": {detail}"
        return f"<Overlapped {self.call} {status.name}{about}>"

    # -- what the library uses --

    def _seen(self) -> Status:
        if self._final is not None:
            return self._final
        return Status.PENDING if self._engine.alive else Status.DEVICE_REMOVED

    def _reported_detail(self) -> str:
        """Return why it failed, in the words of its version of the interface."""
        return self._detail

    def _wait(self, timeout: float | None) -> bool:
        """Wait until it is over or the time ends; return whether it is over."""
        return self._over() or not self._engine.alive or self._engine.wait(self._over, timeout)

    def _raise_if_failed(self) -> None:
        status = self._seen()
        if failed(status):
            raise error(
                status, self.call, self._reported_detail() or _REASONS.get(status, "failed")
            )


class OverlappedObject(Closing):
    """Base of the objects with overlapped operations: completion queues, regions, connectors, …"""

    _engine: ProgressEngine
    _file: OverlappedFile | None
    _operation: ClassVar[type[Overlapped]] = Overlapped
    """The class of its operations; those of version 1 have other statuses."""
    _title: ClassVar[str] = ""
    """Its name in errors, if that is not the name of its class."""

    def __init__(self, engine: ProgressEngine, file: OverlappedFile | None = None) -> None:
        self._engine = engine
        self._file = file
        self._pending: dict[Overlapped, None] = {}  # in the order of submission
        self._released = False
        self._ended = False  # set by the last step of a close

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
        call = f"{self._title or type(self).__name__}.get_overlapped_result"
        if not isinstance(overlapped, Overlapped):
            raise error(
                Status.INVALID_PARAMETER_1,
                call,
                f"{type(overlapped).__name__} is not an Overlapped; pass what the call returned",
            )
        if truth_given(call, 2, "wait", wait):
            overlapped._wait(None)
        return overlapped.status

    def close(self) -> None:
        """Release the object; pending operations end with CANCELED. Harmless when repeated."""
        self._released = True  # first: what another thread begins now sees it, or is seen below
        self._cancel_pending()

    def _poll_window(self) -> float:
        """Return the seconds for which a task polls before it sleeps; 0 where a poll is costly."""
        return 0.0

    def _begin_turns(self) -> None:
        """Note that a task polls from now on, with a turn of its event loop between two polls."""

    def _take_turn(self) -> None:
        """Poll once."""

    def _end_turns(self) -> None:
        """Note that the task polls no more: it has found what it waits for, or sleeps."""

    def _start(
        self,
        call: str,
        step: Step | None = None,
        cancel: Cancel | None = None,
        waits_for: str = "",
        *,
        delivered: bool = True,
    ) -> Overlapped:
        """Return a new operation. From here on it is delivered exactly once, whatever happens.

        `step` is called now and at every poll of the progress engine; the status that it
        returns ends the operation. `cancel` takes the operation back and returns whether it could.
        Bound methods of the object do not keep it alive. `waits_for` is named in a TimeoutError.
        The file does not deliver one that the library begins for itself (`delivered`).
        """
        file = self._file if delivered else None
        overlapped = self._operation(self._engine, self, file, call, step, cancel)
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


@made_by("Adapter.create_overlapped_file")
class OverlappedFile(Deliveries, Closing):
    """Delivers the operations of the objects that were created with it when they complete."""

    def __init__(self, adapter: AdapterLike) -> None:
        self._adapter: Final = adapter
        self._readiness = Readiness(adapter._engine, "OverlappedFile.fileno")

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
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
        if not (self._queue and self._adapter._closed):
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
            self._queue.extendleft(reversed(taken))  # Ctrl-C: the next poll returns them
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
            raise error(
                Status.INVALID_HANDLE, call, "the overlapped file is closed; make a new one"
            )
        self._adapter._check_open(call)


def require_file(file: object, adapter: AdapterLike, call: str) -> OverlappedFile | None:
    """Return None or an open file of this adapter; raise INVALID_HANDLE for anything else."""
    if file is None:
        return None
    if not isinstance(file, OverlappedFile):
        raise error(Status.INVALID_HANDLE, call, wrong_kind(file, "OverlappedFile"))
    if file.closed:
        raise error(Status.INVALID_HANDLE, call, "the overlapped file is closed; make a new one")
    if file._adapter is not adapter:
        raise error(Status.INVALID_HANDLE, call, "the overlapped file is of another adapter")
    return file
