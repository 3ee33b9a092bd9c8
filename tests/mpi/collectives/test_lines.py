# SPDX-License-Identifier: Apache-2.0
"""Small collectives of real ranks, which go by lines."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mpi.launcher.jobs import FAILS, PATIENCE, UNTIL_WAITS, launch_program
from shmnd_tools.observe import jobs

BEGIN = (
    """
import os, random, signal, threading, time
import numpy as np
from shmnd.mpi import MPI
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
"""
    + FAILS
)


def launch(
    ranks: int, program: str, *options: str, expect: int = 0
) -> subprocess.CompletedProcess[str]:
    """The result of a job whose ranks run a program after `BEGIN`."""
    return launch_program(ranks, BEGIN + program, *options, expect=expect)


MIXTURE = """
chance, own = random.Random(5), random.Random(rank)
parts = [comm, comm.Dup(), comm.Split(0, -rank)]
holes = MPI.DOUBLE.Create_vector(2, 1, 3).Commit()
def first(x, y, t):
    pass
odd = MPI.Op.Create(lambda x, y, t: y.cast("d").__setitem__(0, x.cast("d")[0]), commute=False)
left = []
def values(n, r, i):
    return np.arange(n) * 0.37 + 1.0 / (r + 1) + i
for i in range(ROUNDS):
    c = chance.choice(parts)
    me, n = c.rank, chance.choice([0, 1, 2, 7, 30, 31, 32, 200])
    root, kind = chance.randrange(size), chance.randrange(10)
    mine = values(n, me, i)
    total = np.empty(n)
    if own.random() < 0.02:
        time.sleep(0.001)
    if kind == 0:
        c.Barrier()
    elif kind == 1:
        data = values(n, root, i) if me == root else np.empty(n)
        c.Bcast([data, n, MPI.DOUBLE] if own.random() < 0.5 else data, root)
        assert (data == values(n, root, i)).all()
    elif kind == 2:
        whole = np.full(6, float(me))
        packed = [whole[::3].copy(), 2, MPI.DOUBLE]
        c.Bcast([whole, 1, holes] if own.random() < 0.5 else packed, root)
    elif kind == 3:
        c.Allreduce(mine, total)
        same = mine.copy()
        request = c.Iallreduce(mine, same)
        again = mine.copy()
        c.Allreduce(MPI.IN_PLACE, again)
        request.Wait()
        assert total.tobytes() == same.tobytes() == again.tobytes(), "other bits by messages"
        assert np.allclose(total, sum(values(n, r, i) for r in range(size)))
    elif kind == 4:
        into = total if me == root else None
        c.Reduce(mine, into, MPI.MAX, root)
        if me == root:
            assert (into == values(n, 0, i)).all()
    elif kind == 5:
        every = np.empty((size, n))
        if own.random() < 0.5:
            c.Allgather(mine, every)
        else:
            every[me] = mine
            c.Allgather(MPI.IN_PLACE, [every, n, MPI.DOUBLE])
        assert (every == [values(n, r, i) for r in range(size)]).all()
    elif kind == 6:
        every = np.empty((size, n)) if me == root else None
        c.Gather(mine, every, root)
        assert me != root or (every == [values(n, r, i) for r in range(size)]).all()
    elif kind == 7:
        c.Allreduce(np.full(1, float(me)), total := np.empty(1), odd)
        assert total[0] == 0
    elif kind == 8:
        pair = np.zeros(1, "d,i4")
        pair["f0"], pair["f1"] = -me, me
        into = np.zeros(1, "d,i4")
        c.Allreduce([pair, 1, MPI.DOUBLE_INT], [into, 1, MPI.DOUBLE_INT], MPI.MAXLOC)
        assert into["f1"][0] == 0
    else:
        buf = np.empty(n)
        left.append((c.Irecv(buf, (me - 1) % size, i), buf, values(n, (me - 1) % size, i)))
        left.append((c.Isend(mine, (me + 1) % size, i), mine, mine))
        left.append((c.Ibarrier(), mine, mine))
    if own.random() < 0.1:
        for request, got, expected in left:
            request.Wait()
            assert (got == expected).all()
        left.clear()
for request, got, expected in left:
    request.Wait()
    assert (got == expected).all()
print("well")
"""


@pytest.mark.stress
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_all_small_collectives_in_any_order_beside_other_traffic(ranks: int) -> None:
    assert launch(ranks, MIXTURE.replace("ROUNDS", "1500")).stdout.count("well") == ranks


def test_communicators_beyond_the_slots_and_large_ones_go_by_messages() -> None:
    program = """
made = [comm]
for _ in range(70):
    made.append(made[-1].Dup())
for each in made:
    each.Barrier()
    total = np.empty(1)
    each.Allreduce(np.ones(1), total)
    assert total[0] == size
print("well")
"""
    assert launch(2, program).stdout.count("well") == 2
    program = """
for i in range(20):
    comm.Barrier()
    data = np.full(1, float(rank)); comm.Bcast(data, i % size); assert data[0] == i % size
print("well")
"""
    assert launch(17, program).stdout.count("well") == 17


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("comm.Bcast(bytearray(8), 1)", "comm.Bcast(bytearray(3000), 1)"),
        ("comm.Bcast(bytearray(8), 1)", "comm.Bcast(bytearray(9), 1)"),
        ("comm.Bcast(bytearray(3000), 1)", "comm.Bcast(bytearray(8), 1)"),
        ("comm.Bcast(bytearray(8), 1)", "comm.Barrier()"),
        ("comm.Barrier()", "comm.Bcast(bytearray(3000), 1)"),
        ("comm.Allreduce(np.ones(1), np.ones(1))", "comm.Allreduce(np.ones(2), np.ones(2))"),
        ("comm.Reduce(np.ones(1), np.ones(1), root=0)", "comm.Reduce(np.ones(2), None, root=0)"),
        ("comm.Gather(bytearray(1), bytearray(2))", "comm.Gather(bytearray(2), None)"),
    ],
)
def test_calls_that_do_not_agree_are_an_error(mine: str, theirs: str) -> None:
    program = f"""
