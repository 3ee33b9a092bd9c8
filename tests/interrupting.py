# SPDX-License-Identifier: Apache-2.0
"""A function that stands for the handler of a signal, and runs at a chosen place of a call.

Its file lies outside of what it interrupts: its path matches none of the names that tests choose.
"""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType


class Interrupted(Exception):
    """What the handler raises."""


class Alarm(BaseException):
    """What it raises where KeyboardInterrupt is meant, which is not an Exception."""


def inside(*packages: ModuleType) -> Callable[[str], bool]:
    """Return a function that says whether a file is of one of these packages."""
    folders = tuple(f"{Path(str(each.__file__)).parent}{os.sep}" for each in packages)
    return lambda path: path.startswith(folders)


def interrupted(
    at: int,
    function: Callable[[], object],
    within: Callable[[str], bool],
    kind: type[BaseException] = Interrupted,
    *,
    made: bool = False,
) -> bool:
    """Call a function, and raise in it at its `at`-th place; return whether it came there.

    A place is where a function of a file that `within` accepts begins, or a function of C that it
    calls has returned: there the interpreter runs handlers. It does so behind calls of classes, and
    of what Cython has compiled, too, which a profile does not see: `stepping.stepped` does. With
    `made`, `__init__` also has one where it returns, or raises.
    """

    def place(frame: FrameType, event: str) -> bool:
        is_place = event in ("call", "c_return") or (made and frame.f_code.co_name == "__init__")
        return is_place and within(frame.f_code.co_filename)

    return interrupted_where(at, function, place, kind)


def interrupted_where(
    at: int,
    function: Callable[[], object],
    place: Callable[[FrameType, str], bool],
    kind: type[BaseException],
) -> bool:
    """Do the same, where `place` says whether an event of a profile in a frame is a place."""

    def fail() -> None:
        raise kind

    def call() -> None:
        try:
            function()
        except kind:
            pass

    return handled_where(at, call, place, fail)


def handled(
    at: int,
    function: Callable[[], object],
    within: Callable[[str], bool],
    handler: Callable[[], object],
) -> bool:
    """Call a function, and a handler in it at its `at`-th place, as `interrupted` counts them."""

    def place(frame: FrameType, event: str) -> bool:
        return event in ("call", "c_return") and within(frame.f_code.co_filename)

    return handled_where(at, function, place, handler)


def handled_where(
    at: int,
    function: Callable[[], object],
    place: Callable[[FrameType, str], bool],
    handler: Callable[[], object],
) -> bool:
    """Call a function, and a handler in it at its `at`-th place; return whether it came there."""
    left = at

    def interrupt(frame: FrameType, event: str, what: object) -> None:
        nonlocal left
        if place(frame, event):
            left -= 1
            if left == -1:
                handler()

    collects = gc.isenabled()
    gc.disable()  # an exception in the finaliser of an earlier object would be lost, and reported
    sys.setprofile(interrupt)
    try:
        function()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return left < 0
