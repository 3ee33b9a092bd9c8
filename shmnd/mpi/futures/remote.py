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
from typing import Any, Final

from shmnd.common.interruption import pass_on


class RemoteTraceback(Exception):
    """The cause of an exception from a worker: the traceback there, as a text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _with_cause(error: BaseException, text: str) -> BaseException:
    """Return an exception with its cause, also one whose class refuses new attributes."""
    BaseException.__setattr__(error, "__cause__", RemoteTraceback(text))
    return error


class Carried:
    """An exception of a task, whose pickle loads as the exception with its remote traceback."""

    def __init__(self, error: BaseException, text: str) -> None:
        self._parts = error, text

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_cause, self._parts


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as exc:
        pass_on(exc)
        return f"{type(error).__name__}, which has no text"


def carried(error: BaseException, pickles: Any) -> Carried:
    """Return an exception as the pickles of `pickles` can carry it: itself or, where it cannot be
    pickled and made again from that, one with its text. It does not change: it may be raised anew.
    """
    text = "".join(traceback.format_exception(error))
    try:
        pickles.loads(pickles.dumps(error))
    except Exception as exc:
        pass_on(exc)
        return Carried(RuntimeError(_text(error)), text)
    return Carried(error, text)


def settle(future: Future[Any], good: bool, value: Any) -> None:
    """End a future with the result of its task or, unless it is good, with the exception."""
    if good:
        future.set_result(value)
    else:
        future.set_exception(value)


def execute(task: bytes) -> bytes:
    """Run a task, in the worker; return the pickle of whether it succeeded, and of its result."""
    try:
        function, args, kwargs = pickle.loads(task)
        return pickle.dumps((True, function(*args, **kwargs)))
    except BaseException as error:
        return pickle.dumps((False, carried(error, pickle)))


class Remote(Future[Any]):
    """The future of a task whose process returns bytes."""

    _inner: Future[bytes] | None = None

    @classmethod
    def of(cls, kind: type[Future[Any]]) -> Remote:
        """Return a new one that is also a future of that type; those of a type have one class."""
        if issubclass(cls, kind):
            return cls()
        made = _classes.get(kind) or _classes.setdefault(
            kind, type(kind.__name__, (cls, kind), {"__module__": kind.__module__})
        )
        return made()

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
        settle(self, good, value)


_classes: Final[dict[type[Future[Any]], type[Remote]]] = {}
"""Of the futures that are also of a type."""
