# SPDX-License-Identifier: Apache-2.0
"""A broker that is started on demand, by a program with scheduling and signals of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from processes.kit import broker_pid, end_broker, end_process
from shmnd.broker import inherited, spawn
from shmnd.broker.place import Place, place_of
from unit.broker.test_starts import soon

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = place_of("test", str(tmp_path))
    yield place
    end_broker(place)


@pytest.fixture
def bound() -> Iterator[ThreadPoolExecutor]:
    """A thread on one processor, in a policy of its own, that blocks SIGTERM."""

    def bind() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        with suppress(PermissionError):  # the case that matters most
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    with ThreadPoolExecutor(1, initializer=bind) as thread:
        yield thread


def test_a_broker_runs_where_its_starter_is_not_bound_to(
    place: Place, bound: ThreadPoolExecutor
) -> None:
    shared = os.sched_getaffinity(0) & inherited._shared_processors()
    if len(shared) < 2:
        pytest.skip("there is one processor that programs share")
    bound.submit(spawn.reach, place, soon()).result().close()
    pid = broker_pid(place)
    assert os.sched_getaffinity(pid) >= shared
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    end_process(pid, signal.SIGTERM)


def test_a_broker_that_a_user_starts_keeps_the_processors_that_the_user_chose(
    place: Place, bound: ThreadPoolExecutor
) -> None:
    command = [sys.executable, "-m", "shmnd.broker", "--daemon", "--idle", "60"]
    where = {"SHMND_RUNTIME_DIR": str(place.directory.parent), "SHMND_NAMESPACE": "test"}
    run = bound.submit(subprocess.run, command, env={**os.environ, **where}, check=True)
    run.result()
    pid = broker_pid(place)
    assert os.sched_getaffinity(pid) == {min(os.sched_getaffinity(0))}
    assert os.sched_getscheduler(pid) != os.SCHED_OTHER


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0,2-5\n", {0, 2, 3, 4, 5}),
        ("3\n", {3}),
        ("\n", set()),
        ("(null)\n", set()),
        ("0,2-5,x\n", set()),
    ],
)
def test_a_list_of_processors(tmp_path: Path, text: str, numbers: set[int]) -> None:
    (tmp_path / "list").write_text(text)
    assert inherited._listed(tmp_path / "list") == numbers


def test_a_system_without_the_list_reserves_none(tmp_path: Path) -> None:
    assert inherited._listed(tmp_path / "isolated") == set()


def test_reserved_processors_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "isolated").write_text("1-3\n")
    (tmp_path / "nohz_full").write_text("3-4\n")
    monkeypatch.setattr(inherited, "_SYSTEM", tmp_path)
    monkeypatch.setattr(os, "sysconf", lambda name: 6)
    assert inherited._shared_processors() == {0, 5}
