# SPDX-License-Identifier: Apache-2.0
"""Integers of any size among the arguments of calls; the errors name the call."""

import operator
from collections.abc import Iterable
from typing import Any, Final

from shmnd.common.arguments import shown
from shmnd.mpi import constants
from shmnd.mpi.communicators.comm_state import small_number
from shmnd.mpi.objects.errhandler import raise_error

__all__ = ["c_int", "integer", "integers"]

_LARGEST: Final = (1 << 31) - 1


def integer(given: Any, family: str, call: str, role: str) -> int:
    """Return an argument as an integer. As in mpi4py, a fraction is lost."""
    small_number(given, call, role, family)  # raises where it is none
    try:
        return int(given)
    except OverflowError:
        raise OverflowError(f"{family}.{call}: {role} {given} is not finite") from None


def c_int(comm: Any, given: object, call: str, role: str) -> int:
    """Return an argument of a communicator as an integer that an int of C holds."""
    number = integer(given, "Comm", call, role)
    if not -_LARGEST - 1 <= number <= _LARGEST:
        limits = f"the limits are {-_LARGEST - 1} and {_LARGEST}"
        raise_error(comm, constants.ERR_ARG, f"Comm.{call}: {role} {shown(number)}; {limits}")
    return number


def integers(given: Iterable[Any], family: str, call: str, role: str) -> list[int]:
    """Return the items of an argument as integers. In a list mpi4py takes no fractions."""
    try:
        return [operator.index(each) for each in given]
    except TypeError:
        text = f"{family}.{call}: {role} {shown(given)} is not a sequence of integers"
        raise TypeError(text) from None
