# SPDX-License-Identifier: Apache-2.0
"""What several ranks print into one file or pipe: every line is whole."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

import pytest

from mpi.launcher.jobs import PATIENCE, launch

RANKS = 4
LINES = 3000
PRINTS = f"""
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
for k in range({LINES}):
    print(comm.rank, k, "abcdefghij" * (k * (comm.rank + 3) % 41))
"""


UNBUFFERED = "import sys; sys.stdout.reconfigure(write_through=True)\n" + PRINTS
"""As with PYTHONUNBUFFERED: each part of a line is written by itself."""


def check(text: str) -> None:
    """Check that each rank's lines are whole and in order."""
    following = [0] * RANKS
    for line in text.splitlines():
        rank, k, rest = line.split(" ")
        assert int(k) == following[int(rank)], line
        assert rest == "abcdefghij" * (int(k) * (int(rank) + 3) % 41), line
        following[int(rank)] += 1
    assert following == [LINES] * RANKS


@pytest.mark.slow
@pytest.mark.parametrize("program", [PRINTS, UNBUFFERED], ids=["buffered", "unbuffered"])
def test_lines_in_a_pipe_are_whole(program: str) -> None:
    check(launch(RANKS, "-c", program).stdout)


@pytest.mark.slow
def test_lines_of_errors_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of tracebacks have parts. Without buffers each was written by itself."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    check(launch(RANKS, "-c", PRINTS.replace("41))", "41), file=sys.stderr)")).stderr)


@pytest.mark.slow
def test_lines_in_a_file_are_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shmnd.mpi", "-n", str(RANKS), "--oversubscribe", "-c", PRINTS]
    with (tmp_path / "output").open("w") as output:
        subprocess.run(command, stdout=output, timeout=PATIENCE, check=True)
    check((tmp_path / "output").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "before", "expected"),
    [
        (2, "", True),
        (1, "", False),
        (2, "import io; sys.stdout = io.StringIO()", False),
        (2, "import os; sys.stdout = open(os.devnull, 'w')", False),
        (2, "sys.stdout.detach(); sys.stdout = None", None),
        (2, "sys.stdout.close()", False),
    ],
    ids=["several ranks", "one rank", "in memory", "of a file", "none", "closed"],
)
def test_only_the_stream_that_python_made_is_changed(
    ranks: int, before: str, expected: bool | None
) -> None:
    said = "os.write(2, f'<{getattr(sys.stdout, \"line_buffering\", None)}>'.encode())"
    ran = launch(ranks, "-c", f"import os, sys; {before}\nfrom mpi4py import MPI\n{said}")
    assert ran.stderr == f"<{expected}>" * ranks


@pytest.mark.slow
def test_output_from_before_the_import_arrives() -> None:
    ran = launch(2, "-c", "print('before')\nfrom mpi4py import MPI\nprint('after')")
    assert sorted(ran.stdout.split()) == ["after", "after", "before", "before"]


