# SPDX-License-Identifier: Apache-2.0
"""Calls that may wait for the broker: made at once if it answers, else in a thread of their own.

A call is first made by its caller, with brief waits (`brief_waits`). If the broker does not answer
at once, the effects of the call are taken back, and a thread makes the call again. The caller then
waits as long as it wants to, whatever locks such a call waits for, and its event loop runs
meanwhile. An abandoned call continues to its end, because ending it during an exchange would end
the session of the whole process.

The thread is the exception, because it and its caller take turns with the lock of the interpreter,
each turn after the switch interval of 5 ms. It exists as long as there are calls that wait, one
for each namespace: all its calls wait for the same broker, and a caller that finds it there does
not try by itself. No lock is taken here by a caller, which a signal handler might interrupt.
"""

from __future__ import annotations

import os
import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from shmnd.common.brief_waits import TooLate, briefly
from shmnd.common.interruption import is_interruption
from shmnd.common.late import asyncio
from shmnd.runtime.awaiting.awaited import resolve_from_elsewhere

if TYPE_CHECKING:
    from pathlib import Path

    from shmnd.broker.place import Place

__all__ = ["BrokerCall", "BrokerCalls"]

_T = TypeVar("_T")


class BrokerCall(Generic[_T]):
    """One call, and its outcome."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self.over = False
        """Whether its outcome is known."""
        self._call: Callable[[], _T] | None = call
        self._value: _T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], object]] = []

    def run(self) -> None:
        """Make the call."""
        call, self._call = self._call, None
        assert call is not None
        try:
            self._value = call()
        except BaseException as exc:
            self._error = exc
        del call
        self.over = True
        self._call_back()

    def run_briefly(self, take_back: Callable[[], object]) -> bool:
        """Make the call with brief waits; return whether it is over. If not, it can be repeated."""
        assert self._call is not None
        try:
            self._value = briefly(self._call)
        except BaseException as exc:
            self._error = exc
            if isinstance(exc, TooLate) and not is_interruption(exc):
                try:
                    take_back()
                except BaseException as other:
                    self._error = other
                else:
                    self._error = None
                    return False
        self._call = None
        self.over = True
        return True

    def when_over(self, callback: Callable[[], object]) -> None:
        """Call a function when the call is over: there, or here when it is over already."""
        self._callbacks.append(callback)
        if self.over:
            self._call_back()

    def _call_back(self) -> None:
        """Call each function once, in one of the threads that come here."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback()

    def wait(self, timeout: float | None) -> bool:
        """Wait until the call is over or the time ends; return whether it is over."""
        if not self.over:
            done = threading.Lock()
            done.acquire()
            self.when_over(done.release)
            done.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        return self.over

    def result(self) -> _T:
        """Return what the call returned, or raise what it raised. The call must be over."""
        assert self.over
        exc, self._error = self._error, None
        try:
            if exc is not None:
                raise exc
            return self._value  # type: ignore[return-value]
        finally:
            del exc  # its traceback refers to this frame

    def __await__(self) -> Generator[Any, None, _T]:
        if not self.over:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self.when_over(lambda: resolve_from_elsewhere(loop, future))
            yield from future.__await__()
        return self.result()


class BrokerCalls:
    """The thread of a namespace in which such calls are made, one after another."""

    _all: ClassVar[dict[Path, BrokerCalls]] = {}

    def __init__(self) -> None:
        self._calls: Final[deque[BrokerCall[Any]]] = deque()
        self._running = False

    @classmethod
    def of(cls, place: Place) -> BrokerCalls:
        """Return the thread of a namespace."""
        return cls._all.setdefault(place.directory, cls())

    def begin(
        self,
        call: BrokerCall[Any],
        take_back: Callable[[], object] = lambda: None,
        *,
        apart: bool = False,
    ) -> None:
        """Make a call at once, with brief waits; if that fails, have the thread make it.

        With `apart` the thread makes it in any case: no handler of a signal runs there. `take_back`
        undoes what a call has done that ended with TooLate.
        """
        if apart or self._running or self._calls or not call.run_briefly(take_back):
            self._leave_to_thread(call)

    def _leave_to_thread(self, call: BrokerCall[Any]) -> None:
        self._calls.append(call)
        if self._running:
            return
        # A second thread, which two callers may start at once, does no harm. Not by `threading`,
        # whose `start` waits: where a handler of a signal ends that, the thread fails, and says so.
        try:
            start_new_thread(self._run, ())
        except RuntimeError:
            self._run()  # the interpreter is ending, or has no room for a thread

    def _run(self) -> None:
        while True:
            self._running = True
            while self._calls:
                try:
                    call = self._calls.popleft()
                except IndexError:
                    break
                call.run()
                del call  # it may be the last reference to its outcome
            self._running = False
            if not self._calls:
                return  # a caller that begins one from here on starts another thread


def _after_fork_in_child() -> None:
    BrokerCalls._all.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
