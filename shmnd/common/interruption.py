# SPDX-License-Identifier: Apache-2.0
"""Exceptions of signal handlers, which belong to the program and not to what they interrupt.

A handler runs between any two steps of the main thread, also within the pickling of a value. What
it raises there is no fault of the value.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType, TracebackType

__all__ = ["Ignoring", "is_interruption", "may_be_interrupted", "pass_on"]

_SIGNALS: Final = (
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGQUIT,
    signal.SIGINT,
)
"""The signals by which programs end a call and continue."""
_OPTIMIZED = 0x01
"""Of a code's flags: it is a function, whose variables are not a namespace."""
_POSITIONAL_REST = 0x04
"""Of a code's flags: the function takes `*args`."""


def may_be_interrupted() -> bool:
    """Return whether a handler that the program has set may raise in this thread."""
    if threading.get_ident() != threading.main_thread().ident:
        return False
    handlers = [signal.getsignal(number) for number in _SIGNALS]
    return any(callable(each) and each is not signal.default_int_handler for each in handlers)


def is_interruption(exc: BaseException) -> bool:
    """Return whether an exception interrupts the program, unlike a fault of the step it ended.

    Those are the exceptions of signal handlers, Ctrl-C and SystemExit.
    """
    if not isinstance(exc, Exception):
        return True  # KeyboardInterrupt, SystemExit
    traceback = exc.__traceback__
    while traceback is not None:
        if _handles_a_signal(traceback.tb_frame):
            return True
        traceback = traceback.tb_next
    return False


def pass_on(exc: BaseException) -> None:
    """Raise an exception again if it interrupts the program; otherwise the caller handles it.

    A handler of SIGALRM may raise `TimeoutError`, which `except OSError` would catch.
    """
    if is_interruption(exc):
        try:
            raise exc
        finally:
            del exc  # its traceback has this frame, and what all callers hold with it


class Ignoring:
    """Ignore faults of these kinds in a `with` block; pass on what a handler of a signal raises.

    `contextlib.suppress` would forget a time limit that the program has set by SIGALRM.
    """

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return isinstance(exc, self._kinds) and not is_interruption(exc)


def _handles_a_signal(frame: FrameType) -> bool:
    """Return whether a frame is that of a handler, which gets the frame that it interrupted."""
    interrupted = frame.f_back
    if interrupted is None:
        return False
    code = frame.f_code
    count = code.co_argcount
    if count < 2 and not code.co_flags & _POSITIONAL_REST:
        return False  # a handler takes a number and a frame
    found = frame.f_locals
    given = [found.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & _POSITIONAL_REST:
        given += found.get(code.co_varnames[count + code.co_kwonlyargcount], ())
    if sys.version_info < (3, 13) and code.co_flags & _OPTIMIZED:
        # A copy, which the frame keeps. It may have the exception, which has the frame: all that
        # the calls above it hold would live until a collection of garbage.
        found.clear()
    return any(each is interrupted for each in given)
