# SPDX-License-Identifier: Apache-2.0
"""A rank dies: the reports of the launcher, and the others with `--enable-recovery`."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mpi.launcher.jobs import FAILS, PATIENCE, launch_program
from shmnd.mpi.communicators.agreement import Agreements
from shmnd_tools.observe import jobs

BEGIN = (
    """
import os, signal
from shmnd.mpi import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
def dies():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    + FAILS
)


def launch(
    ranks: int, program: str, *options: str, expect: int = 0
) -> subprocess.CompletedProcess[str]:
    """The result of a job whose ranks run a program after `BEGIN`."""
    return launch_program(ranks, BEGIN + program, *options, expect=expect)


def test_the_end_of_a_job_names_the_waits_of_the_others() -> None:
    program = """
import time
if comm.rank == 1:
    time.sleep(0.2)  # not needed; the others wait by then as a rule
    dies()
if comm.rank == 2:
    comm.Recv(bytearray(8), source=1, tag=7)
if comm.rank == 3:
    comm.recv()
comm.Barrier()
"""
    said = launch(4, program, expect=128 + signal.SIGKILL).stderr
    assert "rank 1 " in said
    assert "was killed by SIGKILL; the others are ended" in said
    assert "rank 0 waited in Barrier of MPI_COMM_WORLD for rank" in said
    assert "rank 2 waited in Recv of MPI_COMM_WORLD for rank 1, tag 7 (" in said
    assert "rank 3 waited in recv of MPI_COMM_WORLD for any rank (" in said


RECOVERS = """
if comm.rank == 1:
    for _ in range(comm.size - 1):
        comm.recv(tag=2)  # all have left the barrier
    comm.send("before", 0, 3)
    dies()
comm.send("out", 1, 2)
if comm.rank == 0:
    assert comm.recv(source=1, tag=3) == "before"
    error = fails(comm.recv, source=1, tag=7)
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED
    assert "rank 1, tag 7" in str(error)
    for call in (comm.recv, comm.Probe, comm.recv):
        assert fails(call).Get_error_class() == MPI.ERR_PROC_FAILED
    assert fails(comm.ssend, 1, 1).Get_error_class() == MPI.ERR_PROC_FAILED
calls = (comm.Barrier, ()), (comm.bcast, (1,)), (comm.allreduce, (1,)), (comm.Agree, (3,))
for call, args in calls:
    assert fails(call, *args).Get_error_class() == MPI.ERR_PROC_FAILED
if comm.rank == 0:
    comm.Revoke()
else:
    assert fails(comm.recv, source=0, tag=9).Get_error_class() == MPI.ERR_REVOKED
assert comm.Is_revoked()
small = comm.Shrink()
assert small.allgather(comm.rank) == [rank for rank in range(comm.size) if rank != 1]
failed = comm.Get_failed()
assert failed.Translate_ranks([0], comm.Get_group()) == [1]
assert comm.Ack_failed() == 1
assert comm.Agree(4 + comm.rank % 2 + 2) == 6
made, request = small.Ishrink()
request.Wait()
if small.rank == 0:
    small.send("any", 1)
elif small.rank == 1:
    assert small.recv() == "any"
window = MPI.Win.Allocate(8, comm=made)
window.Fence()
window.Free()
made.Barrier()
print("well")
"""


@pytest.mark.slow
def test_a_job_with_recovery_continues_without_a_dead_rank() -> None:
    ran = launch(4, RECOVERS, "--enable-recovery")
    assert ran.stdout.count("well") == 3
    assert "was killed by SIGKILL; the others continue" in ran.stderr


ENDS_EARLY = """
if comm.rank == 1:
    raise SystemExit(0)
if comm.rank == 0:
    error = fails(comm.recv, source=1, tag=3)
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
    comm.Revoke()
else:
    assert fails(comm.Barrier).Get_error_class() in (MPI.ERR_REVOKED, MPI.ERR_PROC_FAILED)
rest = comm.Shrink()
assert rest.allreduce(comm.rank) == 2
print("well")
"""


@pytest.mark.slow
def test_a_job_with_recovery_continues_without_a_rank_that_has_ended() -> None:
    ran = launch(3, ENDS_EARLY, "--enable-recovery")
    assert ran.stdout.count("well") == 2
    assert "rank 1 has ended, and rank 0 waits for it in recv" in ran.stderr
    assert "the call fails" in ran.stderr


