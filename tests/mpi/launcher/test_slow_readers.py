# SPDX-License-Identifier: Apache-2.0
"""A launcher whose output no reader takes: it sees deaths, limits and signals all the same."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi.launcher.jobs import PATIENCE

RANKS = 2
FLOOD = """
import os, sys
from pathlib import Path
Path(sys.argv[1], str(os.getpid())).touch()
{}
while True:
    os.write(int(sys.argv[2]), b"x" * 1000 + b"\\n")
"""
DIES = """
import time
if os.environ["SHMND_MPI_RANK"] == "1":
    time.sleep(1)
    os._exit(3)
"""


@contextlib.contextmanager
def launched(
    folder: Path, *options: str, stream: int = 1, before: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A launcher with ranks that write without end into a pipe, and the end that is not read."""
    reader, writer = os.pipe()
    line = [sys.executable, "-m", "shmnd.mpi", "--prefix", "-n", str(RANKS), "--oversubscribe"]
    line += [*options, "-c", FLOOD.format(before), str(folder), str(stream)]
    with subprocess.Popen(line, stdout=writer, stderr=writer) as launcher:
        os.close(writer)
        try:
            yield launcher, reader
        finally:
            os.close(reader)
            launcher.kill()


def until_full(folder: Path) -> None:
    """Wait until all ranks have run for a time in which they fill every pipe."""
    until = time.monotonic() + PATIENCE
    while len(list(folder.iterdir())) < RANKS:
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(1)


def until_gone(folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while any(Path("/proc", each.name).exists() for each in folder.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize(
    ("how", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.further),
        (signal.SIGINT, 130),
    ],
)
def test_a_signal_ends_a_job_whose_output_is_not_read(
    how: signal.Signals, code: int, stream: int, tmp_path: Path
) -> None:
    with launched(tmp_path, stream=stream) as (launcher, _):
        until_full(tmp_path)
        launcher.send_signal(how)
        assert launcher.wait(PATIENCE / 5) == code
        until_gone(tmp_path)


@pytest.mark.slow
def test_a_limit_of_time_ends_a_job_whose_output_is_not_read(tmp_path: Path) -> None:
    with launched(tmp_path, "--timeout", "2") as (launcher, _):
        assert launcher.wait(PATIENCE / 5) == 124


@pytest.mark.slow
def test_a_death_ends_the_ranks_and_the_reader_gets_all_lines(tmp_path: Path) -> None:
    with launched(tmp_path, before=DIES) as (launcher, reader):
        until_full(tmp_path)
        until_gone(tmp_path)
        with os.fdopen(os.dup(reader), "rb") as shown:
            lines = shown.read().splitlines()
        assert launcher.wait(PATIENCE) == 3
    said = [each for each in lines if each.startswith(b"shmnd mpiexec: rank 1 ")]
    assert [b"exit code 3" in each for each in said] == [True]
    *whole, last = [each for each in lines if each.startswith(b"[")]
    assert set(whole) == {b"[0] " + b"x" * 1000}
    assert last.startswith(b"[0] x")  # a kill cuts it


def test_a_reader_that_ends_ends_the_job_with_a_line(tmp_path: Path) -> None:
    """As `head -1` does."""
    line = [sys.executable, "-m", "shmnd.mpi", "--prefix", "-n", str(RANKS), "--oversubscribe"]
    line += ["-c", FLOOD.format(""), str(tmp_path), "1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        try:
            assert launcher.stdout.readline().startswith(b"[")
            launcher.stdout.close()
            assert launcher.wait(PATIENCE) == 1
        finally:
            launcher.kill()
        assert launcher.stderr.read().splitlines() == [
            b"shmnd mpiexec: the reader of the output has ended; the ranks are ended"
        ]
    until_gone(tmp_path)


CAREFUL = """
import os, signal, sys, time
def interrupted(*_):
    os.write(1, b"the last line\\n")  # print may be what the signal interrupts
    time.sleep(0.5)
    open(sys.argv[1], "w").close()
    os._exit(0)
signal.signal(signal.SIGINT, interrupted)
print("there", flush=True)
time.sleep(60)
"""


def test_an_interrupt_leaves_ranks_their_time_without_a_reader(tmp_path: Path) -> None:
    """Ctrl-C ends the reader of a pipe, too."""
    done = tmp_path / "done"
    line = [sys.executable, "-m", "shmnd.mpi", "--prefix", "-n", "1", "-c", CAREFUL, str(done)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        try:
            assert launcher.stdout.readline() == b"[0] there\n"
            launcher.stdout.close()
            launcher.send_signal(signal.SIGINT)
            assert launcher.wait(PATIENCE) == 130
        finally:
            launcher.kill()
        assert launcher.stderr.read() == b""
    assert done.exists()
