# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""A master and workers: tasks go to workers that are free, and results come from any source.

The master does not know which worker is next: it probes for any message, reads its length and its
tag, and receives it from the rank that sent it.
"""

import array

from mpi4py import MPI

TASK, RESULT, WANT, END = 1, 2, 3, 4
TASKS = 40


def primes_below(limit: int) -> array.array:
    """Return the primes below a number."""
    sieve = bytearray([1]) * max(limit, 2)
    sieve[:2] = b"\0\0"
    for each in range(2, int(limit**0.5) + 1):
        if sieve[each]:
            sieve[each * each :: each] = bytes(len(range(each * each, len(sieve), each)))
    return array.array("q", (each for each in range(limit) if sieve[each]))


def master(comm: MPI.Intracomm) -> None:
    """Assign the tasks, and check the results."""
    left = list(range(10, 10 + 50 * TASKS, 50))
    results: dict[int, int] = {}
    working, status = comm.size - 1, MPI.Status()
    while working:
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.Get_source()
        if status.Get_tag() == RESULT:
            primes = array.array("q", bytes(status.Get_count(MPI.BYTE)))
            comm.Recv(primes, worker, RESULT)
            task = primes.pop()
            results[task] = len(primes)
            continue
        comm.recv(source=worker, tag=WANT)
        if left:
            comm.send(left.pop(), worker, TASK)
        else:
            comm.send(None, worker, END)
            working -= 1
    assert results == {task: len(primes_below(task)) for task in range(10, 10 + 50 * TASKS, 50)}
    print(f"{len(results)} results from {comm.size - 1} workers")


def worker(comm: MPI.Intracomm) -> None:
    """Ask for tasks until there are none."""
    status = MPI.Status()
    while True:
        comm.send(comm.rank, 0, WANT)
        task = comm.recv(source=0, tag=MPI.ANY_TAG, status=status)
        if status.Get_tag() == END:
            return
        primes = primes_below(task)
        primes.append(task)
        comm.Send(primes, 0, RESULT)


if __name__ == "__main__":
    if MPI.COMM_WORLD.rank == 0:
        master(MPI.COMM_WORLD)
    else:
        worker(MPI.COMM_WORLD)
