# SPDX-License-Identifier: Apache-2.0
"""Futures with callbacks that return values or futures, as promises have them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self, cast

from shmnd.mpi.futures.composed import Outcome


def then(
    future: Future[Any],
    on_success: Callable[[Any], Any] | None = None,
    on_failure: Callable[[BaseException], Any] | None = None,
) -> Future[Any]:
    """Return a future of what a callback makes of the result of `future`, or of its exception.

    A future that a callback returns is waited for. An exception that `on_failure` returns is
    raised.
    """
    made = type(future)()
    outcome = Outcome(made)

    def ended(done: Future[Any]) -> None:
        if done.cancelled():
            made.cancel()
        elif (error := done.exception()) is None:
            _call(outcome, on_success, done.result())
        elif on_failure is None:
            outcome.fail(error)
        else:
            _call(outcome, on_failure, error, raises=True)

    future.add_done_callback(ended)
    return made


def catch(
    future: Future[Any], on_failure: Callable[[BaseException], Any] | None = None
) -> Future[Any]:
    """Return a future of what a callback makes of the exception: without one, None."""
    return then(future, None, (lambda _: None) if on_failure is None else on_failure)


class ThenableFuture(Future[Any]):
    """A future whose callbacks make further futures."""

    def then(
        self,
        on_success: Callable[[Any], Any] | None = None,
        on_failure: Callable[[BaseException], Any] | None = None,
    ) -> Self:
        """Return a future of what a callback makes of the result, or of the exception."""
        return cast(Self, then(self, on_success, on_failure))

    def catch(self, on_failure: Callable[[BaseException], Any] | None = None) -> Self:
        """Return a future of what a callback makes of the exception: without one, None."""
        return cast(Self, catch(self, on_failure))


def _call(
    outcome: Outcome, callback: Callable[[Any], Any] | None, given: Any, *, raises: bool = False
) -> None:
    try:
        value = given if callback is None else callback(given)
    except BaseException as error:
        outcome.fail(error)
        return
    if raises and isinstance(value, BaseException):
        outcome.fail(value)
    else:
        _follow(outcome, value, [outcome.future])


def _follow(outcome: Outcome, value: Any, seen: list[Future[Any]]) -> None:
    """End with a value or, if it is a future, as that one does."""
    if not isinstance(value, Future):
        outcome.succeed(value)
        return
    if any(value is each for each in seen):
        outcome.fail(RuntimeError("then: chain cycle detected: a future would wait for itself"))
        return

    def ended(done: Future[Any]) -> None:
        if done.cancelled():
            outcome.future.cancel()
        elif (error := done.exception()) is not None:
            outcome.fail(error)
        else:
            _follow(outcome, done.result(), [*seen, value])

    value.add_done_callback(ended)
