# SPDX-License-Identifier: Apache-2.0
"""Processes that a rank starts: each is a job of its own, and none of them harms the rank."""

import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 100
"""Seconds that a job may take on a machine that has other things to do."""


def launch(*command: str) -> subprocess.CompletedProcess[str]:
    """The result of a job of two ranks."""
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)


STARTS = """
import subprocess, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
program = '''
import os
from mpi4py import MPI
os.write(1, b"%d %d " % (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size))  # in one piece
'''
line = {line}
ran = subprocess.run(line, close_fds={close}, capture_output=True, text=True, timeout=60)
assert (ran.returncode, sorted(ran.stdout.split())) == (0, {expect}), ran
assert comm.allreduce(1) == 2
print("well")
"""
ALONE = '[sys.executable, "-c", program]'
NESTED = '[sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", program]'


@pytest.mark.slow
@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize(
    ("line", "expect"), [(ALONE, ["0", "1"]), (NESTED, ["0", "1", "2", "2"])], ids=["one", "job"]
)
def test_a_process_that_a_rank_starts_is_a_job_of_its_own(
    line: str, expect: list[str], close: bool
) -> None:
    ran = launch("-c", STARTS.format(line=line, close=close, expect=expect))
    assert ran.stdout.count("well") == 2, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("close", "well"), [(False, True), (True, False)])
def test_a_program_between_the_launcher_and_a_rank_passes_the_descriptor_on(
    close: bool, well: bool
) -> None:
    inner = "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size)"
    outer = (
        "import subprocess, sys; "
        f"sys.exit(subprocess.call([sys.executable, '-c', {inner!r}], close_fds={close}))"
    )
    ran = launch("-c", outer)
    if well:
        assert (ran.returncode, ran.stdout.count("size 2")) == (0, 2), ran.stderr
    else:
        assert ran.returncode == 1
        assert "closed it" in ran.stderr
        assert "close_fds=False" in ran.stderr


FORKS = """
import os, signal, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 0:
    sends = [comm.Isend(bytes([i]) * 8000, 1, 1) for i in range(200)]  # more than the lane takes
    child = os.fork()
    if child == 0:
        sys.exit(7)
    end = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended[1]) == 7 and ended[0] == child
    MPI.Request.Waitall(sends)
else:
    into = bytearray(8000)
    for i in range(200):
        comm.Recv(into, 0, 1)
        assert into == bytes([i]) * 8000, i
print("well")
"""


@pytest.mark.slow
def test_a_forked_child_that_ends_leaves_the_sends_of_its_rank_alone() -> None:
    ran = launch("-c", FORKS)
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr


FORKED_CALLS = """
import multiprocessing, os, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
win = MPI.Win.Allocate(8, comm=comm)
win.Lock(rank)
big = np.full(1 << 20, rank + 1.0)
into, small = np.zeros(1 << 20), np.zeros(1)
pending = [comm.Irecv(into, other, 5), comm.Irecv(small, other, 6)]
stream = [comm.Isend(bytes([i]) * 8000, other, 7) for i in range(100)]
gathered = comm.Iallreduce(np.ones(50000), np.zeros(50000))
again = comm.Send_init(small, other, 8)

def refused():
    calls = {{
        "Send": lambda: comm.Send(small, other, 5),
        "Isend": lambda: comm.Isend(small, other, 5),
        "Recv": lambda: comm.Recv(small, other),
        "send": lambda: comm.send(1, other),
        "recv": lambda: comm.recv(source=other),
        "Probe": lambda: comm.Probe(),
        "Iprobe": lambda: comm.Iprobe(),
        "Barrier": lambda: comm.Barrier(),
        "Allreduce": lambda: comm.Allreduce(MPI.IN_PLACE, small),
        "allreduce": lambda: comm.allreduce(1),
        "bcast": lambda: comm.bcast(1),
        "Dup": lambda: comm.Dup(),
        "Split": lambda: comm.Split(0),
        "Self": lambda: MPI.COMM_SELF.Send(small, 0),
        "Wait": lambda: pending[0].Wait(),
        "Test": lambda: pending[1].Test(),
        "Waitall": lambda: MPI.Request.Waitall(pending + stream),
        "Waitany": lambda: MPI.Request.Waitany(pending),
        "collective": lambda: gathered.Wait(),
        "Start": lambda: again.Start(),
        "Put": lambda: win.Put(small, rank),
        "Lock": lambda: win.Lock(other),
        "Unlock": lambda: win.Unlock(rank),
        "Fence": lambda: win.Fence(),
        "Allocate": lambda: MPI.Win.Allocate(8, comm=comm),
    }}
    wrong = []
    for name, call in calls.items():
        try:
            call()
        except MPI.Exception as error:
            text = str(error)
            if error.Get_error_class() == MPI.ERR_RMA_SYNC and name == "Fence":
                continue
            if "was forked from rank %d and" % rank not in text or "'spawn'" not in text:
                wrong.append((name, text))
        except BaseException as error:
            wrong.append((name, repr(error)))
        else:
            wrong.append((name, "no error"))
    return (comm.rank, comm.size, wrong)

def child(queue):
    queue.put(refused())

if {multi}:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=30) == (rank, 2, [])
    process.join(30)
    assert process.exitcode == 0
else:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        sys.stdout.flush()
        os.write(told, repr(refused()[2]).encode())
        time.sleep(0.3)  # while the ranks continue
        refused()
        sys.exit(5)
    told = os.read(ready, 100000)
    assert told == b"[]", told
comm.Send(big, other, 5)
comm.Send(np.full(1, 9.0), other, 6)
for i in range(100):
    part = bytearray(8000)
    comm.Recv(part, other, 7)
    assert part == bytes([i]) * 8000, i
MPI.Request.Waitall(pending + stream)
gathered.Wait()
win.Unlock(rank)
comm.Barrier()
win.Lock(other)
win.Unlock(other)
assert (into == 2 - rank).all() and small[0] == 9
assert comm.allreduce(1) == 2
if not {multi}:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert comm.allreduce(1) == 2
win.Free()
print("well")
"""


