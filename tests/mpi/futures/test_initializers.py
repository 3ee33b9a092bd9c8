# SPDX-License-Identifier: Apache-2.0
"""What every rank of a pool runs first fails: the executor is broken, and no other."""

from pathlib import Path

import pytest

from mpi.launcher.jobs import launch

PROGRAM = """
import sys
from concurrent.futures import BrokenExecutor
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor

class Pair(Exception):
    "Its pickle does not load: that calls it with one argument."
    def __init__(self, one, other):
        super().__init__(one)

class Cuts:
    "Pickles for one rank, and not for the next."
    pickles = 0
    def __reduce__(self):
        Cuts.pickles += 1
        if Cuts.pickles > 1:
            raise ValueError("no more")
        return str, ("",)

def fail(error): raise error
def fail_with_pair(): raise Pair(1, 2)

OPTIONS = {
    "raises": dict(initializer=fail, initargs=(ValueError("no"),)),
    "has no pickle": dict(initializer=lambda: None),
    "global has no pickle": dict(globals={"f": lambda: None}),
    "error has no pickle": dict(initializer=fail_with_pair),
    "no pickle for the second": dict(initializer=fail, initargs=(Cuts(),)),
}

def check(make, options):
    with make(**options) as executor:
        if executor is None:
            return
        try:  # it may be known by now that it is broken
            error = executor.submit(abs, -1).exception()
        except BrokenExecutor as refusal:
            error = refusal
        assert isinstance(error, BrokenExecutor), error
        try:
            raise AssertionError(executor.submit(abs, -1))
        except BrokenExecutor as error:
            assert "an initializer failed" in str(error), error
        assert executor.num_workers == 0
        executor.bootup()

if __name__ == "__main__":
    make = MPIPoolExecutor if "pool" in sys.argv else MPICommExecutor
    for name, options in OPTIONS.items():
        check(make, options)
        with make() as executor:
            if executor is not None:
                print(name, sum(executor.map(abs, range(-3, 0))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", [("-m", "mpi4py.futures"), ()], ids=["pool", "communicator"])
def test_an_initializer_that_fails_breaks_its_executor_alone(
    module: tuple[str, ...], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = ("pool",) if module else ()
    ran = launch(3, *module, str(program), *words, patience=60)
    names = ("raises", "has no pickle", "global has no pickle", "error has no pickle")
    expected = [f"{name} 6" for name in (*names, "no pickle for the second")]
    assert ran.stdout.splitlines() == expected


APART = """
import os
from mpi4py.futures import MPIPoolExecutor, ThreadPoolExecutor
from concurrent.futures import BrokenExecutor

def fail(): raise ValueError("no")

if __name__ == "__main__":
    with MPIPoolExecutor(2) as executor:
        print(executor.submit(abs, -3).result(), executor.num_workers)
        try:
            executor.submit(os._exit, 3).result()
        except BrokenExecutor:
            print("broken", executor.num_workers)
    for kind in MPIPoolExecutor, ThreadPoolExecutor:
        with kind(2, initializer=fail) as executor:
            try:
                executor.submit(abs, -3).result()
            except BrokenExecutor:
                print("broken", executor.num_workers)
"""


@pytest.mark.slow
def test_a_broken_pool_of_processes_or_threads_has_no_workers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(APART)
    ran = launch(1, str(program), patience=60)
    assert ran.stdout.splitlines() == ["3 2", "broken 0", "broken 0", "broken 0"]
