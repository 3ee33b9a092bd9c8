# SPDX-License-Identifier: Apache-2.0
"""The example of a service: what it starts is right, and does what its comments say."""

import configparser
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from shmnd_tools.commands import parser_of

UNIT: Final = Path(__file__).parents[2] / "docs" / "examples" / "shmnd-broker.service"
PROGRAM: Final = "%h/.local/bin/shmnd"


def settings() -> configparser.ConfigParser:
    """Read it as a service manager does: names with their case, and no interpolation."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def command() -> list[str]:
    program, *arguments = shlex.split(settings()["Service"]["ExecStart"])
    assert program == PROGRAM
    return arguments


def test_the_unit_file_has_the_sections_of_a_service() -> None:
    assert {"Unit", "Service", "Install"} == set(settings().sections())
    assert settings()["Install"]["WantedBy"] == "default.target"
    assert settings()["Service"]["PrivateTmp"] == "no"


def test_its_command_is_one_of_ours() -> None:
    args = parser_of(command()[0]).parse_args(command())
    assert args.run.__module__.endswith("broker_run")


def verified(text: str, folder: Path) -> str:
    """Return what the service manager's own checker complains of."""
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("there is no systemd-analyze here")
    program = folder / "shmnd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = folder / UNIT.name
    unit.write_text(text.replace(PROGRAM, str(program)))
    done = subprocess.run(
        [checker, "--user", "verify", str(unit)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_service_manager_has_no_complaint(tmp_path: Path) -> None:
    assert "blah" in verified(UNIT.read_text().replace("on-failure", "blah"), tmp_path)
    assert verified(UNIT.read_text(), tmp_path) == ""


@pytest.mark.slow
def test_the_unit_serves_at_its_socket_and_ends_at_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHMND_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *command()], stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stderr is not None
        assert select.select([broker.stderr], [], [], 30)[0]
        broker.stderr.readline()
        assert "$XDG_RUNTIME_DIR/shmnd/default/broker.sock" in UNIT.read_text()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(tmp_path / "shmnd/default/broker.sock"))
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0
