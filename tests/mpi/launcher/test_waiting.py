# SPDX-License-Identifier: Apache-2.0
"""Whether what a rank waits for can still come, without ranks."""

import os
import time

import pytest

from shmnd.mpi.launcher.waiting import ENDLESS_SECONDS, Waiter, is_at_end, is_endless
from shmnd.mpi.transport.job_memory import Wait

LONG_AGO = time.monotonic() - ENDLESS_SECONDS - 1


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
