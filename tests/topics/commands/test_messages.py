# SPDX-License-Identifier: Apache-2.0
"""What the commands of `shmnd ipc` say when they fail: the file or the name, and the remedy."""

import importlib.util
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from shmnd import ipc
from shmnd_tools.main import main


@pytest.fixture
def name() -> str:
    return f"messages-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("seconds", ["0.01", "1.1"])
def test_a_publisher_that_nothing_receives_names_its_option(
    name: str, seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ipc", "publish", name, "1", "--wait", seconds]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"shmnd: no subscriber of '{name}' came within {seconds} s, the limit of --wait"
    )


def test_a_publisher_that_waits_for_nothing_publishes_at_once(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ipc", "publish", name, "1", "--wait", "0"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_topic_that_has_no_publisher_is_named(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that was misspelt looks like a topic whose publisher is silent otherwise."""
    silent = f"{name}-silent"
    with ipc.Publisher(silent, "f8"):
        assert main(["ipc", "echo", name, silent, "--timeout", "1.1"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"shmnd: waiting for a publisher of '{name}'",
        "shmnd: no sample within 1.1 s",
    ]


def test_a_recording_is_not_overwritten(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.rec"
    path.write_bytes(b"kept")
    assert main(["ipc", "record", str(path), name, "--seconds", "0"]) == 1
    assert capsys.readouterr().err == (
        f"shmnd: {path} exists already; name a new file, or remove that one\n"
    )
    assert path.read_bytes() == b"kept"


@pytest.mark.parametrize("verb", ["record", "replay"])
def test_a_path_that_leads_nowhere_is_named(
    name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "run.rec"
    assert main(["ipc", verb, str(path), *([name] if verb == "record" else [])]) == 1
    assert capsys.readouterr().err == f"shmnd: {path}: No such file or directory\n"


@pytest.mark.slow
@pytest.mark.skipif(  # not imported here: it keeps descriptors in its process
    importlib.util.find_spec("zenoh") is None, reason="pip install 'shmnd[link]'"
)
def test_a_link_names_its_endpoint_once() -> None:
    program = f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main; main()"
    line = ["ipc", "link", "--listen", "tcp/[::1]:99999", "--topic", "a"]
    ran = subprocess.run(  # zenoh keeps descriptors in its process
        [sys.executable, "-c", program, *line],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stderr.startswith("shmnd: zenoh cannot open tcp/[::1]:99999: ")


def test_names_are_read_as_utf8_where_the_locale_is_ascii(name: str) -> None:
    """Python leaves the bytes undecoded there."""
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = "import sys; from shmnd_tools.main import main; sys.exit(main(sys.argv[1:]))"
    topic = f"kaméra-雪-{name}"

    def run(*words: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [sys.executable, "-c", command, "ipc", *words],
            env=os.environ | plain,
            capture_output=True,
            timeout=60,
        )

    with ipc.Publisher(topic, "u1", history=1) as pub:
        pub.send([7])
        info = run("info", topic, "--format", "json")
        assert (info.returncode, info.stderr) == (0, b"")
        assert json.loads(info.stdout)["name"] == topic
        echo = run("echo", topic, "--count", "1", "--timeout", "20")
        assert (echo.returncode, echo.stderr) == (0, b"")
    missing = run("info", topic)
    assert missing.returncode == 1
    assert b"kam\\xe9ra-\\u96ea" in missing.stderr
