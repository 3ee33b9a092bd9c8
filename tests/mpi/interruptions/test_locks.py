# SPDX-License-Identifier: Apache-2.0
"""Signal handlers that raise within the locks of windows: no lock is lost, and none is left."""

from mpi.launcher.jobs import launch

LOCKS = """
import random, signal
from mpi4py import MPI

class Interrupted(Exception): pass

def interrupt(*_):
    raise Interrupted

signal.signal(signal.SIGALRM, interrupt)
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8, comm=comm)
draw = random.Random(comm.rank)

def steps(every):
    if every:
        win.Lock_all()
        win.Unlock_all()
    else:
        win.Lock(0)
        win.Unlock(0)

def unlock():
    # As a program does that was interrupted: by what the window itself says of its locks.
    if win.ob.all_locked:
        win.Unlock_all()
    for rank in list(win.ob.locked):
        win.Unlock(rank)

interrupted = 0
while interrupted < 150:
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(2e-6, 6e-5))
        for _ in range(20):
            steps(interrupted % 2)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        signal.setitimer(signal.ITIMER_REAL, 0)
        interrupted += 1
        unlock()
comm.Barrier()  # else another rank may hold one
win.Lock(0)
win.Unlock(0)
win.Free()
print("well")
"""


def test_a_handler_that_raises_loses_no_lock_of_a_window() -> None:
    assert launch(2, "-c", LOCKS).stdout == "well\n" * 2