@pytest.mark.slow
def test_the_launcher_leaves_no_pipe_open() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "shmnd.mpi", "--prefix", "-n", "2"]
    ran = subprocess.run(
        [*command, "--oversubscribe", "-c", "print(1)"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (sorted(ran.stdout.splitlines()), ran.stderr) == (["[0] 1", "[1] 1"], "")


@pytest.mark.slow
def test_a_part_of_a_line_is_shown_though_another_process_holds_the_pipe() -> None:
    program = """
import subprocess, sys
print("x" * 100_000, end="", flush=True)
subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
"""
    line = [sys.executable, "-m", "shmnd.mpi", "--prefix", "-n", "1", "-c", program]
    reader, writer = os.pipe()  # the process stays until its end
    try:
        ran = subprocess.run(
            line, stdin=reader, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert ran.stdout == f"[0] {'x' * 100_000}\n"


@pytest.mark.slow
def test_lines_are_whole_where_the_target_does_not_wait() -> None:
    """Another process that has the same pipe may have made it so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [sys.executable, "-m", "shmnd.mpi", "--prefix", "-n", "2", "--oversubscribe", "-c"]
    program = "for k in range(20000): print(k)"
    line = [*command, program]
    with subprocess.Popen(line, stdout=writer) as launcher, os.fdopen(reader) as shown:
        os.close(writer)
        time.sleep(1)  # the pipe is full by now
        lines = shown.read().splitlines()
        assert launcher.wait(PATIENCE) == 0
    for rank in range(2):
        assert [each for each in lines if each.startswith(f"[{rank}] ")] == [
            f"[{rank}] {k}" for k in range(20000)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("options", [[], ["--prefix"]])
def test_messages_that_cannot_be_written_do_not_change_how_a_job_ends(
    closed: bool, options: list[str]
) -> None:
    """The launcher speaks at the start and at the end; its standard error takes nothing."""
    program = """
import os, sys
print("runs", flush=True)
os.close(2)
sys.exit(7)
"""
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", *options]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe, Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*line, sys.executable, "-E", "-c", program],  # -E: words at the start
            stdout=subprocess.PIPE,
            stderr=pipe if closed else full,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (ran.returncode, "runs" in ran.stdout) == (7, True)


def unwritten(stdout: IO[str], *program: str, ranks: int = 1) -> list[str]:
    """The lines of errors of a job whose output cannot be written, and which has to fail."""
    line = [sys.executable, "-m", "shmnd.mpi", "--prefix", "--oversubscribe", "-n", str(ranks)]
    ran = subprocess.run(
        [*line, *program],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    return ran.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["", "; time.sleep(600)"])
def test_output_that_a_full_disk_does_not_take_ends_the_job_with_a_line(rest: str) -> None:
    program = f"import time; print(1, flush=True){rest}"
    with Path("/dev/full").open("w") as full:
        lines = unwritten(full, "-c", program, ranks=2)
    said = "shmnd mpiexec: the output cannot be written: No space left on device"
    assert [text for text in lines if text.startswith(said)], lines


SHORT: Final = ["echo hi", "(sleep .3; echo hi) & true"]
"""The end of the only rank comes with the output, or before it."""


@pytest.mark.parametrize("program", SHORT)
def test_a_full_disk_is_named_where_all_ranks_have_ended(program: str) -> None:
    with Path("/dev/full").open("w") as full:
        for _ in range(4):
            lines = unwritten(full, "sh", "-c", program)
            assert len(lines) == 1
            assert lines[0].startswith(
                "shmnd mpiexec: the output cannot be written: No space left on device"
            )


@pytest.mark.parametrize("program", SHORT)
def test_a_reader_that_has_ended_is_named_where_all_ranks_have(program: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        for _ in range(4):
            lines = unwritten(pipe, "sh", "-c", program)
            assert len(lines) == 1
            assert lines[0].startswith("shmnd mpiexec: the reader of the output has ended")


def test_a_reader_that_ends_before_the_last_output_is_named() -> None:
    """A process that the rank has started holds its pipe, and the output fills that of the job."""
    program = "head -c 200000 /dev/zero; sleep 600 & true"
    line = [sys.executable, "-m", "shmnd.mpi", "--prefix", "-n", "1", "sh", "-c", program]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        assert launcher.stdout.read(1) == b"["
        launcher.stdout.close()
        said = launcher.stderr.read()
        assert launcher.wait(PATIENCE) == 1, said
    assert said == b"shmnd mpiexec: the reader of the output has ended\n"


def test_the_rank_before_a_line_is_coloured_on_a_terminal() -> None:
    mine, terminal = os.openpty()
    line = [sys.executable, "-m", "shmnd.mpi", "--prefix", "-n", "1", "-c", "print('words')"]
    try:
        subprocess.run(line, stdout=terminal, timeout=PATIENCE, check=True)
        assert os.read(mine, 100) == b"\x1b[36m[0] \x1b[0mwords\r\n"
    finally:
        os.close(mine)
        os.close(terminal)
