# SPDX-License-Identifier: Apache-2.0
"""Real ranks, started by the launcher: messages, collectives, ends."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpi.launcher.jobs import PATIENCE, launch, launch_program

MESSAGES = """
import random
from shmnd.mpi.communicators.intracomm import COMM_WORLD as comm
from shmnd.mpi.point_to_point.status import Status

chance = random.Random(7)
plan = [
    (chance.randrange(comm.size), chance.randrange(comm.size), chance.randrange(3),
     chance.choice([0, 1, 31, 32, 33, 4000, 8192, 8193, 70000, 600000]))
    for _ in range(120)
]
def content(i, n):
    return bytes([i % 251]) * n
sends = [
    comm.Issend([content(i, n), "B"], to, tag) if i % 5 == 0 else
    comm.Isend([content(i, n), "B"], to, tag)
    for i, (source, to, tag, n) in enumerate(plan) if source == comm.rank
]
for i, (source, to, tag, n) in enumerate(plan):
    if to != comm.rank:
        continue
    buf = bytearray(n)
    status = Status()
    comm.Recv([buf, "B"], source, tag, status)
    assert buf == content(i, n), i
    assert (status.source, status.tag, status.Get_count()) == (source, tag, n)
for each in sends:
    each.Wait()
comm.Barrier()
print("well")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_messages_come_whole_and_in_order(ranks: int) -> None:
    assert launch(ranks, "-c", MESSAGES).stdout.count("well") == ranks


COLLECTIVES = """
import numpy as np
from shmnd.mpi.buffers.sentinels import IN_PLACE
from shmnd.mpi.communicators.intracomm import COMM_WORLD as comm
size, rank = comm.size, comm.rank
for n in (1, 700, 50000):
    mine = np.arange(n, dtype="d") * 0.1 + rank
    total = np.empty(n)
    comm.Allreduce(mine, total)
    same = mine.copy()
    comm.Allreduce(IN_PLACE, same)
    assert (same == total).all(), "in place, other bits"
    small = np.empty(min(n, 500))
    comm.Allreduce(mine[:500], small)
    assert (small == total[:500]).all(), "by slices, other bits"
    counts = [n // size + (n % size if r == 0 else 0) for r in range(size)]
    part, first = np.empty(counts[rank]), sum(counts[:rank])
    comm.Reduce_scatter(mine, part, counts)
    assert (part == total[first : first + counts[rank]]).all(), "scattered, other bits"
    whole = mine.copy()
    comm.Reduce(IN_PLACE if rank == size - 1 else mine, whole, root=size - 1)
    assert (whole == (total if rank == size - 1 else mine)).all()
    every = np.empty((size, n))
    comm.Allgather(total, every)
    assert all((each == total).all() for each in every), "not the same bits"
    for root in range(size):
        got = np.empty(n)
        comm.Reduce(mine, got if rank == root else None, root=root)
        if rank == root:
            assert (got == total).all(), "another root, other bits"
        data = np.full(n, float(rank))
        comm.Bcast(data, root)
        assert (data == root).all()
    out, into = np.repeat(np.arange(size) + rank * 10.0, n), np.empty(size * n)
    comm.Alltoall(out, into)
    assert (into == np.repeat(np.arange(size) * 10.0 + rank, n)).all()
assert comm.allgather(rank) == list(range(size))
strided = np.full(3 * size, -1.0)
comm.Allgatherv(np.full(2, float(rank)), [strided, (2, 3), "d"])
assert strided.tolist() == [v for r in range(size) for v in (r, r, -1)], "one number is a stride"
half = comm.Split(rank % 2, -rank)
assert half.allgather(rank) == [r for r in reversed(range(size)) if r % 2 == rank % 2]
both = [comm.Iallreduce(np.full(3, rank + 1.0), np.empty(3)) for _ in range(4)]
comm.Barrier()
for each in reversed(both):
    each.Wait()
print("well")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_collectives_give_the_same_bits_everywhere(ranks: int) -> None:
    assert launch(ranks, "-c", COLLECTIVES).stdout.count("well") == ranks


WINDOWS = """
import numpy as np
from shmnd.mpi.communicators.intracomm import COMM_WORLD as comm
from shmnd.mpi.one_sided.win import Win
mine = np.zeros(4, dtype="q")
for win in (Win.Create(mine, 8, comm=comm), Win.Allocate(32, 8, comm=comm)):
    win.Fence()
    for target in range(comm.size):
        for _ in range(20):
            win.Accumulate(np.ones(4, dtype="q"), target)
    win.Fence()
    got = np.empty(4, dtype="q")
    win.Get(got, (comm.rank + 1) % comm.size)
    assert (got == 20 * comm.size).all(), got
    win.Fence()
    old = np.empty(1, dtype="q")
    win.Lock(0)
    win.Fetch_and_op(np.ones(1, dtype="q"), old, 0)
    win.Unlock(0)
    win.Free()
