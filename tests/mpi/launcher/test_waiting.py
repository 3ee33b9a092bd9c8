# SPDX-License-Identifier: Apache-2.0
"""Whether what a rank waits for can still come, and when the launcher decides it, without ranks."""

import os
import time
from typing import Final

import pytest

from shmnd.mpi.launcher.waiting import ENDLESS_SECONDS, Checks, Waiter, is_at_end, is_endless
from shmnd.mpi.transport.job_memory import Wait

LONG_AGO = time.monotonic() - ENDLESS_SECONDS - 1
SECONDS: Final = 100.0


def waits(call: str, *, others: bool = False, schedule: bool = False) -> Waiter:
    """Return a rank that has waited for longer than a wait in vain lasts."""
    since = int(LONG_AGO * 1e9)
    return Waiter(
        os.getpid(), None, Wait(1, 1, -1, since, call, "", others=others, schedule=schedule)
    )


PEERS = {
    "computes": Waiter(os.getpid(), None, None),
    "waits": waits("recv"),
    "at its end": waits("Finalize"),
    "in a collective at its end": waits("a collective at Finalize", others=True),
    "ended": Waiter(os.getpid(), LONG_AGO, None),
}


@pytest.mark.parametrize(
    ("schedule", "gone"),
    [
        (False, {"at its end", "in a collective at its end", "ended"}),
        (True, {"at its end", "ended"}),
    ],
)
def test_a_rank_at_its_end_continues_only_collectives(schedule: bool, gone: set[str]) -> None:
    rank = waits("a call", schedule=schedule)
    assert {name for name, peer in PEERS.items() if is_endless(rank, [peer])} == gone
    assert not is_endless(rank, list(PEERS.values()))


def test_a_wait_that_others_may_end_is_not_endless() -> None:
    assert not is_endless(waits("a call", others=True), [PEERS["ended"]])


def test_a_rank_at_its_end_is_one_that_stays() -> None:
    staying = {name for name, peer in PEERS.items() if is_at_end(peer)}
    assert staying == {"at its end", "in a collective at its end"}


def waits_for_one(ago: float = SECONDS, *, idle: bool = True) -> Waiter:
    """Return a rank that waits for rank 1, since so many seconds."""
    since = time.monotonic_ns() - int(ago * 1e9)
    return Waiter(os.getpid(), None, Wait(1, 1, 7, since, "Recv", "comm", idle=idle))


GONE: Final = [Waiter(os.getpid(), time.monotonic() - SECONDS, None)]


def test_one_check_after_a_long_time_ends_no_wait() -> None:
    """As after a time in which the machine stood still: the rank has a message, and did not run."""
    checks, rank = Checks(), waits_for_one()
    assert not checks.confirm(0, rank, GONE, 1000.0)
    assert not checks.confirm(0, rank, GONE, 1000.001)  # these are close together
    assert not checks.confirm(0, rank, GONE, 1000.002)
    assert not checks.confirm(0, waits_for_one(1.0), GONE, 1000.3)  # it has run, and waits anew


def test_several_checks_end_it() -> None:
    checks, rank = Checks(), waits_for_one()
    assert [checks.confirm(0, rank, GONE, 1000.0 + at) for at in (0, 0.2, 0.4)] == [0, 0, 1]


@pytest.mark.parametrize(
    "between", [waits_for_one(50.0), waits_for_one(idle=False), Waiter(os.getpid(), None, None)]
)
def test_activity_between_two_checks_restarts_them(between: Waiter) -> None:
    checks, rank = Checks(), waits_for_one()
    checks.confirm(0, rank, GONE, 1000.0)
    checks.confirm(0, rank, GONE, 1000.2)
    checks.confirm(0, between, GONE, 1000.4)
    assert not checks.confirm(0, rank, GONE, 1000.6)