@pytest.mark.slow
@pytest.mark.parametrize("multi", [False, True], ids=["fork", "multiprocessing"])
def test_a_forked_child_that_calls_mpi_gets_an_error_and_harms_no_rank(multi: bool) -> None:
    ran = launch("--timeout", "60", "-c", FORKED_CALLS.format(multi=multi))
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr


POOL = """
import sys
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor

class Pair(Exception):
    def __init__(self, first, second):
        super().__init__(first)

class Unloadable:
    def __reduce__(self):
        return (int, ("not a number",))

def square(x):
    return x * x

def odd():
    raise Pair(1, 2)

def unloadable():
    return Unloadable()

def function():
    return lambda: 0

def check(pool):
    for task, words in {
        (square, 1, 2): "takes 1 positional argument but 2 were given",
        (odd,): "",
        (unloadable,): "",
        (function,): "local object",
        (square, Unloadable()): "not a number",
        (sys.exit, 3): "3",
    }.items():
        future = pool.submit(*task)
        error = future.exception(30)
        assert error is not None and words in str(error), (task, error)
        assert pool.submit(square, 5).result(30) == 25, task
    assert pool.submit(lambda: 0).exception(30) is not None or MPI.COMM_WORLD.size == 1
    first = pool.submit(square, 3)
    assert first.result(30) == 9 and not first.cancel() and first.done()
    assert list(pool.map(square, range(20))) == [x * x for x in range(20)]

if __name__ == "__main__":
    if len(sys.argv) == 1:
        with MPIPoolExecutor(1) as pool:
            check(pool)
            many = [pool.submit(square, i) for i in range(200)]
            cancelled = [each.cancel() for each in many]
            for i, each in enumerate(many):
                assert each.cancelled() == cancelled[i]
                assert cancelled[i] or each.result(30) == i * i
    else:
        with MPICommExecutor() as pool:
            if pool is not None:
                check(pool)
    print("well")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [[], ["ranks"]], ids=["processes", "ranks"])
def test_a_task_that_does_not_unpickle_leaves_the_pool_as_it_is(
    tmp_path: Path, ranks: list[str]
) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    ran = launch("--timeout", "90", str(program), *ranks)
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr


WINDOWS = """
import os
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
windows = [MPI.Win.Allocate(80, 8, comm=comm), MPI.Win.Allocate_shared(80, 8, comm=comm)]
shared = [np.frombuffer(window.tomemory(), "d") for window in windows]
private = [np.full(10000, 1.0), np.frombuffer(MPI.Alloc_mem(8000), "d")]
for array in shared + private:
    array[:2] = 1
comm.Barrier()
child = os.fork()
if child == 0:
    seen = all(array[1] == 1 for array in shared + private)
    for array in shared + private:
        array[0] = 2
    os._exit(0 if seen else 3)
assert os.waitpid(child, 0)[1] == 0
assert [array[0] for array in shared + private] == [2, 2, 1, 1]
comm.Barrier()
del shared, array
for window in windows:
    window.Free()
print("well")
"""


@pytest.mark.slow
def test_a_forked_child_shares_the_windows_alone() -> None:
    ran = launch("-c", WINDOWS)
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr
