# SPDX-License-Identifier: Apache-2.0
"""The command line: which module a verb leads to, and what becomes of errors."""

import subprocess
import sys

import pytest

from shmnd import NdError, Status, __version__
from shmnd_tools import broker_stop
from shmnd_tools.main import main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["--version"])
    assert exited.value.code == 0
    assert capsys.readouterr().out == f"shmnd {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["info", "--help"],
        ["address", "list", "--help"],
        ["bench", "--help"],
        ["bench", "core", "--help"],
        ["bench", "compare", "--help"],
        ["bench", "pingpong", "--help"],
        ["bench", "report", "--help"],
        ["broker", "--help"],
        ["broker", "run", "--help"],
        ["broker", "status", "--help"],
        ["broker", "stop", "--help"],
    ],
)
def test_everything_has_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 0
    assert capsys.readouterr().out.startswith("usage: shmnd")


@pytest.mark.parametrize(
    "arguments", [[], ["broker"], ["address"], ["broker", "dance"], ["teapot"], ["info", "--tea"]]
)
def test_a_wrong_command_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("problem", "code", "said"),
    [
        (NdError(Status.NO_MEMORY, "no room"), 1, "shmnd: no room\n"),
        (OSError("broken"), 1, "shmnd: broken\n"),
        (ImportError("not built"), 1, "shmnd: not built\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line(
    problem: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: object) -> int:
        raise problem

    monkeypatch.setattr(broker_stop, "run", fail)
    assert main(["broker", "stop"]) == code
    assert capsys.readouterr().err == said


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main;"
        "sys.exit(main(['broker', 'status', '--namespace', 'reader']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == b""
