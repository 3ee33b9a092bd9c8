# SPDX-License-Identifier: Apache-2.0
"""Messages that a task awaits: in asyncio's own loop, in that of uvloop, and without a library."""

import asyncio
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from shmnd_bench.floors.bare_asyncio import BareAsyncio, BareAsyncioEnd
from shmnd_bench.measure.environment import choose_cpus
from shmnd_bench.report.targets import ASLEEP, AWAITED
from shmnd_bench.subjects.own import Shmnd, ShmndUvloop
from shmnd_bench.subjects.subject import WorkerSubject
from shmnd_bench.workers.harness import Stage
from shmnd_bench.workers.worker import SERVER

PROGRAM = """
import asyncio
from shmnd_bench.loops import waking
from shmnd_bench.subjects.own import UvloopEnd

async def main():
    print(type(asyncio.get_running_loop()).__module__)

waking._run(main())
end = UvloopEnd(1, {"engine": "python", "namespace": None})
waking._run(main())
end.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("make", [Shmnd, ShmndUvloop, BareAsyncio])
def test_a_task_is_woken_round_after_round(make: Callable[[], WorkerSubject]) -> None:
    subject = make()
    if (problem := subject.missing()) is not None:
        assert "pip install uvloop" in problem
        pytest.skip(problem)
    with Stage(choose_cpus([])) as stage:
        subject.start(stage)
        assert all(subject.measure(AWAITED, 30).seconds > 0 for _ in range(2))


def test_a_run_leaves_the_first_message_of_the_next_one() -> None:
    end = BareAsyncioEnd(SERVER, {})
    try:
        paths = end.offer(AWAITED)
        peer = os.open(paths["writing"], os.O_WRONLY)
        os.write(peer, bytes(3 * 40))
        os.close(peer)
        os.set_blocking(end._reading, False)
        asyncio.run(end._bounce(40, 2))
        assert os.read(end._reading, 200) == bytes(40)
    finally:
        end.close()


@pytest.mark.parametrize("make", [ShmndUvloop, BareAsyncio])
def test_subjects_of_event_loops_answer_for_nothing_else(make: Callable[[], WorkerSubject]) -> None:
    subject = make()
    assert subject.answers(AWAITED)
    assert not subject.answers(ASLEEP)
    assert not subject.answers(dataclasses.replace(AWAITED, idle=5))


def test_the_loop_is_the_one_that_is_named() -> None:
    """In a process of its own: uvloop keeps descriptors of its library open."""
    pytest.importorskip("uvloop", reason="pip install uvloop")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == ["asyncio.unix_events", "uvloop"]
