# SPDX-License-Identifier: Apache-2.0
"""A rank that ends in order, or seems to, while others wait for it."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from mpi.launcher import jobs
from mpi.launcher.jobs import jobs_of_all, launch, python, results

__all__ = ["jobs_of_all", "results"]

BEGIN = """
import os, signal, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
"""

Results = dict[str, subprocess.CompletedProcess[str]]


def with_jobs(
    programs: str | dict[str, str], ranks: int = 2, expect: int = 0
) -> Callable[[Any], Any]:
    """The programs begin with what all have in common here."""
    if isinstance(programs, str):
        return jobs.with_jobs(BEGIN + programs, ranks, expect)
    begun = {name: BEGIN + program for name, program in programs.items()}
    return jobs.with_jobs(begun, ranks, expect)


def run(program: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a program as ranks of one job."""
    return launch(ranks, "-c", BEGIN + program)


WAITS = {
    "recv": ("comm.recv(source=1, tag=7)", "recv of MPI_COMM_WORLD for rank 1, tag 7"),
    "Recv": ("comm.Recv(bytearray(8), 1, 7)", "Recv of MPI_COMM_WORLD for rank 1, tag 7"),
    "Ssend": ("comm.Ssend(b'x', 1, 3)", "Ssend of MPI_COMM_WORLD for rank 1, tag 3"),
    "long Send": ("comm.Send(bytes(100000), 1, 3)", "Send of MPI_COMM_WORLD for rank 1, tag 3"),
    "Wait": ("comm.Irecv(bytearray(8), 1, 7).Wait()", "Irecv of MPI_COMM_WORLD for rank 1, tag 7"),
    "Barrier": ("comm.Barrier()", "Barrier of MPI_COMM_WORLD for rank 1"),
    "Waitall": (
        "MPI.Request.Waitall([comm.Irecv(bytearray(8), 1, k) for k in range(3)])",
        "Irecv of MPI_COMM_WORLD for rank 1, tag 0, and 2 more",
    ),
    "Waitany": (
        "MPI.Request.Waitany([comm.Irecv(bytearray(8), 1, k) for k in range(3)])",
        "Irecv of MPI_COMM_WORLD for rank 1, tag 0, and 2 more",
    ),
    "Allreduce": (
        "comm.Allreduce(bytearray(9000), bytearray(9000), MPI.BXOR)",
        "Allreduce of MPI_COMM_WORLD for rank 1",
    ),
}


IN_VAIN = {wait: f"os._exit(0) if rank else {call}" for wait, (call, _) in WAITS.items()}
IN_VAIN["Recv after sys.exit"] = f"sys.exit() if rank else {WAITS['Recv'][0]}"


@with_jobs(IN_VAIN, expect=1)
def test_a_wait_for_a_rank_that_has_ended_ends_the_job(results: Results) -> None:
    for wait, ran in results.items():
        words = WAITS[wait.partition(" after ")[0]][1]
        assert "rank 1 has ended, and rank 0 waits for it in" in ran.stderr, (wait, ran.stderr)
        assert words in ran.stderr, (wait, ran.stderr)


LATE = {
    "Gather": "comm.Gather(mine, every)",
    "Igather": "comm.Igather(mine, every).Wait()",
    "Waitall": "MPI.Request.Waitall([comm.Igather(mine, every), comm.Ibarrier()])",
    "Waitall of receives": """
MPI.Request.Waitall([comm.Irecv(every[k], k, 0) for k in (1, 2)] if not rank
    else [comm.Isend(mine, 0, 0)])""",
    "Waitany": """
pending = [comm.Irecv(every[k], k, 0) for k in (1, 2)] if not rank else [comm.Isend(mine, 0, 0)]
for _ in pending: MPI.Request.Waitany(pending)""",
    "Waitany of two": """
if not rank:
    MPI.Request.Waitany(pending := [comm.Irecv(every[2], k, k) for k in (1, 2)])
    pending[0].Cancel()
elif rank == 2: comm.Send(mine, 0, 2)""",
    "Sendrecv": """
if not rank: comm.Sendrecv(mine, 2, 0, every[1], 1, 0)
elif rank == 1: comm.Send(mine, 0, 0)
else: comm.Recv(every[0], 0, 0)""",
    "Lock": """
win = MPI.Win.Allocate(8, comm=comm)
comm.Barrier()
if rank == 2:
    win.Lock(1)
    comm.Barrier()
    time.sleep(4)
    win.Unlock(1)
else:
    comm.Barrier()
    if rank == 0:
        win.Lock(1)
        win.Unlock(1)""",
}


