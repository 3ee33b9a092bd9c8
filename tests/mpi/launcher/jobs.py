# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, started as programs start them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

PATIENCE: Final = 100
"""Seconds that a job may take on a machine that has other things to do."""

AT_ONCE: Final = 4
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


def launch_each(
    ranks: int, programs: dict[str, str], expect: int = 0
) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run programs as jobs, several at once; return the results by the names of the programs.

    For jobs that take seconds because a rank waits for as long.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {
            name: pool.submit(launch, ranks, "-c", program, expect=expect)
            for name, program in programs.items()
        }
    return {name: job.result() for name, job in jobs.items()}
