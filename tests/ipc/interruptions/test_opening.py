# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises while an end is opened, and nothing of the end stays."""

import gc
import itertools
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0
WHERE = ("announcements.py", "subscriber.py", "client.py", "records.py")


class Alarm(BaseException):
    """What the handler raises."""


def interrupted(at: int, function: Callable[[], Any]) -> tuple[Any, bool]:
    """Call a function, and raise in it at its `at`-th call; return the result, and whether it was.

    The interpreter runs handlers behind calls of compiled functions, and where others begin.
    """
    left = at

    def interrupt(frame: FrameType, event: str, what: object) -> None:
        nonlocal left
        begins = event in ("call", "c_return") or frame.f_code.co_name == "__init__"
        if begins and frame.f_code.co_filename.endswith(WHERE):
            left -= 1
            if left == -1:
                raise Alarm

    result = None
    sys.setprofile(interrupt)
    try:
        result = function()
    except Alarm:
        pass
    finally:
        sys.setprofile(None)
    return result, left < 0


def test_a_publisher_does_not_wait_for_a_subscriber_that_was_never_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors
    with ipc.Publisher("t", "i8") as pub:
        for at in itertools.count():
            sub, was = interrupted(at, lambda: ipc.Subscriber("t", overflow="block", buffer=2))
            if sub is not None:
                sub.close()
            del sub
            if at % 8 == 0:
                gc.collect()
            end = time.monotonic() + PATIENCE
            while pub.subscribers:
                assert time.monotonic() < end, f"interrupted at {at}"
            for number in range(4):
                pub.send(np.int64(number), timeout=PATIENCE)
            if not was:
                break
    assert at > 20
