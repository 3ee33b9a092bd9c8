# SPDX-License-Identifier: Apache-2.0
"""Numbers that programs pass: Python's own or another library's, such as numpy's."""

from __future__ import annotations

import enum
import math
import operator
from numbers import Integral, Real
from typing import Any, Final

from shmnd.common.interruption import pass_on
from shmnd.status import OpFlag, Status, error

__all__ = [
    "all_within",
    "flags_as_context",
    "flags_given",
    "index_given",
    "integer",
    "parameter_status",
    "seconds",
    "shown",
    "truth_given",
    "within",
    "wrong_kind",
]


_NEGATIVE: Final = {
    "timeout": "; 0 does not wait, None waits without an end",
    "spin": "; with 0 a wait sleeps at once",
    "rnr_timeout": "; pass a time above 0",
}
"""What to pass in place of a negative number of seconds."""
_LONGEST: Final = 200
"""The most characters of a value in a message."""
_MAKERS: Final = {
    "CompletionQueue": "Adapter.create_completion_queue",
    "Connector": "Adapter.create_connector",
    "Endpoint": "Connector.create_endpoint",
    "MemoryRegion": "Adapter.create_memory_region",
    "MemoryWindow": "Adapter.create_memory_window",
    "OverlappedFile": "Adapter.create_overlapped_file",
    "QueuePair": "Adapter.create_queue_pair",
    "SharedReceiveQueue": "Adapter.create_shared_receive_queue",
}
"""The call that makes an object of each class, of either version."""


def integer(value: object) -> int | None:
    """Return the int that a value stands for; None for any other type, and for a bool."""
    if type(value) is int:
        return value  # at once: what programs mostly pass
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    return int(value)


def shown(value: object) -> str:
    """Return a value as messages name it, at a bounded length; Python does not write every int."""
    try:
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    except ValueError as exc:
        pass_on(exc)
        size = f" of {value.bit_length()} bits" if isinstance(value, int) else ""
        return f"<{type(value).__name__}{size}>"


def wrong_kind(value: object, wanted: str) -> str:
    """Return text that says that an object is not of the wanted class.

    Version 1 and version 2 have classes of the same name.
    """
    article = "an" if wanted[0] in "AEIOU" else "a"
    name = type(value).__name__
    if name != wanted:
        return f"{name} is not {article} {wanted}; {_MAKERS[wanted]} makes one"
    return f"{name} of {type(value).__module__} is not {article} {wanted} of this version"


def parameter_status(number: int) -> Status:
    """Return the INVALID_PARAMETER status of a parameter number; 0 is the one without a number."""
    return Status[f"INVALID_PARAMETER_{number}"] if number else Status.INVALID_PARAMETER


def within(
    call: str, parameter: int, name: str, value: object, least: int, most: int | None = None
) -> int:
    """Return the number as an int, or raise the status of that parameter (0: the plain one)."""
    if type(value) is int and value >= least and (most is None or value <= most):
        return value  # at once: what programs mostly pass
    number = integer(value)
    if number is None or number < least or (most is not None and number > most):
        limits = f"outside {least}..{most}"
        if most is None:
            limits = f"not an integer from {least} on"
        hint = f"; pass an int, not {type(value).__name__}" if number is None else ""
        raise error(parameter_status(parameter), call, f"{name} {shown(value)} is {limits}{hint}")
    return number


def all_within(call: str, *asked: tuple[int, str, int, int]) -> dict[str, int]:
    """Return several values by their names; each comes with its parameter number and its limit."""
    found = {}
    for number, name, value, most in asked:
        if type(value) is int and 0 <= value <= most:
            found[name] = value  # at once: what programs mostly pass
        else:
            found[name] = within(call, number, name, value, 0, most)
    return found


def seconds(call: str, parameter: int, name: str, value: object) -> float:
    """Return the number of seconds as a float, or raise the status of that parameter."""
    if not isinstance(value, bool) and isinstance(value, (float, int, Real)):
        try:
            number = float(value)
        except OverflowError:
            number = -math.inf if value < 0 else math.inf
        if number < 0:
            raise error(
                parameter_status(parameter),
                call,
                f"{name} {shown(value)} is negative{_NEGATIVE.get(name, '')}",
            )
        if not math.isnan(number):
            return number
    raise error(
        parameter_status(parameter),
        call,
        f"{name} {shown(value)} is not a number of seconds such as 0.5",
    )


def index_given(call: str, name: str, value: Any) -> int:
    """Return a number as an int. Raise TypeError for any other type, and for a bool."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    kind = type(value).__name__
    raise TypeError(f"{call}: {name} must be an int, not {kind} ({shown(value)})")


def truth_given(call: str, parameter: int, name: str, value: object) -> bool:
    """Return whether a value counts as true; raise the status of that parameter for an array."""
    try:
        return bool(value)
    except (TypeError, ValueError) as exc:
        pass_on(exc)
        raise error(
            parameter_status(parameter),
            call,
            f"{name} is {type(value).__name__}, which is neither true nor false; pass a bool",
        ) from exc


def flags_given(call: str, flags: object, kind: type[enum.IntFlag]) -> int:
    """Return flags as an int. Raise TypeError for other types than theirs and int."""
    if isinstance(flags, kind):
        return int(flags)
    if isinstance(flags, (bool, enum.Enum)) or not isinstance(flags, Integral):
        raise TypeError(
            f"{call}: flags must be {kind.__name__} values or a plain int, "
            f"not {type(flags).__name__} ({shown(flags)})"
        )
    return int(flags)


def flags_as_context(call: str, flags: enum.IntFlag) -> TypeError:
    """Return the error for flags that were passed in the place of a request's context."""
    name = f"{type(flags).__name__}.{flags.name}" if isinstance(flags, OpFlag) else "OpFlag.…"
    return TypeError(
        f"{call}: {flags!r} was passed as the context; pass flags by keyword: flags={name}"
    )
