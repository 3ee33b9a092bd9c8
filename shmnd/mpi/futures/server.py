# SPDX-License-Identifier: Apache-2.0
"""Programs whose executors use the other ranks of the job: `python -m mpi4py.futures`."""

from __future__ import annotations

from shmnd.mpi import run
from shmnd.mpi.communicators.intracomm import COMM_WORLD
from shmnd.mpi.futures.pool import close_all, share
from shmnd.mpi.futures.workers import Ranks, serve


def main() -> None:
    """Run the program at rank 0; the other ranks work for its executors."""
    comm = COMM_WORLD.Dup()
    size, rank = comm.Get_size(), comm.Get_rank()
    workers = comm.Split(int(rank == 0), rank)
    if rank > 0:
        serve(comm, 0, workers)
        return
    ranks = Ranks(comm, list(range(1, size))) if size > 1 else None
    share(ranks)
    try:
        run.main("mpi4py.futures")
    except SystemExit as leaving:
        if leaving.code:
            raise  # the job is aborted, and the workers with it
    close_all()
    share(None)
    if ranks is not None:
        ranks.close()
