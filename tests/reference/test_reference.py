# SPDX-License-Identifier: Apache-2.0
"""Random programs against the reference of the interface.

The long run takes what time it is given, prints its seeds and repeats a failure by itself:

    SHMND_REFERENCE_SECONDS=1800 python -m pytest tests/reference -m soak -s
"""

import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from reference.machine import Machine
from spi.remote import RemoteProcess

QUICK = settings(
    max_examples=150,
    stateful_step_count=30,
    database=None,
    derandomize=True,  # the same programs each time; the long run has new ones
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def child() -> Iterator[RemoteProcess]:
    process = RemoteProcess()
    yield process
    process.kill()


class Impatient(Machine):
    """A Send that meets no receive soon fails."""

    patience = 0.02


def _in_two(child: RemoteProcess, base: type[Machine]) -> type[Machine]:
    class InTwo(base):  # type: ignore[misc,valid-type]
        remote = child

    return InTwo


@pytest.mark.slow
def test_random_programs_in_one_process() -> None:
    run_state_machine_as_test(Machine, settings=QUICK)


@pytest.mark.slow
def test_random_programs_in_two_processes(child: RemoteProcess) -> None:
    run_state_machine_as_test(_in_two(child, Machine), settings=settings(QUICK, max_examples=30))


@pytest.mark.slow
def test_random_programs_whose_sends_time_out() -> None:
    run_state_machine_as_test(Impatient, settings=settings(QUICK, max_examples=50))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["one process", "two processes", "impatient"])
def test_random_programs_for_long(kind: str, child: RemoteProcess) -> None:
    share = {"one process": 0.6, "two processes": 0.25, "impatient": 0.15}[kind]
    deadline = time.monotonic() + share * float(os.environ.get("SHMND_REFERENCE_SECONDS", "1800"))
    machine = {"one process": Machine, "impatient": Impatient}.get(kind) or _in_two(child, Machine)
    number = int(os.environ.get("SHMND_REFERENCE_SEED", str(time.time_ns() % 10**9)))
    programs = 0
    phases = (Phase.generate, Phase.shrink)
    while time.monotonic() < deadline:
        print(f"seed {number}, {programs} programs so far", flush=True)
        long = settings(
            QUICK,
            derandomize=False,
            max_examples=400,
            stateful_step_count=80,
            phases=phases,
        )
        run_state_machine_as_test(seed(number)(machine), settings=long)
        programs += 400
        number += 1