PENDING = """
if comm.rank == 1:
    comm.recv(source=0)
    dies()
buf, status = bytearray(5), MPI.Status()
if comm.rank == 0:
    wild = comm.Irecv(buf, tag=4)
    other = comm.Irecv(bytearray(1), source=2, tag=6)
    dropped = comm.irecv(tag=8)
    lasting = comm.Recv_init(bytearray(1), tag=10)
    lasting.Start()
    comm.recv(source=2, tag=1)
    comm.send(None, 1)
    assert fails(comm.recv, source=1).Get_error_class() == MPI.ERR_PROC_FAILED
    calls = (wild.Wait, wild.Test, wild.Get_status, wild.Wait, lasting.Wait, dropped.wait)
    for call in calls:
        error = fails(call)
        assert error.Get_error_class() == MPI.ERR_PROC_FAILED_PENDING, error
        assert "Ack_failed" in str(error)
    assert fails(MPI.Request.Waitany, [wild]).Get_error_class() == MPI.ERR_PROC_FAILED_PENDING
    comm.send("now", 2, 2)
    both, said = [wild, other], [MPI.Status(), MPI.Status()]
    error = fails(MPI.Request.Waitall, both, said)
    assert error.Get_error_class() == MPI.ERR_IN_STATUS
    assert wild and not other, "the one is pending, the other has ended"
    assert [each.Get_error() for each in said] == [MPI.ERR_PROC_FAILED_PENDING, MPI.SUCCESS]
    assert fails(comm.recv).Get_error_class() == MPI.ERR_PROC_FAILED
    dropped.Cancel()
    dropped.wait(status)
    assert status.Is_cancelled()
    assert comm.Ack_failed() == 1
    assert not wild.Test() and not lasting.Test()
    comm.send("again", 2, 2)
    wild.Wait(status)
    assert (buf, status.Get_source(), wild) == (b"words", 2, MPI.REQUEST_NULL)
    lasting.Wait()
elif comm.rank == 2:
    comm.send("out of the barrier", 0, 1)  # which a death would end with an error
    assert comm.recv(source=0, tag=2) == "now"
    comm.Send(bytearray(1), 0, 6)
    assert comm.recv(source=0, tag=2) == "again"
    comm.Send(b"words", 0, 4)
    comm.Send(b"x", 0, 10)
print("well")
"""


@pytest.mark.slow
def test_a_wildcard_receive_stays_posted_until_the_death_is_acknowledged() -> None:
    assert launch(3, PENDING, "--enable-recovery").stdout.count("well") == 2


SOLVER = """
import numpy as np
world, step, value = comm, 0, np.ones(1)
while step < 12:
    if step == 4 and comm.rank == 2 or step == 8 and comm.rank == 0:
        dies()
    try:
        total = np.empty(1)
        world.Allreduce(value, total)
        good = True
    except MPI.Exception as error:
        good = False
    if not good:
        world.Revoke()
    world.Ack_failed()
    try:
        agreed = world.Agree(int(good))
    except MPI.Exception:
        agreed = 0
    if agreed:
        assert total[0] == world.size
        step += 1
        continue
    world.Revoke()
    world = world.Shrink()
    step = world.allreduce(step, MPI.MIN)
print(f"well {world.size}")
"""


@pytest.mark.slow
def test_a_solver_goes_back_to_the_last_step_that_all_survivors_have() -> None:
    ran = launch(5, SOLVER, "--enable-recovery")
    assert ran.stdout.count("well 3") == 3


EPOCH = """
import time
win = MPI.Win.Create(bytearray(8), comm=comm)
win.Set_errhandler(MPI.ERRORS_RETURN)
targets = comm.Get_group().Incl([1, 2])
origin = comm.Get_group().Incl([0])
if comm.rank == 0:
    win.Start(targets)
    comm.send(0, 1)
    while comm.Get_failed().size == 0:
        time.sleep(0.001)
    assert fails(win.Complete).Get_error_class() == MPI.ERR_PROC_FAILED
    print("well")
else:
    win.Post(origin)
    if comm.rank == 1:
        comm.recv(source=0)
        dies()
    win.Wait()
    print("well")
"""


def test_an_epoch_ends_at_its_other_targets_when_one_has_died() -> None:
    assert launch(3, EPOCH, "--enable-recovery").stdout.count("well") == 2


LOCKS = """
import time
import numpy as np
win = MPI.Win.Allocate(8, 8, comm=comm)
np.frombuffer(win.tomemory(), "i8")[:] = 0
comm.Barrier()
def turn():
    seen = np.zeros(1, "i8")
    win.Lock(0)
    win.Get(seen, 0)
    win.Flush(0)
    time.sleep(0.0002)  # so that the others find the lock taken
    win.Put(seen + 1, 0)
    win.Unlock(0)
if comm.rank == 2:
    if HOLDS:
        win.Lock(0, KIND)
    dies()
while comm.Get_failed().size == 0:
    time.sleep(0.001)
"""


