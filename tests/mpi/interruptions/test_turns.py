# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises in a call of `util.sync` leaves the other ranks their turns."""

from pathlib import Path
from typing import Final

import pytest

from mpi.launcher.jobs import launch

ALONE: Final = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from interrupting import Interrupted, inside, interrupted
from mpi4py.util.sync import Condition, Mutex, Semaphore
from shmnd.mpi import util

def each_place(call, wait=0):
    # Yield behind an interruption in each place of a call; of one that would wait, in so many.
    for at in range(wait or 100):
        try:
            ended = not interrupted(at, call, inside(util))
        except Interrupted:
            ended = False
        yield at
        if ended and not wait:
            assert at > 5, at
            return
    assert wait, "more places than expected"
"""

CALLS: Final = {
    "Mutex.acquire": """
mutex = Mutex()
for at in each_place(mutex.acquire):
    if mutex.locked():
        mutex.release()
    assert mutex.acquire(False), at
    mutex.release()
mutex.free()
""",
    "Mutex.acquire without blocking": """
mutex = Mutex()
for at in each_place(lambda: mutex.acquire(False)):
    if mutex.locked():
        mutex.release()
    assert mutex.acquire(False), at
    mutex.release()
mutex.free()
""",
    "Mutex.release": """
mutex = Mutex()
mutex.acquire()
for at in each_place(mutex.release):
    if mutex.locked():  # interrupted before it began
        mutex.release()
    assert mutex.acquire(False), at
mutex.release()
mutex.free()
""",
    "Condition.wait": """
condition = Condition()
condition.acquire()
for at in each_place(condition.wait, wait=150):
    if not condition.locked():
        condition.acquire()
    assert condition.notify() == 0, at
condition.release()
assert condition.acquire(False)
condition.free()
""",
    "Semaphore.acquire": """
semaphore = Semaphore(0)
for at in each_place(semaphore.acquire, wait=150):
    assert not semaphore.acquire(False), at
semaphore.free()
""",
}


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupted_call_leaves_the_turn(call: str) -> None:
    launch(1, "-c", ALONE + CALLS[call])


def test_the_turn_of_a_rank_that_left_its_ticket_goes_to_the_next() -> None:
    """Rank 0 has the mutex; ranks 1 and 2 leave; rank 3 takes it, and then rank 1."""
    launch(
        4,
        "-c",
        """
import signal
from mpi4py import MPI
from mpi4py.util.sync import Mutex
comm = MPI.COMM_WORLD
mutex = Mutex(comm=comm)

class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)

if comm.rank == 0:
    mutex.acquire()
comm.Barrier()
for rank in (1, 2, 1):  # rank 1 takes its ticket back, and leaves it once more
    if comm.rank == rank:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            mutex.acquire()
        except Late:
            assert not mutex.locked()
        else:
            raise AssertionError("rank 0 has it")
    comm.Barrier()
if comm.rank == 0:
    mutex.release()
if comm.rank == 3:
    mutex.acquire()
    comm.send(None, 1)
    mutex.release()
if comm.rank == 1:
    comm.recv(source=3)
    mutex.acquire()
    mutex.release()
comm.Barrier()
if comm.rank == 2:
    assert mutex.acquire(False)  # no ticket is left behind
    mutex.release()
mutex.free()
""",
    )
