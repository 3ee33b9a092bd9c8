# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises behind a chosen call, whatever kind of function that calls.

The places of `interrupting` lie where functions begin, and behind those that a profile sees. These
lie behind each call that an interpreted function makes, also that of a class, or of a function that
Cython has compiled, where the value that it returned has no name yet. Some of them follow a
function that is interpreted as well, where CPython runs no handler.
"""

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "BEFORE_WITH", "JUMP_BACKWARD", "RESUME"}


@functools.cache
def _names(code: CodeType) -> dict[int, str]:
    """Return the names of the instructions by their offsets."""
    return {each.offset: each.opname for each in dis.get_instructions(code)}


def stepped(
    at: int,
    function: Callable[[], object],
    within: Callable[[str], bool],
    kind: type[BaseException],
) -> str:
    """Call a function, and raise behind its `at`-th call within files that `within` accepts.

    Return the place; nothing if it has not so many.
    """
    left, place = at, ""
    before: dict[FrameType, int] = {}  # by frame, its last instruction

    def trace(frame: FrameType, event: str, what: object) -> Any:
        nonlocal left, place
        code = frame.f_code
        if event == "call":
            if not within(code.co_filename):
                return None
            frame.f_trace = trace  # CPython 3.13 wants it before the next line
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "return":
            before.pop(frame, None)
        elif event == "opcode":
            last = before.get(frame)
            before[frame] = frame.f_lasti
            # An exception at an instruction without a line leaves the frame in CPython 3.11.
            called = last is not None and _names(code).get(last) in _CALLS
            if called and frame.f_lineno is not None:
                left -= 1
                if left == -1:
                    place = f"{code.co_filename}:{frame.f_lineno} {code.co_name}"
                    before.clear()
                    sys.settrace(None)
                    raise kind
        return trace

    sys.settrace(trace)
    try:
        function()
    except kind:
        pass
    finally:
        sys.settrace(None)
    return place