def test_a_lock_of_a_living_rank_is_taken_in_turns_where_another_rank_has_died() -> None:
    program = """
for _ in range(100):
    turn()
alive = comm.Shrink()
alive.Barrier()
win.Lock(0, MPI.LOCK_SHARED)
seen = np.zeros(1, "i8")
win.Get(seen, 0)
win.Unlock(0)
assert seen[0] == 300, seen
alive.Barrier()
print("well")
"""
    locks = LOCKS.replace("HOLDS", "False")
    assert launch(4, locks + program, "--enable-recovery").stdout.count("well") == 3


ACCUMULATION = """
import subprocess, time
import numpy as np
one = np.ones(1_000_000)
win = MPI.Win.Allocate(one.nbytes, 8, comm=comm)
there = np.frombuffer(win.tomemory())
comm.Barrier()
if comm.rank == 2:
    dies()
while comm.Get_failed().size == 0:
    time.sleep(0.001)
win.Lock(0, MPI.LOCK_SHARED)
if comm.rank == 1:
    comm.send(os.getpid(), 0)
    while not comm.iprobe(0):
        win.Accumulate(one, 0)
else:
    process = comm.recv(source=1)
    for _ in range(1000):
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.01)
        if there.min() != there.max():
            break  # it is in the middle of one
        os.kill(process, signal.SIGCONT)
        time.sleep(0.003)
    assert there.min() != there.max()
"""


def test_an_accumulation_waits_for_that_of_a_living_rank_where_another_rank_has_died() -> None:
    program = """
    later = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -CONT {process}"])
    win.Accumulate(one, 0)
    assert later.poll() == 0, "it waited"
    comm.send(0, 1)
win.Unlock(0)
print("well")
"""
    program = ACCUMULATION + program
    assert launch(3, program, "--enable-recovery").stdout.count("well") == 2


def test_an_accumulation_in_whose_middle_a_rank_has_died_ends_the_wait_for_it() -> None:
    program = """
    os.kill(process, signal.SIGKILL)
    error = fails(win.Accumulate, one, 0)
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
    assert "Win.Accumulate of the window of 3: rank 1 of the job has died" in str(error), error
    print("well")
"""
    program = ACCUMULATION + program
    assert launch(3, program, "--enable-recovery").stdout.count("well") == 1


@pytest.mark.parametrize("kind", ["MPI.LOCK_EXCLUSIVE", "MPI.LOCK_SHARED"])
def test_a_lock_that_a_dead_rank_holds_is_an_error_and_the_others_are_free(kind: str) -> None:
    program = """
error = fails(win.Lock, 0)
assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
assert "Win.Lock of the window of 3: rank 2 of the job has died" in str(error), error
win.Lock(1)
win.Unlock(1)
if KIND == MPI.LOCK_SHARED:
    win.Lock_all()  # other readers may enter
    win.Unlock_all()
else:
    assert fails(win.Lock_all).Get_error_class() == MPI.ERR_PROC_FAILED
comm.Shrink().Barrier()
print("well")
"""
    whole = (LOCKS + program).replace("HOLDS", "True").replace("KIND", kind)
    assert launch(3, whole, "--enable-recovery").stdout.count("well") == 2


def test_abort_ends_a_job_with_recovery_all_the_same() -> None:
    launch(2, "comm.Abort(5) if comm.rank else comm.recv()", "--enable-recovery", expect=5)


def test_what_cannot_be_agreed_on_does_not_reach_the_launcher() -> None:
    program = """
try:
    comm.Agree("x")
except TypeError:
    print(comm.Agree(4 + comm.rank))
for beyond in 1 << 31, -(1 << 31) - 1, 1 << 600_000:
    assert fails(comm.Agree, beyond).Get_error_class() == MPI.ERR_ARG
assert comm.Agree(-(1 << 31)) == -(1 << 31)
"""
    assert launch(2, program, "--enable-recovery").stdout == "4\n" * 2


def test_agreements_of_which_a_rank_reads_no_answer_do_not_stop_the_launcher() -> None:
    """Their answers are more than a socket has room for."""
    program = """
from array import array
flags = [array("i", [7]) for _ in range(3000)]
requests = [comm.Iagree(flag) for flag in flags]
comm.Barrier()
MPI.Request.Waitall(requests)
print({flag[0] for flag in flags})
"""
    ran = launch(2, program, "--enable-recovery")
    assert ran.stdout == "{7}\n" * 2


def test_a_revoked_communicator_fails_at_all_ranks_and_the_job_continues() -> None:
    program = """
own = comm.Dup()
own.Set_name("mine")
if comm.rank == 0:
    own.Revoke()
error = fails(own.recv, source=(comm.rank + 1) % comm.size)
assert error.Get_error_class() == MPI.ERR_REVOKED
assert "mine" in str(error) or "revoked" in str(error)
assert fails(own.Barrier).Get_error_class() == MPI.ERR_REVOKED
assert fails(own.bcast, 1).Get_error_class() == MPI.ERR_REVOKED
assert own.Agree(7) == 7
new = own.Shrink()
assert new.allreduce(1) == comm.size
own.Free()
print(comm.allreduce(1))
"""
    assert launch(3, program).stdout.count("3") == 3


