# SPDX-License-Identifier: Apache-2.0
"""A signal to the launcher ends the job, with what the ranks have started."""

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi.launcher.jobs import PATIENCE, launch
from shmnd.mpi.launcher.job import Job
from shmnd.mpi.launcher.options import parse

STARTS = """
import subprocess, time
from shmnd.mpi import MPI
child = subprocess.Popen(["sleep", "300"])
children = MPI.COMM_WORLD.gather(child.pid)
if children:
    print(*children, flush=True)
MPI.COMM_WORLD.Barrier()
time.sleep(300)
"""


def _state(process: int) -> str | None:
    """Return its state, as S if it sleeps and T if it is stopped; None if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def _lives(process: int) -> bool:
    return _state(process) not in (None, "Z")


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """Have programs started with all signals: a suite under nohup, or behind &, ignores some."""
    before = {how: signal.signal(how, signal.SIG_DFL) for how in (signal.SIGHUP, signal.SIGQUIT)}
    yield
    for how, handler in before.items():
        signal.signal(how, handler)


@pytest.mark.usefixtures("as_in_a_terminal")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_job_ends_with_the_children_of_its_ranks(how: signal.Signals) -> None:
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", STARTS]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        children = [int(each) for each in launcher.stdout.readline().split()]
        try:
            launcher.send_signal(how)
            assert launcher.wait(PATIENCE) == 128 + how
            until = time.monotonic() + PATIENCE
            while any(map(_lives, children)) and time.monotonic() < until:
                time.sleep(0.01)
            assert len(children) == 2
            assert not any(map(_lives, children))
        finally:
            launcher.kill()
            for each in filter(_lives, children):
                os.kill(each, signal.SIGKILL)


def test_a_hangup_that_is_ignored_stays_so() -> None:
    """The job of a program under nohup."""
    program = "import os, signal; os.kill(int(os.environ['SHMND_MPI_LAUNCHER']), signal.SIGHUP)"
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "1", "-c", program]
    ran = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *line], timeout=PATIENCE, check=False
    )
    assert ran.returncode == 0


AGAIN = """
import atexit, os, signal, sys
from shmnd.mpi.launcher.job import main

def again(kill=os.kill, process=os.getpid(), how=signal.SIGTERM):
    kill(process, how)

class Late:
    __del__ = lambda self, again=again: again()

code = main(["-n", "1", "-c", "import os, signal, time; "
             "os.kill(int(os.environ['SHMND_MPI_LAUNCHER']), signal.SIGTERM); time.sleep(60)"])
{moment}
sys.exit(code)
"""


@pytest.mark.parametrize(
    "moment", ["again()", "atexit.register(again)", "late = Late()"], ids=["main", "atexit", "late"]
)
def test_a_second_signal_while_the_launcher_leaves_does_not_change_its_code(moment: str) -> None:
    line = [sys.executable, "-c", AGAIN.format(moment=moment)]
    ran = subprocess.run(line, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
    assert ran.returncode == 128 + signal.SIGTERM


SLEEPS = ["-n", "3", "--oversubscribe", "-c", "import time; time.sleep(60)"]


def test_a_signal_between_two_starts_ends_the_job() -> None:
    class Early(Job):
        def _start_rank(self, number: int, descriptor: int) -> None:
            super()._start_rank(number, descriptor)
            signal.raise_signal(signal.SIGINT)

    job = Early(parse(SLEEPS, "mpiexec"))
    assert job.run() == 130
    assert len(job._processes.ranks) == 1


def test_a_rank_that_starts_while_a_signal_comes_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher does not know of it yet; it would be left to the SIGKILL behind the grace."""

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("shmnd.mpi.launcher.processes.subprocess.Popen", Popen)
    job = Job(parse(SLEEPS, "mpiexec"))
    assert job.run() == 128 + signal.SIGTERM
    assert [rank.process.returncode for rank in job._processes.ranks] == [-signal.SIGTERM]


TELLS = """
import os, signal, sys
from shmnd.mpi import MPI
comm = MPI.COMM_WORLD
wanted = {signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
comm.Barrier()
if comm.rank == 0:
    for how in sorted(wanted):
        os.kill(int(os.environ["SHMND_MPI_LAUNCHER"]), how)
come = sorted(signal.sigwait(wanted) for _ in wanted)
assert come == sorted(wanted), come
print("well")
"""


