# SPDX-License-Identifier: Apache-2.0
"""Tasks that fail in ways of their own, and workers that die: what the futures say."""

import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from mpi.launcher.jobs import launch, python
from shmnd.mpi.futures import MPIPoolExecutor
from shmnd.mpi.futures.local import Processes

ERRORS = """
import dataclasses, sys, threading
from concurrent.futures import BrokenExecutor, TimeoutError
from shmnd.mpi.futures import MPIPoolExecutor

class Pair(Exception):
    "Its pickle does not load: that calls it with one argument."
    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")

class Locked(Exception):
    "It has no pickle."
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()

class Mute(Exception):
    "It has no text, either."
    def __reduce__(self): raise ValueError
    def __str__(self): raise ValueError

@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    "It takes no attribute, and so no note: the worker ended by that."
    number: int

ONE = ValueError("the same each time")

def fail(kind, *values): raise kind(*values)
def fail_again(): raise ONE

def check(executor):
    for _ in range(2):
        error = executor.submit(fail_again).exception()
        assert repr(error) == repr(ONE) and not hasattr(error, "__notes__"), error
        assert "in fail_again" in str(error.__cause__), error.__cause__
    for kind, values, text in (
        (Pair, (1, 2), "Pair: 1 and 2"), (Locked, ("held",), "Locked: held"),
        (Mute, (), "Mute, which has no text"), (Frozen, (3,), "Frozen: 3"),
    ):
        error = executor.submit(fail, kind, *values).exception()
        assert type(error) is RuntimeError and str(error) == text, repr(error)
        assert "in fail" in str(error.__cause__), "the traceback of the worker"
    print("well")

if __name__ == "__main__":
    with MPIPoolExecutor(1) as executor:
        check(executor)
"""


def test_an_exception_that_does_not_travel_keeps_its_text_and_traceback(tmp_path: Path) -> None:
    program = tmp_path / "errors_of_tasks.py"
    program.write_text(ERRORS)
    assert launch(2, "-m", "mpi4py.futures", str(program)).stdout == "well\n"
    assert python(str(program)).stdout == "well\n"


MANY = """
from mpi4py.futures import ThreadPoolExecutor
import threading, time
go = threading.Event()
def wait(number): go.wait(); return number
with ThreadPoolExecutor(2) as executor:
    results = executor.map(wait, range(3), timeout=0.01, unordered=True)
    try:
        print(next(results))
    except TimeoutError:
        go.set()
    count = 20_000
    begin = time.thread_time()
    results = executor.map(abs, range(count), unordered=True)
    assert sum(results) == count * (count - 1) // 2
    few = executor.map(abs, range(9), chunksize=2, buffersize=2, unordered=True)
    assert sorted(few) == [*range(9)]
    print(time.thread_time() - begin < 20)
"""


def test_results_in_any_order_cost_the_same_each() -> None:
    """A check of all futures for each result took minutes here."""
    assert launch(1, "-c", MANY).stdout == "True\n"


DEATHS = """
import os, signal, sys
from concurrent.futures import BrokenExecutor
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

def die(): os.kill(os.getpid(), signal.SIGKILL)

def main():
    with MPICommExecutor(MPI.COMM_WORLD) as executor:
        if executor is None: return
        numbers = [executor.submit(abs, each) for each in range(40)]
        for left in 1, 0:
            error = executor.submit(die).exception()
            assert isinstance(error, BrokenExecutor) and "has died" in str(error), error
            assert executor.num_workers == left
            if left: numbers += [executor.submit(abs, each) for each in range(40)]
        assert sum(each.result() for each in numbers) == 2 * 780
        error = executor.submit(abs, -1).exception()
        assert isinstance(error, BrokenExecutor), error
        assert str(error) == "all workers have died"
    print("well")

main()
"""


def test_a_worker_that_dies_breaks_its_task_alone(tmp_path: Path) -> None:
    program = tmp_path / "deaths_of_workers.py"
    program.write_text(DEATHS)
    ran = launch(3, "--enable-recovery", str(program))
    assert ran.stdout == "well\n", ran


LEAVES = """
import os
from concurrent.futures import BrokenExecutor
from mpi4py.futures import MPIPoolExecutor

def leave(): os._exit(0)

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        error = executor.submit(leave).exception()
        assert isinstance(error, BrokenExecutor) and "rank 1, has died" in str(error), error
        assert list(executor.map(abs, range(5))) == list(range(5))
    print("well")
"""


def test_a_worker_that_ends_with_exit_code_0_is_not_waited_for_without_end(tmp_path: Path) -> None:
    program = tmp_path / "workers_that_leave.py"
    program.write_text(LEAVES)
    ran = launch(3, "-m", "mpi4py.futures", str(program), expect=1)
    assert "rank 1 has ended, and rank 0 waits for it in Probe" in ran.stderr
    ran = launch(3, "--enable-recovery", "-m", "mpi4py.futures", str(program))
    assert ran.stdout == "well\n", ran


def test_a_pool_that_is_found_broken_has_no_workers() -> None:
    """A process has died without a task of this pool: only `submit` comes to know of it."""
    executor = ProcessPoolExecutor(1)
    pool = Processes(1, executor)
    assert isinstance(executor.submit(os._exit, 1).exception(60), BrokenProcessPool)
    with pytest.raises(BrokenProcessPool):
        pool.submit(abs, (-1,), {})
    assert pool.count() == 0
    pool.close(wait=True)


class Undecodable:
    """A number whose error is of a class that takes more than a text."""

    def __int__(self) -> int:
        return int(b"\xff".decode())

    def __repr__(self) -> str:
        return "Undecodable()"


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (Undecodable(), ValueError, "max_workers=Undecodable\\(\\): expected a number of workers"),
        ("x", ValueError, "max_workers='x': expected a number of workers"),
        ([1], TypeError, "max_workers=\\[1\\]: expected a number of workers"),
        (float("inf"), OverflowError, "max_workers=inf: expected a number of workers"),
        (0.5, ValueError, "max_workers=0.5: expected 1 or more"),
        (None, ValueError, "MPI4PY_FUTURES_MAX_WORKERS='two': expected a number of workers"),
    ],
)
def test_a_wrong_number_of_workers_is_named(
    given: Any, kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPI4PY_FUTURES_MAX_WORKERS", "two")
    with pytest.raises(kind, match=text):
        MPIPoolExecutor(given)