# -- the launcher's part, alone --


def asked(members: list[int], value: int, known: tuple[int, ...] = ()) -> bytes:
    """What a rank gives to the first agreement of context 16."""
    text = {"key": [16, 1], "members": members, "value": value, "known": list(known)}
    return json.dumps(text).encode()


def answers(found: list[tuple[int, bytes]]) -> dict[int, dict[str, object]]:
    """Answers by their ranks."""
    return {rank: json.loads(text) for rank, text in found}


def test_an_agreement_is_decided_when_all_have_given_something_or_died() -> None:
    launcher = Agreements()
    assert launcher.given(0, asked([0, 1, 2], 7)) == []
    assert launcher.given(2, asked([0, 1, 2], 5)) == []
    found = answers(launcher.died(1))
    assert found.keys() == {0, 2}
    assert found[0] == found[2]
    assert found[0]["value"] == 5
    assert found[0]["failed"] == found[0]["unknown"] == [1]


def test_the_value_of_a_rank_that_died_counts_for_all_alike() -> None:
    launcher = Agreements()
    launcher.died(2)
    assert launcher.given(1, asked([0, 1, 2], 3)) == []
    assert launcher.died(1) == []
    found = answers(launcher.given(0, asked([0, 1, 2], 6, (2,))))
    assert found.keys() == {0}
    assert (found[0]["value"], found[0]["unknown"]) == (2, [1])


# -- what tools show --


def test_a_deadlock_of_three_ranks_can_be_read_off(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = f"deadlock-{os.getpid()}"
    monkeypatch.setenv("SHMND_NAMESPACE", namespace)
    program = "comm.Recv(bytearray(8), source=(comm.rank + 1) % comm.size, tag=5)"
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "3", "--oversubscribe", "-c", BEGIN + program]
    with subprocess.Popen(line) as launcher:
        try:
            deadline = time.monotonic() + PATIENCE
            shown: list[jobs.Rank] = []
            while len(shown) < 3 or any(
                each.wait is None or each.wait.call != "Recv" for each in shown
            ):
                assert time.monotonic() < deadline
                time.sleep(0.02)
                shown = jobs.ranks(namespace)
            monkeypatch.setenv("SHMND_RUNTIME_DIR", "/elsewhere")
            assert jobs.ranks(namespace) == [], "of a namespace of the same name"
        finally:
            launcher.terminate()
    assert [(each.rank, each.size) for each in shown] == [(0, 3), (1, 3), (2, 3)]
    assert {each.job for each in shown} == {launcher.pid}
    for each in shown:
        assert each.waits is not None
        said = f"Recv of MPI_COMM_WORLD for rank {(each.rank + 1) % 3}, tag 5 ("
        assert each.waits.startswith(said)
    assert jobs.ranks("another") == []


SYNC = """
from mpi4py.util import sync
mutex, semaphore = sync.Mutex(comm=comm), sync.Semaphore(1, comm=comm)
if comm.rank == 2:
    mutex.acquire()
    semaphore.acquire()
    for rank in (0, 1):
        comm.sendrecv("taken", rank, source=rank)  # which has both by then
    LEAVES
comm.sendrecv("made", 2, source=2)
for call in (mutex.acquire, semaphore.acquire):
    error = fails(call)
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
    assert f"{call.__qualname__} of the window of 3: rank 2 " in str(error), error
print("well")
"""


@pytest.mark.parametrize("leaves", ["dies()", "os._exit(0)"])
def test_a_wait_for_what_a_dead_rank_holds_ends_with_an_error(leaves: str) -> None:
    """Without one the rank would wait until the end of the job."""
    ran = launch(3, SYNC.replace("LEAVES", leaves), "--enable-recovery")
    assert ran.stdout.count("well") == 2, ran.stderr


CONDITION = """
import time
from mpi4py.util import sync
condition, mutex = sync.Condition(comm=comm), sync.Mutex(comm=comm)

def waits():
    with condition:
        comm.send(None, 2)
        condition.wait()

if comm.rank == 2:
    comm.recv(source=0)
    comm.recv(source=1)
    condition.acquire()  # both wait by then
    dies()
error = fails(waits)
assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
assert "Condition.wait of the window of 3: rank 2 " in str(error), error
for _ in range(20):
    with mutex:
        time.sleep(0.01)
print("well")
"""


def test_a_wait_within_a_condition_ends_with_the_error_of_the_death() -> None:
    """The end of the block releases no mutex that the wait could not take again. Others work."""
    ran = launch(3, CONDITION, "--enable-recovery")
    assert ran.stdout.count("well") == 2, ran.stderr