def test_signals_for_the_program_reach_every_rank() -> None:
    assert launch(3, "-c", TELLS).stdout == "well\n" * 3


WAITS = """
import os, time
from shmnd.mpi import MPI
print(os.getpid(), flush=True)
MPI.COMM_WORLD.Barrier()
time.sleep(300)
"""


def _until(state: str, processes: list[int]) -> None:
    until = time.monotonic() + PATIENCE
    for each in processes:
        while (found := _state(each)) != state:
            assert time.monotonic() < until, (each, found, state)
            time.sleep(0.01)


def test_a_job_that_is_stopped_stops_with_its_ranks_and_continues_with_them() -> None:
    """As by Ctrl-Z, and fg."""
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", WAITS]
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, process_group=0
    ) as launcher:
        assert launcher.stdout is not None
        ranks = [int(launcher.stdout.readline()) for _ in range(2)]
        try:
            for _ in range(2):
                launcher.send_signal(signal.SIGTSTP)
                _until("T", [launcher.pid, *ranks])
                launcher.send_signal(signal.SIGCONT)
                _until("S", [launcher.pid, *ranks])
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(PATIENCE) == 128 + signal.SIGTERM
        finally:
            launcher.kill()


COUNTS = """
import signal, sys, time
from shmnd.mpi import MPI
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(time.monotonic()))
rank = MPI.COMM_WORLD.rank
MPI.COMM_WORLD.Barrier()
print("ready", flush=True)
until = time.monotonic() + 60
while not came:
    assert time.monotonic() < until
    time.sleep(0.001)
time.sleep(0.5 if rank == 0 else 0)
print(rank, len(came), flush=True)
"""


@contextlib.contextmanager
def _on_a_terminal(*command: str, setting: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the launcher as a shell of a terminal does; yield it, and the terminal to type at."""
    keys, terminal = pty.openpty()
    settings = termios.tcgetattr(terminal)
    settings[3] |= setting
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", *command]
    try:
        with subprocess.Popen(
            line,
            stdin=terminal,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        ) as launcher:
            try:
                yield launcher, keys
            finally:
                launcher.kill()
    finally:
        os.close(keys)
        os.close(terminal)


def test_ctrl_c_reaches_each_rank_once() -> None:
    """The terminal sends it to rank 0, too, which reads the keys."""
    with _on_a_terminal("-c", COUNTS) as (launcher, keys):
        assert launcher.stdout is not None
        assert [launcher.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        os.write(keys, b"\x03")
        assert sorted(launcher.stdout.read().splitlines()) == ["0 1", "1 1"]
        assert launcher.wait(PATIENCE) == 128 + signal.SIGINT


def test_an_interrupt_that_no_terminal_sent_reaches_each_rank_as_well() -> None:
    with _on_a_terminal("-c", COUNTS) as (launcher, _):
        assert launcher.stdout is not None
        assert [launcher.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        launcher.send_signal(signal.SIGINT)
        assert sorted(launcher.stdout.read().splitlines()) == ["0 1", "1 1"]
        assert launcher.wait(PATIENCE) == 128 + signal.SIGINT


WRITES = """
from shmnd.mpi import MPI
with open("/dev/tty", "w") as terminal:
    terminal.write(f"rank {MPI.COMM_WORLD.rank}\\n")
MPI.COMM_WORLD.Barrier()
"""


def test_ranks_write_to_a_terminal_that_stops_background_jobs() -> None:
    """Behind `stty tostop`: the process groups of ranks are not that of the foreground."""
    line = ["--timeout", "20", "-c", WRITES]
    with _on_a_terminal(*line, setting=termios.TOSTOP) as (launcher, keys):
        assert launcher.wait(PATIENCE) == 0
        assert sorted(os.read(keys, 1024).decode().split()) == ["0", "1", "rank", "rank"]


READS = """
import errno
from shmnd.mpi import MPI
if MPI.COMM_WORLD.rank == 1:
    try:
        open("/dev/tty").read(1)
    except OSError as error:
        assert error.errno == errno.EIO, error
    else:
        raise AssertionError("rank 0 has the keys")
MPI.COMM_WORLD.Barrier()
"""


def test_a_rank_that_does_not_have_the_keys_has_an_error_of_a_read() -> None:
    with _on_a_terminal("--timeout", "20", "-c", READS) as (launcher, _):
        assert launcher.wait(PATIENCE) == 0
