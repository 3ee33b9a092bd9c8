# SPDX-License-Identifier: Apache-2.0
"""Futures that end when others have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from shmnd.common.held import Held


class Outcome:
    """The one outcome of a future that others decide: the first that is set counts.

    A cancellation of the future is an outcome, too; it cancels `sources`.
    """

    def __init__(self, future: Future[Any], sources: Iterable[Future[Any]] = ()) -> None:
        """Decide this future."""
        self.future = future
        self._sources = list(sources)
        self._lock = threading.Lock()
        self._decided = False
        future.add_done_callback(self._ended)

    def _decides(self) -> bool:
        with Held(self._lock):
            first, self._decided = not self._decided, True
        return first

    def _ended(self, future: Future[Any]) -> None:
        if not future.cancelled():
            return
        if self._decides():
            future.set_running_or_notify_cancel()  # so that `wait` sees it
        for source in self._sources:
            source.cancel()

    def succeed(self, value: Any) -> None:
        """End with a value."""
        if self._decides() and self.future.set_running_or_notify_cancel():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """End with an exception."""
        if self._decides() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def handle(self, handler: Callable[[BaseException], Any], error: BaseException) -> None:
        """End with what a handler makes of an exception: a value, or an exception to raise."""
        try:
            value = handler(error)
        except BaseException as another:
            value = another
        if isinstance(value, BaseException):
            self.fail(value)
        else:
            self.succeed(value)


def collect(fs: Iterable[Future[Any]]) -> Future[list[Any]]:
    """Gather a collection of futures in a new future.

    If one fails or is cancelled, so does and is the new one, and the others are cancelled.
    """
    given = list(fs)
    made: Future[list[Any]] = (type(given[0]) if given else Future)()
    outcome = Outcome(made, given)
    lock, left = threading.Lock(), len(given)

    def ended(future: Future[Any]) -> None:
        nonlocal left
        with Held(lock):
            left -= 1
            last = left == 0
        if future.cancelled():
            made.cancel()
        elif (error := future.exception()) is not None:
            outcome.fail(error)
            for each in given:
                each.cancel()
        elif last and all(not each.cancelled() and each.exception() is None for each in given):
            outcome.succeed([each.result() for each in given])

    for each in given:
        each.add_done_callback(ended)
    if not given:
        outcome.succeed([])
    return made


def in_order(fs: Iterable[Future[Any]]) -> Future[list[Any]]:
    """Gather a collection of futures as `collect` does, with the first failure in order.

    It is known when those before it have succeeded: a later one may end earlier.
    """
    given = list(fs)
    made: Future[list[Any]] = Future()
    outcome = Outcome(made, given)
    left = iter(given)

    def proceed(done: Future[Any] | None) -> None:
        while done is not None:
            if done.cancelled():
                made.cancel()
                return
            if (error := done.exception()) is not None:
                outcome.fail(error)
                for each in given:
                    each.cancel()
                return
            done = next(left, None)
            if done is not None and not done.done():
                done.add_done_callback(proceed)
                return
        outcome.succeed([each.result() for each in given])

    proceed_from = next(left, None)
    if proceed_from is None:
        outcome.succeed([])
    else:
        proceed_from.add_done_callback(proceed)
    return made


def compose(
    future: Future[Any],
    resulthook: Callable[[Any], Any] | None = None,
    excepthook: Callable[[BaseException], Any] | None = None,
) -> Future[Any]:
    """Compose the completion of a future with result and exception handlers.

    A cancellation of the one future cancels the other.
    """
    made: Future[Any] = type(future)()
    outcome = Outcome(made, [future])

    def ended(done: Future[Any]) -> None:
        if done.cancelled():
            made.cancel()
        elif (error := done.exception()) is None:
            succeed(done.result())
        elif excepthook is None:
            outcome.fail(error)
        else:
            outcome.handle(excepthook, error)

    def succeed(value: Any) -> None:
        try:
            value = value if resulthook is None else resulthook(value)
        except BaseException as error:
            outcome.fail(error)
        else:
            outcome.succeed(value)

    future.add_done_callback(ended)
    return made
