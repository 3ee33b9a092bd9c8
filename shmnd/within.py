# SPDX-License-Identifier: Apache-2.0
"""Numbers that programs give: Python's own or another library's, such as numpy's."""

from __future__ import annotations

import math
from numbers import Integral, Real

from shmnd.status import Status, error

__all__ = ["flags_given", "integer", "parameter_status", "seconds", "within"]


def integer(value: object) -> int | None:
    """Give the int that a value stands for; None for what is no integer, a bool included."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    return int(value)


def parameter_status(number: int) -> Status:
    """Give the INVALID_PARAMETER status of a parameter number; 0 is the one without a number."""
    return Status[f"INVALID_PARAMETER_{number}"] if number else Status.INVALID_PARAMETER


def within(
    call: str, parameter: int, name: str, value: object, least: int, most: int | None = None
) -> int:
    """Give the number as an int, or raise the status of that parameter (0: the plain one)."""
    number = integer(value)
    if number is None or number < least or (most is not None and number > most):
        limits = f"outside {least}..{most}" if most is not None else f"no integer from {least} on"
        raise error(parameter_status(parameter), call, f"{name} {value!r} is {limits}")
    return number


def seconds(call: str, parameter: int, name: str, value: object) -> float:
    """Give the number of seconds as a float, or raise the status of that parameter."""
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isnan(number):
            return number
    raise error(parameter_status(parameter), call, f"{name} {value!r} is no number of seconds")


def flags_given(call: str, flags: object) -> int:
    """Give flags as an int; TypeError for what is none."""
    if not isinstance(flags, Integral):
        raise TypeError(f"{call}: flags must be an int, not {type(flags).__name__}")
    return int(flags)
