# SPDX-License-Identifier: Apache-2.0
"""Executors of threads and of processes have such workers, also where ranks work for others."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi.futures.aplus import catch, then
from shmnd.mpi.futures.remote import Remote

PROGRAM = """
import os, threading
from mpi4py import MPI
from mpi4py.futures import *
from mpi4py.util.pool import ThreadPool

if __name__ == "__main__":
    own, lock, kept = os.getpid(), threading.Lock(), []
    assert "workers" not in globals(), "the names of mpi4py.futures, not its modules"
    with MPIPoolExecutor() as ranks, ThreadPoolExecutor(1) as threads:
        others = {ranks.submit(os.getpid).result() for _ in range(4)}
        assert own not in others and ranks.num_workers == 2
        assert threads.num_workers == 1 and threads.submit(os.getpid).result() == own
        assert threads.submit(lambda: lock).result() is lock, "tasks and results take no pickle"
        threads.submit(kept.append, 1).result()
        assert kept == [1], "a thread has the objects of the program"
        with ProcessPoolExecutor(1) as processes:
            assert processes.num_workers == 1
            assert processes.submit(os.getpid).result() not in {own, *others}
    with ThreadPool(1) as pool:
        assert pool.apply(lambda: lock) is lock
    with MPICommExecutor(MPI.COMM_SELF) as executor:
        assert executor.submit(os.getpid).result() in others
    print("well")
"""


def test_threads_and_processes_work_for_their_executors_where_ranks_serve(tmp_path: Path) -> None:
    program = tmp_path / "kinds.py"
    program.write_text(PROGRAM)
    ran = launch(3, "-m", "mpi4py.futures", str(program), patience=60)
    assert ran.stdout == "well\n", ran


def test_callbacks_take_a_future_of_any_class() -> None:
    """As functions, for the futures of executors, which have no such methods."""
    future: Future[int] = Future()
    double, failed = then(future, lambda value: 2 * value), then(future, lambda value: 1 // value)
    caught, other = catch(failed), catch(failed, lambda error: str(error))
    future.set_result(0)
    assert double.result(10) == 0
    assert caught.result(10) is None
    assert "by zero" in other.result(10)


class Own(Future[int]):
    """Of a program."""


def test_the_futures_of_one_type_have_one_class() -> None:
    assert type(Remote.of(Own)) is type(Remote.of(Own))
    assert isinstance(Remote.of(Own), Own)
    assert type(Remote.of(Future)) is Remote


ALONE = """
from mpi4py import MPI
from mpi4py.futures import *

def together():
    return get_comm_workers().allreduce(7)

if __name__ == "__main__":
    with MPICommExecutor(MPI.COMM_WORLD, max_workers=5) as executor:
        if executor is not None:
            workers = max(1, MPI.COMM_WORLD.size - 1)
            assert executor.num_workers == workers
            begun = [executor.submit(together) for _ in range(workers)]
            assert [each.result() for each in begun] == [7 * workers] * workers
            print("well")
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_workers_of_a_communicator_have_one_of_their_own(ranks: int, tmp_path: Path) -> None:
    """Also where it has one rank, whose worker is a thread: the tasks run unchanged."""
    program = tmp_path / "together.py"
    program.write_text(ALONE)
    ran = launch(ranks, str(program), patience=60)
    assert ran.stdout == "well\n", ran


@pytest.mark.parametrize(("option", "expect"), [("--help", 0), (None, 2)])
def test_the_usage_names_the_module_that_was_run(option: str | None, expect: int) -> None:
    given = () if option is None else (option,)
    ran = launch(1, "-m", "mpi4py.futures", *given, expect=expect)
    assert "python -m mpi4py.futures [options] <pyfile>" in ran.stdout + ran.stderr, ran


FUTURES = """
from mpi4py.futures import MPIPoolExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from mpi4py.futures.aplus import ThenableFuture

class OfRanks(MPIPoolExecutor):
    Future = ThenableFuture

class OfThreads(ThreadPoolExecutor):
    Future = ThenableFuture

class OfProcesses(ProcessPoolExecutor):
    Future = ThenableFuture

if __name__ == "__main__":
    for kind in (OfRanks, OfThreads, OfProcesses):
        with kind(1) as executor:
            future = executor.submit(abs, -1)
            assert isinstance(future, ThenableFuture), kind
            assert future.then(lambda value: value + 1).result() == 2
            failed = executor.submit(int, "no number")
            assert failed.catch(lambda error: type(error)).result() is ValueError
            assert list(executor.starmap(pow, [(2, 3)], None, 1, None, True)) == [8]
    print("well")
"""


def test_a_class_of_executors_names_the_type_of_its_futures(tmp_path: Path) -> None:
    """As in mpi4py, whose executors have this attribute."""
    program = tmp_path / "futures_of_executors.py"
    program.write_text(FUTURES)
    ran = launch(2, "-m", "mpi4py.futures", str(program), patience=60)
    assert ran.stdout == "well\n", ran