ENDED_BEFORE = {
    wait: f"""
import numpy as np
mine, every = np.full(200_000, rank, "B"), np.zeros((3, 200_000), "B")
comm.Barrier()
time.sleep((0, 0.5, {0 if wait == "Lock" else 4})[rank])
{calls}
print("well" if not rank else "")
os._exit(0) if rank == 1 else None
"""
    for wait, calls in LATE.items()
}


@with_jobs(ENDED_BEFORE, 3)
def test_a_rank_whose_part_is_done_may_end_before_the_others(results: Results) -> None:
    """Rank 0 waits first for rank 1, and then for rank 2, when rank 1 has ended long ago."""
    for wait, ran in results.items():
        assert "well" in ran.stdout, (wait, ran)


@with_jobs(
    """
def tidies(*_):
    time.sleep(0.3)
    print("tidied", flush=True)
    os._exit(0)

if rank:
    comm.recv()
    sys.exit(3)
signal.signal(signal.SIGTERM, tidies)
comm.send(None, 1)
comm.recv(tag=9)
""",
    expect=3,
)
def test_a_rank_that_is_ended_for_another_one_has_time_to_tidy_up(results: Results) -> None:
    assert results[""].stdout == "tidied\n"


LEFT = "comm.Isend(bytes(100000), other, 3)"
"""A send that the program does not wait for."""


@with_jobs(
    {
        "a long message": f"os._exit(0) if rank else {LEFT}",
        "each to the other": LEFT,
        "a full lane": "if not rank: [comm.Isend(bytes(8000), 1, 3) for k in range(100)]",
    },
    expect=1,
)
def test_a_send_that_the_program_left_and_no_rank_receives_ends_the_job(results: Results) -> None:
    for left, ran in results.items():
        assert "the job cannot continue, and is ended" in ran.stderr, (left, ran.stderr)
        assert "Finalize for rank" in ran.stderr, (left, ran.stderr)
        assert "tag 3" in ran.stderr, (left, ran.stderr)


@with_jobs(f"""
if rank:
    time.sleep(4)
    assert comm.recv(source=0) == "short"
    target = bytearray(100000)
    comm.Recv(target, 0, 3)
    assert target == bytes(100000)
    print("well")
else:
    comm.isend("short", 1)
    {LEFT}
""")
def test_a_send_that_the_program_left_is_received_after_the_end(results: Results) -> None:
    assert results[""].stdout == "well\n", results


def test_a_send_to_itself_that_the_program_left_does_not_keep_a_rank() -> None:
    ran = run(
        """
comm.Isend(bytes(100000), rank)
MPI.COMM_SELF.issend("x", 0)
print("well")
""",
        ranks=1,
    )
    assert ran.stdout == "well\n", ran


@with_jobs("""
if rank:
    for k in range(50):
        comm.send(k, 0, k)
else:
    time.sleep(4)
    assert [comm.recv(source=1, tag=k) for k in reversed(range(50))] == list(reversed(range(50)))
    request = comm.irecv(source=1, tag=99)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert not request.test()[0]
    request.Cancel()
    request.Wait()
    print("well")
""")
def test_messages_of_a_rank_that_has_ended_still_arrive(results: Results) -> None:
    assert results[""].stdout == "well\n", results


@with_jobs(
    """
if rank == 0:
    assert comm.recv(source=1) == "late"
    assert comm.recv(source=MPI.ANY_SOURCE) == "later"
    print("well")
elif rank == 1:
    time.sleep(4)
    comm.send("late", 0)
    time.sleep(3)
    comm.send("later", 0)
""",
    3,
)
def test_a_wait_for_a_rank_that_runs_continues_after_another_has_ended(results: Results) -> None:
    assert results[""].stdout == "well\n", results


@with_jobs("""
import subprocess
if rank:
    comm.send("begin", 0)
    time.sleep(1)
    mine = comm.recv(source=0)
    time.sleep(1)  # it waits by now
    os.kill(mine, signal.SIGSTOP)
    comm.send("there", 0)
    # Continues it when this rank has ended for a while.
    subprocess.Popen(["sh", "-c", f"sleep 5; kill -CONT {mine}"], start_new_session=True)
else:
    comm.recv(source=1)
    comm.send(os.getpid(), 1)
    assert comm.recv(source=1) == "there"
    print("well")
""")
def test_a_rank_that_is_stopped_is_not_taken_for_one_that_waits_without_end(
    results: Results,
) -> None:
    assert results[""].stdout == "well\n", results


HELD = {
    "Lock": (
        "win.Lock(0)",
        "win.Lock(0)",
        "rank 1 has ended, and rank 2 waits for it in Win.Lock(0) of my window for rank 1",
    ),
    "Lock, shared": (
        "win.Lock(0, MPI.LOCK_SHARED)",
        "win.Lock(0)",
        "rank 1 has ended, and rank 2 waits for it in Win.Lock(0) of my window for rank 1",
    ),
    "Lock_all": (
        "win.Lock_all()",
        "win.Lock(2)",
        "rank 1 has ended, and rank 2 waits for it in Win.Lock(2) of my window for rank 1",
    ),
    "Start": (
        "pass",
        "win.Start(comm.group.Incl([1]))",
        "rank 1 has ended, and rank 2 waits for it in Win.Start of my window for rank 1",
    ),
    "Wait": (
        "pass",
        "win.Post(comm.group.Incl([1])); win.Wait()",
        "rank 1 has ended, and rank 2 waits for it in Win.Wait of my window for rank 1",
    ),
    "Fence": (
        "pass",
        "win.Fence()",
        "waits for it in Win.Fence of my window for rank 1",
    ),
    "Mutex": (
        "mutex.acquire(); comm.isend(0, 2)",
        "comm.recv(source=1); mutex.acquire()",
        "rank 1 has ended, and rank 2 waits for it in Mutex.acquire of the window of 3 for rank 1",
    ),
    "Condition": (
        "pass",
        "condition.acquire(); condition.wait()",
        "all other ranks have ended, and rank 2 waits in Condition.wait of the window of 3",
    ),
    "Condition, its mutex": (
        "condition.acquire(); comm.isend(0, 2)",
        "comm.recv(source=1); condition.acquire()",
        "rank 1 has ended, and rank 2 waits for it in Condition.acquire of the window of 3",
    ),
    "Condition, a predicate": (
        "pass",
        "condition.acquire(); condition.wait_for(lambda: False)",
        "all other ranks have ended, and rank 2 waits in Condition.wait_for of the window of 3",
    ),
    "Semaphore": (
        "pass",
        "semaphore.acquire()",
        "all other ranks have ended, and rank 2 waits in Semaphore.acquire of the window of 3",
    ),
    "a message from any rank": (
        "pass",
        "comm.Recv(bytearray(9), tag=7)",
        "all other ranks have ended, and rank 2 waits in Recv of MPI_COMM_WORLD for any rank",
    ),
    "a probe for any rank": (
        "pass",
        "comm.Probe(tag=7)",
        "all other ranks have ended, and rank 2 waits in Probe of MPI_COMM_WORLD for any rank",
    ),
}


def _ending(end: str) -> dict[str, str]:
    return {
        held: f"""
from mpi4py.util.sync import Condition, Mutex, Semaphore
win = MPI.Win.Allocate(64, comm=comm)
win.Set_name("my window")
mutex, condition = Mutex(comm=comm), Condition(comm=comm)
semaphore = Semaphore(0, comm=comm)
comm.Barrier()
if rank == 1: {takes}
comm.Barrier()
if rank == 1: {end}
if rank == 2: {waits}
{"if rank == 0: win.Fence()" if held == "Fence" else ""}
"""
        for held, (takes, waits, _) in HELD.items()
    }


@with_jobs(_ending("sys.exit()"), 3, expect=1)
def test_a_rank_that_ends_with_a_lock_ends_the_job(results: Results) -> None:
    """Rank 1 ends with a lock, or within an epoch; rank 2 waits for it."""
    for held, ran in results.items():
        assert HELD[held][2] in ran.stderr, (held, ran.stderr)


@pytest.mark.further
@with_jobs(_ending("os._exit(0)"), 3, expect=1)
def test_what_a_rank_took_along_as_it_left_at_once_ends_the_job(results: Results) -> None:
    for held, ran in results.items():
        assert HELD[held][2] in ran.stderr, (held, ran.stderr)


@with_jobs("""
from mpi4py.util.sync import Mutex
win, mutex = MPI.Win.Allocate(64, comm=comm), Mutex(comm=comm)
if rank == 1: win.Lock(0), mutex.acquire()
comm.Barrier()
if rank == 1:
    time.sleep(4)
    mutex.release(), win.Unlock(0)
else:
    mutex.acquire(), win.Lock(0), win.Unlock(0), mutex.release()
    print("well")
""")
def test_a_lock_that_a_rank_returns_late_is_waited_for(results: Results) -> None:
    assert results[""].stdout == "well\n", results


@with_jobs("""
import numpy as np
def add(source, target, _):
    time.sleep(0 if rank else 5)
    sums = np.frombuffer(target, "i4")
    sums += np.frombuffer(source, "i4")
mine, total = np.ones(1000, "i4"), np.zeros(1000, "i4")
time.sleep(3 if rank else 0)
comm.Reduce(mine, total, MPI.Op.Create(add), 0)
if not rank:
    assert (total == 2).all()
    print("well")
""")
def test_a_rank_whose_operation_takes_long_does_not_wait_without_end(results: Results) -> None:
    """It waited for a rank that has ended by now, and has all that it waited for."""
    assert results[""].stdout == "well\n", results


@with_jobs("""
import threading
def later():
    time.sleep(5)
    comm.send("late", rank)
if not rank:
    other = threading.Thread(target=later)
    other.start()
    assert comm.recv() == "late"
    other.join()
    print("well")
""")
def test_another_thread_may_send_to_a_rank_when_all_others_have_ended(results: Results) -> None:
    assert results[""].stdout == "well\n", results


NUMBERS = """
import mmap
from shmnd.mpi.transport import job_memory
if rank == 1:
    comm.send(os.getpid(), 0)
    sys.exit()
memory = mmap.mmap(int(os.environ["SHMND_MPI_JOB"]), 0, prot=mmap.PROT_READ)
process = comm.recv(source=1)
until = time.monotonic() + 60
while os.path.exists(f"/proc/{process}"):
    assert time.monotonic() < until
    time.sleep(0.001)
print(job_memory.pid_of(memory, 0) == os.getpid(), job_memory.pid_of(memory, 1))
"""


@pytest.mark.slow
def test_the_number_of_a_process_is_forgotten_before_another_may_have_it() -> None:
    """A copy by the kernel names its process by number."""
    assert run(NUMBERS).stdout == "True 0\n"


def test_a_rank_that_ends_meanwhile_is_not_asked_for_its_wait() -> None:
    """The end of the job waited half a second for a rank that had raised an error, and was gone."""
    program = """
import os, signal, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank:
    comm.ssend(os.getpid(), 0)
    os.kill(os.getpid(), signal.SIGKILL)
process = comm.recv(source=1)
while os.path.exists(f"/proc/{process}"):  # until the launcher has seen its end
    time.sleep(0.001)
os._exit(7)
"""
    patient = f"""
import sys
from shmnd.mpi.launcher import job
job._PATIENCE = 1e6
sys.exit(job.main(["-n", "2", "--oversubscribe", "-c", {program!r}]))
"""
    ran = python("-c", patient, expect=137)
    assert ran.stderr.splitlines()[1] == "shmnd mpiexec: rank 0 ended meanwhile"
