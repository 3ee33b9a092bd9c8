# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while modules are loaded."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["ended_by_ctrl_c"]


@contextlib.contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end a block as KeyboardInterrupt.

    Modules make another error of it: numpy an ImportError of many lines, a class that is being
    made a RuntimeError. Where the program has a handler of its own, nothing changes.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as exc:
        if interrupted:
            raise KeyboardInterrupt from exc
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupted:  # and swallowed
        raise KeyboardInterrupt