if rank == 0:
    error = fails(lambda: {mine})
    assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
    told = "rank 1 is in another collective", "rank 1 takes part with "
    assert any(each in str(error) for each in told), error
    print("well")
else:
    try:
        {theirs}
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
os.close(1)
os._exit(0)
"""
    program = program.replace("os.close(1)", "import sys; sys.stdout.flush()")
    assert launch(2, program).stdout.count("well") == 1


def test_an_interrupted_barrier_counts_and_the_next_collective_succeeds() -> None:
    program = (
        UNTIL_WAITS
        + """
if rank == 0:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        comm.Barrier()
        raise AssertionError("the barrier ended")
    except KeyboardInterrupt:
        pass
    comm.send("interrupted", 1)
elif rank == 1:
    os.kill(until_waits(0, "Barrier"), signal.SIGALRM)
    assert comm.recv() == "interrupted"
if rank:
    comm.Barrier()
total = np.empty(1)
comm.Allreduce(np.ones(1), total)
assert total[0] == size
print("well")
"""
    )
    assert launch(3, program).stdout.count("well") == 3


def test_a_writer_that_is_interrupted_without_room_has_not_begun() -> None:
    program = (
        UNTIL_WAITS
        + """
data = np.zeros(1)
signal.signal(signal.SIGALRM, signal.default_int_handler)
if rank == 0:
    sent = 0
    try:
        while True:
            data[0] = sent
            comm.Bcast(data)
            sent += 1
    except KeyboardInterrupt:
        pass
    assert 0 < sent < 100
    comm.send(sent, 1)
    data[0] = sent
    comm.Bcast(data)
else:
    if rank == 1:
        os.kill(until_waits(0, "Bcast"), signal.SIGALRM)
    for i in range(comm.recv() + 1):
        comm.Bcast(data)
        assert data[0] == i
comm.Barrier()
print("well")
"""
    )
    assert launch(2, program).stdout.count("well") == 2


CALLS = [
    "comm.Barrier()",
    "comm.Bcast(bytearray(8), 1)",
    "comm.Allreduce(np.ones(1), np.ones(1))",
    "comm.Reduce(np.ones(1), np.ones(1)) if rank == 0 else comm.recv(source=1)",
    "comm.Allgather(np.ones(1), np.ones(size))",
]


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_the_death_of_a_member_ends_the_wait(call: str) -> None:
    program = f"""
comm.Barrier()
if rank == 1:
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
error = fails(lambda: {call})
assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
assert fails(comm.Barrier).Get_error_class() == MPI.ERR_PROC_FAILED
small = comm.Shrink()
small.Barrier()
total = np.empty(1)
small.Allreduce(np.ones(1), total)
assert total[0] == size - 1
print("well")
"""
    assert launch(3, program, "--enable-recovery").stdout.count("well") == 2


def test_the_end_of_a_job_names_the_awaited_rank() -> None:
    program = (
        UNTIL_WAITS
        + """
comm.Barrier()
if rank == 1:
    until_waits(0, "Allreduce")
    os.kill(os.getpid(), signal.SIGKILL)
comm.Allreduce(np.ones(1), np.ones(1))
"""
    )
    said = launch(2, program, expect=128 + signal.SIGKILL).stderr
    assert "rank 0 waited in Allreduce of MPI_COMM_WORLD for rank 1 (" in said


def test_a_revocation_ends_the_wait() -> None:
    program = """
own = comm.Dup()
if rank == 0:
    time.sleep(0.1)
    own.Revoke()
    assert fails(own.Barrier).Get_error_class() == MPI.ERR_REVOKED
else:
    assert fails(own.Barrier).Get_error_class() == MPI.ERR_REVOKED
comm.Barrier()
print("well")
"""
    assert launch(3, program).stdout.count("well") == 3


def test_threads_wait_by_lines_and_for_messages_at_the_same_time() -> None:
    program = """
own = comm.Dup()
def talks():
    for i in range(200):
        if rank:
            own.send(i, 0)
            assert own.recv(source=0) == i
        else:
            for other in range(1, size):
                assert own.recv(source=other) == i
                own.send(i, other)
thread = threading.Thread(target=talks)
thread.start()
total = np.empty(1)
for i in range(500):
    comm.Allreduce(np.full(1, float(i)), total)
    assert total[0] == i * size
thread.join()
comm.Barrier()
print("well")
"""
    assert launch(3, program).stdout.count("well") == 3


def test_tools_show_the_wait_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = f"lines-{os.getpid()}"
    monkeypatch.setenv("SHMND_NAMESPACE", namespace)
    program = "comm.Recv(bytearray(1), 1) if rank else comm.Barrier()"
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", BEGIN + program]
    with subprocess.Popen(line) as launcher:
        try:
            deadline = time.monotonic() + PATIENCE
            shown: list[str] = []
            while len(shown) < 2 or not shown[0].startswith("Barrier"):
                assert time.monotonic() < deadline
                time.sleep(0.02)
                shown = [each.waits or "" for each in jobs.ranks(namespace)]
        finally:
            launcher.terminate()
    assert shown[0].startswith("Barrier of MPI_COMM_WORLD for rank 1 (")
