# SPDX-License-Identifier: Apache-2.0
"""When the launcher takes a wait for one that has no end."""

import os
import time
from typing import Final

import pytest

from shmnd.mpi.launcher.waiting import Checks, Waiter
from shmnd.mpi.transport.job_memory import Wait

LONG_AGO: Final = 100.0


def waits(ago: float = LONG_AGO, *, idle: bool = True) -> Waiter:
    """A rank that waits for rank 1, since so many seconds."""
    since = time.monotonic_ns() - int(ago * 1e9)
    return Waiter(os.getpid(), None, Wait(1, 1, 7, since, "Recv", "comm", idle=idle))


GONE: Final = [Waiter(os.getpid(), time.monotonic() - LONG_AGO, None)]


def test_one_check_after_a_long_time_ends_no_wait() -> None:
    """As after a time in which the machine stood still: the rank has a message, and did not run."""
    checks, rank = Checks(), waits()
    assert not checks.confirm(0, rank, GONE, 1000.0)
    assert not checks.confirm(0, rank, GONE, 1000.001)  # these are close together
    assert not checks.confirm(0, rank, GONE, 1000.002)
    assert not checks.confirm(0, waits(1.0), GONE, 1000.3)  # it has run, and waits anew


def test_several_checks_end_it() -> None:
    checks, rank = Checks(), waits()
    assert [checks.confirm(0, rank, GONE, 1000.0 + at) for at in (0, 0.2, 0.4)] == [0, 0, 1]


@pytest.mark.parametrize(
    "between", [waits(50.0), waits(idle=False), Waiter(os.getpid(), None, None)]
)
def test_activity_between_two_checks_restarts_them(between: Waiter) -> None:
    checks, rank = Checks(), waits()
    checks.confirm(0, rank, GONE, 1000.0)
    checks.confirm(0, rank, GONE, 1000.2)
    checks.confirm(0, between, GONE, 1000.4)
    assert not checks.confirm(0, rank, GONE, 1000.6)