print("well")
"""


@pytest.mark.slow
def test_accumulations_of_all_ranks_add_up() -> None:
    assert launch(3, "-c", WINDOWS).stdout.count("well") == 3


def test_a_message_that_is_too_long_is_an_error_that_names_it() -> None:
    program = (
        "from shmnd.mpi.communicators.intracomm import COMM_SELF as c\n"
        "c.Isend([b'12345', 'B'], 0, 7)\n"
        "try:\n    c.Recv([bytearray(3), 'B'], 0, 7)\n"
        "except Exception as error:\n    print(error)\n"
    )
    said = launch(1, "-c", program).stdout
    assert "tag 7" in said
    assert "3 bytes" in said


# -- the launcher --


def test_the_exit_code_is_that_of_the_first_rank_that_failed() -> None:
    program = "import sys, time, os\nif os.environ['SHMND_MPI_RANK'] == '1': sys.exit(9)\n"
    ran = launch(2, "-c", program + f"time.sleep({PATIENCE})", expect=9)
    assert "rank 1" in ran.stderr
    assert "exit code 9" in ran.stderr


def test_a_rank_that_fails_is_named_also_where_all_others_have_ended() -> None:
    program = """
import os, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank < comm.size - 1:
    sys.exit(comm.ssend(os.getpid(), comm.size - 1))
process = comm.recv(source=0) if comm.size > 1 else 0
while process and os.path.exists(f"/proc/{process}"):  # until the launcher has seen its end
    pass
