# SPDX-License-Identifier: Apache-2.0
"""Each command that a page shows runs as it stands there, next to two processes that talk."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BIN: Final = Path(sys.executable).parent
LIMIT: Final = 50

ELSEWHERE: Final = {
    "./run demo": "the checks of a copy run it",
    "./run test": "it runs this test",
    ".venv/bin/python docs/hello.py": "tests/unit/project/test_readme.py",
    ".venv/bin/python docs/hello.py client": "tests/unit/project/test_readme.py",
    ".venv/bin/python docs/by_hand.py": "tests/unit/project/test_readme.py",
    ".venv/bin/python docs/by_hand.py client": "tests/unit/project/test_readme.py",
    "python -m venv parallel": "`./run package` makes an environment for the wheel",
    "parallel/bin/pip install .": "`./run package` builds a wheel and installs it",
    "shmnd ipc link --listen tcp/0.0.0.0:7447 --topic 'camera*' --service plan": "tests/link",
    "shmnd ipc link --connect tcp/192.0.2.7:7447 --topic 'camera*' --service plan": "tests/link",
}
"""Commands of the pages that this file does not run, with the reason or the test that does."""

CLIENT: Final = """
import sys, shmnd
with shmnd.connect(("127.0.0.1", 54321)) as connection:
    connection.send_bytes(b"hello")
    connection.recv_bytes(timeout=10)
    print("connected", flush=True)
    sys.stdin.read()
"""


def consoles() -> dict[str, list[str]]:
    """Return each command of the pages with the lines that it prints there."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.S | re.M):
            command = ""
            for line in block.splitlines():
                if line.startswith("$ "):
                    typed_in = line[2:].partition("  # ")[0].strip()
                    command = re.sub(r"^(\.venv|parallel)/bin/shmnd", "shmnd", typed_in)
                    found.setdefault(command, [])
                else:
                    found[command].append(line)
    return found


SHOWN: Final = consoles()


def environment(home: Path) -> dict[str, str]:
    """Return a user's environment. Unbuffered output would write a line in two parts."""
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**usual, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home)}


