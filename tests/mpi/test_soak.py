# SPDX-License-Identifier: Apache-2.0
"""Long runs of ranks: many messages of all kinds among four, each word checked, and collectives.

    pytest -m soak tests/mpi/test_soak.py

SHMND_SOAK_MESSAGES says how many messages, 10**8 without it.
"""

import os

import pytest

from mpi.launcher.jobs import PATIENCE, launch

MESSAGES = int(os.environ.get("SHMND_SOAK_MESSAGES", str(10**8)))
RANKS = 4
LONG = 7000  # seconds

PROGRAM = """
import random
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
peers = [each for each in range(size) if each != rank]
messages, seed = int(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)  # the same at all ranks: what a round does
BURST = 64

def numbers(sender, receiver, turn, words):
    first = ((turn * size + sender) * size + receiver) * BURST * words
    return np.arange(first, first + BURST * words, dtype="u8").reshape(BURST, words)

def check(what, turn, got, expected):
    if not np.array_equal(got, expected):
        raise AssertionError(f"round {turn}, rank {rank}: {what} differs")

def all_at_once(turn, words):
    into = {peer: np.zeros((BURST, words), "u8") for peer in peers}
    begun = [comm.Irecv(row, peer, k) for peer in peers for k, row in enumerate(into[peer])]
    for peer in peers:
        rows = numbers(rank, peer, turn, words)
        begun += [comm.Isend(row.copy(), peer, k) for k, row in enumerate(rows)]
    MPI.Request.Waitall(begun)
    for peer in peers:
        check(f"what {peer} sent", turn, into[peer], numbers(peer, rank, turn, words))

def from_anyone(turn, words):
    into = np.zeros((BURST * len(peers), words), "u8")
    begun = [comm.Irecv(row) for row in into]
    for peer in peers:
        for row in numbers(rank, peer, turn, words):
            comm.Send(row, peer, turn % 1000)
    statuses = []
    MPI.Request.Waitall(begun, statuses)
    senders = np.array([status.source for status in statuses])
    for peer in peers:  # what one rank sends arrives in its order
        check(f"what {peer} sent", turn, into[senders == peer], numbers(peer, rank, turn, words))
    comm.Barrier()  # a receive from anyone must not take a message of the next round

def in_a_ring(turn, words):
    right, left = (rank + 1) % size, (rank - 1) % size
    rows, row = numbers(rank, right, turn, words), np.zeros(words, "u8")
    expected = numbers(left, rank, turn, words)
    for k in range(BURST):
        comm.Sendrecv(rows[k], right, k, row, left, k)
        check("what the left one sent", turn, row, expected[k])

def objects(turn, words):
    right, left = (rank + 1) % size, (rank - 1) % size
    for k in range(BURST):
        request = comm.isend({"round": turn, "words": rows_of(turn, k, words)}, right, k)
        got = comm.recv(None, left, k)
        request.wait()
        check("an object", turn, got["words"], rows_of(turn, k, words))

def rows_of(turn, k, words):
    return np.full(words, turn * BURST + k)

def collective(turn, words):
    mine = np.arange(words, dtype="u8") + rank + turn
    kind = chance.randrange(5)
    if kind == 0:
        got = np.zeros_like(mine)
        comm.Allreduce(mine, got)
        expected = size * (np.arange(words, dtype="u8") + turn) + sum(range(size))
    elif kind == 1:
        root = turn % size
        got = mine.copy()
        comm.Bcast(got, root)
        expected = np.arange(words, dtype="u8") + root + turn
    elif kind == 2:
        got = np.zeros((size, words), "u8")
        comm.Allgather(mine, got)
        expected = np.arange(words, dtype="u8") + turn + np.arange(size, dtype="u8")[:, None]
    elif kind == 3:
        blocks = np.stack([mine + 1000 * each for each in range(size)]).astype("u8")
        got = np.zeros_like(blocks)
        comm.Alltoall(blocks, got)
        expected = np.arange(words, dtype="u8") + turn + 1000 * rank
        expected = expected + np.arange(size, dtype="u8")[:, None]
    else:
        comm.Barrier()
        return
    check(f"collective {kind}", turn, got, expected)

done, turn = 0, 0
while done < messages:
    way = chance.choices([all_at_once, from_anyone, in_a_ring, objects], [60, 30, 9, 1])[0]
    words = chance.choices([1, 4, 30, 250, 2000, 20000], [500, 300, 150, 40, 9, 1])[0]
    way(turn, words)
    if chance.random() < 0.2:
        collective(turn, chance.choice([1, 8, 31, 2000, 40000]))
    done += BURST * size * (len(peers) if way in (all_at_once, from_anyone) else 1)
    turn += 1
if rank == 0:
    print(f"{done} messages in {turn} rounds")
"""


def run(messages: int, seed: int, patience: float = PATIENCE) -> None:
    said = launch(RANKS, "-c", PROGRAM, str(messages), str(seed), patience=patience).stdout
    assert int(said.split()[0]) >= messages


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_short_one(seed: int) -> None:
    run(60_000, seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_messages() -> None:
    run(MESSAGES, 3, LONG)
