# SPDX-License-Identifier: Apache-2.0
"""Reductions by slices: the bits of the promised brackets at all ranks, and untouched senders."""

import pytest

from mpi.launcher.jobs import launch

PROGRAM = """
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size

def chained(first, second, kind):
    a, b = np.frombuffer(first, "d"), np.frombuffer(second, "d")
    b[:] = a * 0.5 + b * 0.25 + 1  # neither commutative nor associative

CHAINED = MPI.Op.Create(chained, commute=False)
OPS = {
    "SUM": (MPI.SUM, np.add),
    "PROD": (MPI.PROD, np.multiply),
    "MAX": (MPI.MAX, lambda a, b: np.where(a > b, a, b)),
    "MIN": (MPI.MIN, lambda a, b: np.where(a < b, a, b)),
    "own": (CHAINED, lambda a, b: a * 0.5 + b * 0.25 + 1),
}

def part(of_rank, count, kind):
    chance = np.random.default_rng([of_rank, count])
    if np.dtype(kind).kind == "i":
        return chance.integers(-(2**31), 2**31 - 1, count).astype(kind)
    numbers = chance.standard_normal(count) * 10.0 ** chance.integers(-9, 9, count)
    if np.dtype(kind).kind == "c":
        return (numbers + 1j * chance.standard_normal(count)).astype(kind)
    for value in (np.nan, 0.0, -0.0, np.inf):
        numbers[chance.integers(0, count, count // 50)] = value
    return numbers.astype(kind)

def reduced(step_of, count, kind):
    rows = [part(i, count, kind) for i in range(size)]
    step = 1
    with np.errstate(all="ignore"):
        while step < size:
            for i in range(0, size - step, 2 * step):
                rows[i] = step_of(rows[i], rows[i + step])
            step *= 2
    return rows[0]

def check(what, name, got, expected, mine, before):
    where = f"{what} by {name} of {before.dtype}, rank {rank} of {size}"
    same = (got == expected) & (np.signbit(got.real) == np.signbit(expected.real))
    same |= np.isnan(got) & np.isnan(expected)
    assert same.all(), f"{where}: {np.flatnonzero(~same)[:5]} differ"
    assert mine.tobytes() == before.tobytes(), f"{where}: the sender's array has changed"

def run(name, count, kind):
    op, step_of = OPS[name]
    mine, before = part(rank, count, kind), part(rank, count, kind)
    whole = reduced(step_of, count, kind)
    got = np.empty_like(mine)
    comm.Allreduce(mine, got, op)
    check("Allreduce", name, got, whole, mine, before)
    got = mine.copy()
    comm.Allreduce(MPI.IN_PLACE, got, op)
    check("Allreduce in place", name, got, whole, mine, before)
    for root in range(size):
        got = mine.copy() if rank == root else None
        comm.Reduce(MPI.IN_PLACE if rank == root else mine, got, op, root)
        if rank == root:
            check(f"Reduce to {root}", name, got, whole, mine, before)
    counts = [count // size * 2 * (i % 2) for i in range(size)]
    counts[-1] = count - sum(counts[:-1])
    place = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
    got = np.empty(counts[rank], kind)
    comm.Reduce_scatter(mine, got, counts, op)
    check("Reduce_scatter", name, got, whole[place], mine, before)
    got = mine.copy()
    comm.Reduce_scatter(MPI.IN_PLACE, got, counts, op)
    check("Reduce_scatter in place", op, got[: counts[rank]], whole[place], mine, before)

for count in (1000, 9000, 70_001):
    for name in OPS:
        run(name, count, "d")
    run("SUM", count, "F")
    run("MAX", count, "i4")
    run("SUM", count, "f")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_reductions_of_every_operation(ranks: int) -> None:
    launch(ranks, "-c", PROGRAM)


FAULTS = """
import resource
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
mine, got = np.ones(1 << 17), np.empty(1 << 17)

def faults(turns):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(turns):
        comm.Allreduce(mine, got)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(20)
found = faults(100)
assert found < 500, f"{found} page faults in 100 reductions of 1 MiB"
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_reductions_keep_their_memory_from_call_to_call(ranks: int) -> None:
    launch(ranks, "-c", FAULTS)