def typed(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Type a command into a shell."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@contextlib.contextmanager
def program(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """The numbers of the server of the tutorial, and of a client that stays connected."""
    with program("docs/hello.py") as server:
        assert line_of(server).startswith("listening at")
        with program("-c", CLIENT) as client:
            assert line_of(client) == "connected"
            yield server.pid, client.pid
            client.communicate()
            server.communicate(timeout=LIMIT)
            assert (client.returncode, server.returncode) == (0, 0)


def words(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


RANKS: Final = 'shmnd mpiexec -n 4 -c "from mpi4py import MPI; print(MPI.COMM_WORLD.rank)"'

HERE: Final = {
    RANKS,
    "shmnd ps",
    "shmnd ps ranks",
    "shmnd trace --pid 4711",
    "shmnd doctor",
    "shmnd clean [--dry-run] [--format json]",
    "shmnd mpiexec -n 4 python program.py",
    "source <(shmnd completion bash)",
    "shmnd completion bash > ~/.local/share/bash-completion/completions/shmnd",
    "shmnd completion zsh > ~/.zfunc/_shmnd",
    "shmnd completion fish > ~/.config/fish/completions/shmnd.fish",
}


def test_every_command_of_the_pages_runs_in_some_test() -> None:
    assert set(SHOWN) == HERE | set(ELSEWHERE)


@pytest.mark.slow
def test_ps_shows_the_tables_of_its_page(pair: tuple[int, int], tmp_path: Path) -> None:
    done = typed("shmnd ps", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    processes, connections, *_ = done.stdout.strip().split("\n\n")
    page_processes, page_connections = "\n".join(SHOWN["shmnd ps"]).strip().split("\n\n")
    assert words(processes.splitlines()[0]) == words(page_processes.splitlines()[0])
    before, after = page_connections.splitlines()[0].split("…")
    shown = words(connections.splitlines()[0])
    assert shown[: len(words(before))] == words(before)
    assert shown[-len(words(after)) :] == words(after)
    for pid in pair:
        assert re.search(rf"^ *{pid} ", processes, re.M)
        assert re.search(rf"^ *{pid}  connected ", connections, re.M)


@pytest.mark.slow
def test_mpiexec_prints_the_ranks_of_its_page(tmp_path: Path) -> None:
    done = typed(RANKS, tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(SHOWN[RANKS])


WAITING_RANKS: Final = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Recv(bytearray(8), source=(comm.rank + 1) % comm.size, tag=5)
"""


@pytest.mark.slow
def test_ps_ranks_shows_the_table_of_its_page(tmp_path: Path) -> None:
    (tmp_path / "ring.py").write_text(WAITING_RANKS)
    job = subprocess.Popen(
        ["shmnd", "mpiexec", "-n", "3", "python", "ring.py"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    mine: list[str] = []
    with job:
        try:
            for _ in range(LIMIT):  # until all three wait, which takes them a moment
                heading, *lines = typed("shmnd ps ranks", tmp_path).stdout.splitlines() or [""]
                mine = [line for line in lines if line.split()[0] == str(job.pid)]
                if sum("Recv of MPI_COMM_WORLD" in line for line in mine) == 3:
                    break
                assert job.poll() is None
        finally:
            job.send_signal(signal.SIGINT)
    page_heading, *page_lines = SHOWN["shmnd ps ranks"]
    assert words(heading) == words(page_heading)
    for line, page_line in zip(mine, page_lines, strict=True):
        waits, command = words(line)[-2:]
        page_waits, page_command = words(page_line)[-2:]
        assert form_of(waits) == form_of(page_waits)
        assert command.endswith(page_command)


def form_of(text: str) -> str:
    """Return a text with its numbers and its time replaced."""
    return re.sub(r"\d+", "N", re.sub(r"\(.*?\)", "(T)", text))


@pytest.mark.slow
def test_trace_prints_lines_as_its_page(pair: tuple[int, int], tmp_path: Path) -> None:
    command = f"exec shmnd trace --pid {pair[0]}"
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    ) as trace:
        try:
            line = line_of(trace)
            trace.send_signal(signal.SIGINT)
            assert trace.wait(LIMIT) == 130
        finally:
            trace.kill()
    form = r"\d\d:\d\d:\d\d\.\d{6} +\d+  127\.0\.0\.1:\d+ > 127\.0\.0\.1:\d+  (.*)"
    for shown in SHOWN["shmnd trace --pid 4711"]:
        assert re.fullmatch(form, shown)
    found = re.fullmatch(form, line)
    assert found, line
    assert found[1] == "present: connected"
    assert f" {pair[0]} " in line


def test_doctor_prints_the_table_of_its_page(tmp_path: Path) -> None:
    done = typed("shmnd doctor", tmp_path)
    heading, _, first, *_ = SHOWN["shmnd doctor"]
    lines = done.stdout.splitlines()
    assert words(lines[0]) == words(heading)
    assert words(lines[2])[1] == words(first)[1]
    if done.returncode == 0 and "warning" not in done.stdout:
        return  # a machine without anything to mention
    labels = {line.split()[0] for line in SHOWN["shmnd doctor"] if line.startswith("  ")}
    assert (
        labels
        == {line.split()[0] for line in lines if line.startswith("  ")}
        == {
            "meaning:",
            "remedy:",
        }
    )


def test_clean_lists_stale_files(tmp_path: Path) -> None:
    done = typed("shmnd clean --dry-run --format json", tmp_path)
    stale = [row for row in json.loads(done.stdout) if "stale" in row["state"]]
    assert (done.returncode, done.stderr) == (int(bool(stale)), "")


@pytest.mark.slow
def test_mpiexec_runs_the_program_of_its_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "mpi.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", page, re.S | re.M)
    assert block
    text = block[1] + 'import sys\nsys.stdout.write(f"rank {comm.rank} of {comm.size}\\n")\n'
    (tmp_path / "program.py").write_text(text)
    done = typed("shmnd mpiexec -n 4 python program.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4" for rank in range(4)]


def test_bash_completes_after_the_command_of_the_page(tmp_path: Path) -> None:
    done = typed("source <(shmnd completion bash) && complete -p shmnd", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" shmnd\n")


@pytest.mark.parametrize("command", sorted(name for name in HERE if " > ~/" in name))
def test_a_completion_is_written_to_the_place_of_the_shell(command: str, tmp_path: Path) -> None:
    place = Path(command.partition("~/")[2])
    (tmp_path / place.parent).mkdir(parents=True)
    done = typed(command, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "shmnd" in (tmp_path / place).read_text()
