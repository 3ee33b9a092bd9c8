# SPDX-License-Identifier: Apache-2.0
"""How much Python a call runs, counted: in place of times, which no test may depend on."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal


def steps_of(
    call: Callable[[], object], kind: Literal["line", "opcode"], file: str | None = None
) -> int:
    """Return how many lines or instructions a call runs in this thread; those of one file alone,
    if it is named.
    """
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if file is not None and frame.f_code.co_filename != file:
            return None
        frame.f_trace_opcodes = kind == "opcode"
        count += event == kind
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