sys.exit(5)
"""
    said = launch(2, "-c", program, expect=5).stderr
    assert re.fullmatch(r"shmnd mpiexec: rank 1 \(process \d+\) ended with exit code 5\n", said)
    assert not launch(1, "-c", program, expect=5).stderr


def test_a_killed_rank_ends_the_job_and_is_named() -> None:
    program = (
        "import os, signal\n"
        "from shmnd.mpi.communicators.intracomm import COMM_WORLD as c\n"
        "if c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "c.Barrier()\n"
    )
    ran = launch(3, "-c", program, expect=128 + signal.SIGKILL)
    assert "rank 1" in ran.stderr
    assert "SIGKILL" in ran.stderr


def test_freed_requests_are_forgotten_when_their_messages_have_gone() -> None:
    program = (
        "import gc\n"
        "from shmnd.mpi.communicators.intracomm import COMM_SELF as c\n"
        "data = bytearray(20000)\n"
        "for number in range(1000):\n"
        "    c.Isend(bytes([number % 256]) * 20000, 0).Free()\n"
        "    c.Recv(data, 0)\n"
        "    assert data[0] == data[-1] == number % 256\n"
        "gc.collect()\n"
        "kept = [each for each in gc.get_objects() if type(each).__name__ == 'Point']\n"
        "assert len(kept) <= 64, len(kept)\n"
    )
    launch(1, "-c", program)


@pytest.mark.parametrize(("code", "ends"), [(5, 5), (0, 1), (256, 1), (300, 44), (-1, 255)])
def test_an_abort_ends_all_ranks_with_its_code_and_not_with_that_of_success(
    code: int, ends: int
) -> None:
    program = (
        "from shmnd.mpi.communicators.intracomm import COMM_WORLD as c\n"
        f"if c.rank == 1:\n    c.Abort({code})\nc.recv()\n"
    )
    said = launch(2, "-c", program, expect=ends).stderr
    assert said.startswith(f"[rank 1] MPI_Abort({code}) of MPI_COMM_WORLD\n"), said


@pytest.mark.parametrize(
    ("made", "title"),
    [
        ("c.Dup()", "the communicator of 2"),
        ("c.Create_intercomm(0, w, 1 - w.rank, 7)", "the intercommunicator of 1 and 1"),
        ("MPI.COMM_NULL", "a null communicator"),
        ("named(w.Dup())", "pairs"),
    ],
)
def test_an_abort_names_its_communicator(made: str, title: str) -> None:
    program = (
        "from shmnd.mpi import MPI\n"
        "w = MPI.COMM_WORLD\n"
        "def named(comm):\n"
        "    comm.Set_name('pairs')\n"
        "    return comm\n"
        f"c = MPI.COMM_SELF if {'inter' in made} else w\n"
        f"made = {made}\n"
        "if w.rank == 1:\n    made.Abort(4)\n"
        "w.recv()\n"
    )
    said = launch(2, "-c", program, expect=4).stderr
    assert said.startswith(f"[rank 1] MPI_Abort(4) of {title}\n"), said


def test_an_abort_ends_the_job_of_a_subclass_that_has_names_of_its_own() -> None:
    program = (
        "from mpi4py import MPI\n"
        "class Named(MPI.Intracomm):\n"
        "    title = 'simulation'\n"
        "c = Named(MPI.COMM_WORLD)\n"
        "if c.rank == 1:\n    c.Abort(4)\n"
        "c.recv()\n"
    )
    said = launch(2, "-c", program, expect=4).stderr
    assert said.startswith("[rank 1] MPI_Abort(4) of MPI_COMM_WORLD\n"), said


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise ValueError('it failed')", 1),
        ("sys.exit('it failed')", 1),
        ("sys.exit(7)", 7),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_a_program_run_by_mpi4py_that_fails_is_named_as_an_abort(end: str, code: int) -> None:
    program = f"import sys\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1:\n    {end}\n"
    program += "MPI.COMM_WORLD.recv()\n"
    said = launch(2, sys.executable, "-m", "mpi4py", "-c", program, expect=code).stderr
    assert f"[rank 1] MPI_Abort({code}) of MPI_COMM_WORLD\n" in said, said


def test_a_program_run_by_mpi4py_that_succeeds_aborts_nothing() -> None:
    program = "import sys\nfrom mpi4py import MPI\nsys.exit(0)\n"
    assert launch(2, sys.executable, "-m", "mpi4py", "-c", program).stderr == ""


@pytest.mark.parametrize("code", ["None", "'seven'"])
def test_an_abort_whose_code_is_no_integer_aborts_nothing(code: str) -> None:
    program = (
        "from mpi4py import MPI\n"
        f"try:\n    MPI.COMM_WORLD.Abort({code})\n"
        "except TypeError as error:\n"
        "    assert 'Comm.Abort: errorcode' in str(error), error\n"
        "else:\n    raise AssertionError('it returned')\n"
    )
    assert launch(1, "-c", program).stderr == ""


@pytest.mark.parametrize(
    "output",
    [
        "sys.stdout.close()",
        "sys.stdout = None",
        "del sys.stdout",
        "sys.stderr = open('/dev/full', 'w')",
    ],
)
@pytest.mark.parametrize(
    "end",
    [
        "c.Abort(7)",
        "c.Set_errhandler(MPI.ERRORS_ARE_FATAL)\n    c.send(1, dest=2)",
        "environment._set_abort_status(7)\n    sys.exit(7)",
    ],
)
def test_a_rank_whose_output_cannot_be_written_aborts_the_job(end: str, output: str) -> None:
    program = (
        "import sys, time\n"
        "from shmnd.mpi import MPI, environment\n"
        "c = MPI.COMM_WORLD\n"
        "if c.rank:\n"
        f"    {output}\n"
        "    if sys.stderr is not sys.__stderr__:\n"
        "        sys.stderr.write('in the buffer')\n"
        f"    {end}\n"
        "c.recv()\n"
    )
    code = 6 if "FATAL" in end else 7  # the class of the error, ERR_RANK
    launch_program(2, program, expect=code)


def test_an_abort_writes_the_output_of_a_stream_of_bytes() -> None:
    program = (
        "import sys\n"
        "from shmnd.mpi import MPI\n"
        "sys.stdout = sys.stdout.buffer\n"
        "sys.stdout.write(b'written')\n"
        "MPI.COMM_WORLD.Abort(3)\n"
    )
    assert launch(1, "-c", program, expect=3).stdout == "written"


def test_no_rank_outlives_a_launcher_that_is_killed() -> None:
    program = (
        "import os, time\n"
        "from shmnd.mpi.communicators.intracomm import COMM_WORLD as c\n"
        "pids = c.allgather(os.getpid())\n"
        "print(*pids, flush=True) if c.rank == 0 else None\n"
        f"time.sleep({PATIENCE})\n"
    )
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", program]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pids = [int(word) for word in launcher.stdout.readline().split()]
        launcher.kill()
    assert len(pids) == 2
    deadline = time.monotonic() + PATIENCE
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        os.sched_yield()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_lines_carry_their_rank_and_standard_input_goes_to_the_first() -> None:
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "--prefix"]
    program = "import sys; print(sys.stdin.read().strip() or 'nothing')"
    ran = subprocess.run(
        [*line, "-c", program],
        input="for rank 0",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert sorted(ran.stdout.splitlines()) == ["[0] for rank 0", "[1] nothing"]


def test_more_ranks_than_cores_are_remarked_on() -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    line = [sys.executable, "-m", "shmnd.mpi", "-n", str(ranks), "-c", "pass"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert f"{ranks} ranks on {ranks - 1} cores" in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n", "0", "x"], "1 to 1024"),
        (["-n", "2"], "a program is missing"),
        (["x.py"], "-n N"),
        (["-n", "1", "--wdir", "/nowhere", "x"], "no such folder"),
    ],
)
def test_a_wrong_command_line_is_reported_in_one_line(words: list[str], said: str) -> None:
    line = [sys.executable, "-m", "shmnd.mpi", *words]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 2
    assert said in ran.stderr
