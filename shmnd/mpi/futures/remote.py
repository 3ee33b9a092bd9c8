# SPDX-License-Identifier: Apache-2.0
"""Tasks and results of the processes of a pool, as pickles of our own.

The pool of the standard library breaks where a task, a result or an exception does not unpickle:
its threads and processes unpickle outside of the task. Here they carry bytes, which always arrive,
and a pickle that cannot be loaded is the exception of its task alone.
"""

from __future__ import annotations

import pickle
import traceback
from concurrent.futures import Future
from typing import Any


def note_traceback(error: BaseException) -> None:
    """Add the traceback to an exception, whose pickle has none."""
    error.add_note("in the worker:\n" + "".join(traceback.format_exception(error)).rstrip())


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which has no text"


def carried(error: BaseException, pickles: Any) -> BaseException:
    """Return an exception with its traceback, which the pickles of `pickles` can carry: itself or,
    where it cannot be pickled and made again from that, one with its text.
    """
    note_traceback(error)
    try:
        pickles.loads(pickles.dumps(error))
    except Exception:
        made = RuntimeError(_text(error))
        made.__notes__ = list(error.__notes__)
        return made
    return error


def outcome(error: BaseException) -> bytes:
    """Return the pickle of a failure."""
    return pickle.dumps((False, carried(error, pickle)))


def execute(task: bytes) -> bytes:
    """Run a task, in the worker; return the pickle of whether it succeeded, and of its result."""
    try:
        function, args, kwargs = pickle.loads(task)
        return pickle.dumps((True, function(*args, **kwargs)))
    except BaseException as error:
        return outcome(error)


class Remote(Future[Any]):
    """The future of a task whose process returns bytes."""

    _inner: Future[bytes] | None = None

    def follow(self, inner: Future[bytes]) -> None:
        """Take the outcome from the future of those bytes."""
        self._inner = inner
        inner.add_done_callback(self._ended)

    def cancel(self) -> bool:
        """Cancel the future if possible."""
        if self._inner is not None and not self._inner.cancel():
            return False
        return super().cancel()

    def running(self) -> bool:
        """Return whether the task runs now."""
        return self._inner is not None and self._inner.running()

    def _ended(self, inner: Future[bytes]) -> None:
        if inner.cancelled():
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        if not self.set_running_or_notify_cancel():
            return
        error = inner.exception()
        if error is not None:
            self.set_exception(error)
            return
        try:
            good, value = pickle.loads(inner.result())
        except BaseException as failure:
            good, value = False, failure
        if good:
            self.set_result(value)
        else:
            self.set_exception(value)
