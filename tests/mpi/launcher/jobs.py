# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, started as programs start them."""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import pytest

from census import census, described

Results: TypeAlias = "dict[str, Future[subprocess.CompletedProcess[str]]]"
Test = TypeVar("Test", bound=Callable[..., None])

PATIENCE: Final = 100
"""Seconds that a job may take on a machine that has other things to do."""

AT_ONCE: Final = 6
"""Jobs at the same time, where each of them mostly sleeps."""

UNTIL_WAITS: Final = """
def until_waits(rank, call):
    # Return the process of a rank that waits in the call named, as the memory of the job has it.
    import mmap, os, time
    from shmnd.mpi.transport import job_memory
    memory = mmap.mmap(int(os.environ["SHMND_MPI_JOB"]), 0, prot=mmap.PROT_READ)
    until = time.monotonic() + 60
    while (wait := job_memory.wait_of(memory, rank)) is None or wait.call != call:
        assert time.monotonic() < until, wait
        time.sleep(0.001)
    return job_memory.pid_of(memory, rank)
"""
"""For the programs of ranks, to begin with."""

FAILS: Final = """
def fails(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except MPI.Exception as error:
        return error
    raise AssertionError(f"{call} returned")
"""
"""For programs that have `MPI`: the exception of a call that has to raise one."""


def launch(
    ranks: int, *command: str, expect: int = 0, patience: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Return the result of a job, which has to end with the expected exit code."""
    options = ["-m", "shmnd.mpi", "-n", str(ranks), "--oversubscribe"]
    return python(*options, *command, expect=expect, patience=patience)


def launch_program(
    ranks: int, program: str, *options: str, expect: int = 0
) -> subprocess.CompletedProcess[str]:
    """Return the result of a job whose ranks run a program; the launcher itself bounds its time.

    The launcher then says what each rank waits for, before the test would end it without a word.
    """
    line = [*options, "--timeout", str(PATIENCE - 10), "-c", program]
    return launch(ranks, *line, expect=expect)


def python(
    *arguments: str, expect: int = 0, patience: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Return the result of an interpreter, which may start a job; its exit code is as expected."""
    line = [sys.executable, *arguments]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=patience, check=False)
    assert ran.returncode == expect, ran.stdout + ran.stderr
    return ran


class Jobs(NamedTuple):
    """Programs that a test runs as jobs, each of which takes seconds because a rank waits."""

    ranks: int
    programs: dict[str, str]
    expect: int

    def start(self, pool: ThreadPoolExecutor) -> Results:
        """Have the pool run them."""
        return {
            name: pool.submit(launch, self.ranks, "-c", program, expect=self.expect)
            for name, program in self.programs.items()
        }


_JOBS: Final[dict[Any, Jobs]] = {}


def with_jobs(
    programs: dict[str, str] | str, ranks: int = 2, expect: int = 0
) -> Callable[[Test], Test]:
    """Run jobs before the first test of a module, together with those of its other tests.

    The fixture `results` has the results of the jobs of the test that asks for it, by their names;
    a test with one program has one, without a name.
    """
    each = {"": programs} if isinstance(programs, str) else programs

    def register(test: Test) -> Test:
        _JOBS[test] = Jobs(ranks, each, expect)
        return pytest.mark.slow(pytest.mark.timeout(300)(test))

    return register


@pytest.fixture(scope="module")
def jobs_of_all(request: pytest.FixtureRequest) -> dict[Any, Results]:
    """The jobs of all tests of the module that will run: several at once, and all have ended."""
    tests = [
        item.function
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    before = census()  # that of a test is taken later, and would not show their leftovers
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        jobs = {test: _JOBS[test].start(pool) for test in tests if test in _JOBS}
        pool.shutdown()
    finally:
        pool.shutdown(cancel_futures=True)
    until = time.monotonic() + PATIENCE
    while left := census() - before:
        assert time.monotonic() < until, sorted(map(described, left))
        time.sleep(0.05)
    return jobs


@pytest.fixture
def results(
    request: pytest.FixtureRequest, jobs_of_all: dict[Any, Results]
) -> dict[str, subprocess.CompletedProcess[str]]:
    """The results of the jobs of this test, by the names of the programs."""
    return {name: job.result() for name, job in jobs_of_all[request.function].items()}
