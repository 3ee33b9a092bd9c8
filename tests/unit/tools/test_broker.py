# SPDX-License-Identifier: Apache-2.0
"""`shmnd broker`: run, status and stop, against brokers of their own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmnd import NdError
from shmnd.broker import observer
from shmnd.broker.__main__ import main as serve
from shmnd.broker.place import place_of
from shmnd_tools.main import main

pytestmark = pytest.mark.slow

NAMESPACE = "tools"
HERE = ["--namespace", NAMESPACE]


@pytest.fixture
def broker() -> Iterator[subprocess.Popen[str]]:
    """Run `shmnd broker run` until the test is over."""
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "broker", "run", *HERE],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert f"pid {process.pid} serves " in process.stderr.readline()
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.parametrize("word", ["--idl=1", "--name=tools", "--rep"])
def test_a_shortened_option_of_the_program_is_none(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        serve(["status", word])
    assert caught.value.code == 2
    assert f"unrecognized arguments: {word}" in capsys.readouterr().err


def test_no_broker_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "status", *HERE]) == 1
    assert capsys.readouterr().out == "namespace  tools\nrunning    no\n"
    assert main(["broker", "status", "listeners", *HERE, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == []
    assert main(["broker", "stop", *HERE]) == 0
    assert capsys.readouterr().out == "no broker runs in namespace 'tools'\n"


def test_status_prints_counts(
    broker: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "status", *HERE, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    wanted = {
        "namespace": NAMESPACE,
        "running": True,
        "pid": broker.pid,
        "processes": 0,
        "adapters": 0,
        "listeners": 0,
        "connections": 0,
    }
    assert {name: told[name] for name in wanted} == wanted
    assert main(["broker", "status", *HERE]) == 0
    assert "running      yes\n" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["processes", "adapters", "listeners", "connections"])
def test_status_lists_records_of_a_kind(
    what: str, broker: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "status", what, *HERE]) == 0
    heading, ruler = capsys.readouterr().out.splitlines()
    assert set(ruler) == {"-", " "}
    assert len(heading.split()) > 2
    assert main(["broker", "status", what, *HERE, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_second_broker_is_refused(
    broker: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "run", *HERE]) == 1
    said = capsys.readouterr().err
    assert said.startswith("shmnd broker: ")
    assert "is running already" in said
    assert "--replace" in said


def test_ctrl_c_ends_it_with_the_exit_code_of_its_help(
    broker: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    broker.send_signal(signal.SIGINT)
    ended = broker.wait(5)
    with pytest.raises(SystemExit):
        main(["broker", "run", "--help"])
    shown = capsys.readouterr().out
    (code,) = re.findall(r"^  (\d+) .*Ctrl-C end a broker", shown, re.MULTILINE)
    assert ended == int(code)


def test_stop_ends_the_broker(
    broker: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "stop", *HERE]) == 0
    assert broker.wait(5) == 0
    assert not place_of(NAMESPACE).socket.exists()
    assert capsys.readouterr().out == f"ended the broker of namespace 'tools' (pid {broker.pid})\n"


def test_stop_ends_one_that_is_stopped(
    broker: subprocess.Popen[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observer, "LIMIT", 0.2)
    broker.send_signal(signal.SIGSTOP)
    assert main(["broker", "stop", *HERE]) == 0
    assert broker.wait(5) == -signal.SIGKILL
    assert "ended the broker" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["status", "stop"])
def test_the_module_does_the_same(
    verb: str, broker: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve([verb, "--namespace", "unused"]) == (1 if verb == "status" else 0)
    capsys.readouterr()
    assert serve([verb, *HERE]) == 0
    told = capsys.readouterr().out
    if verb == "stop":
        assert broker.wait(5) == 0
        assert told == f"ended the broker of namespace 'tools' (pid {broker.pid})\n"
    else:
        facts = dict(line.split(maxsplit=1) for line in told.splitlines())
        assert facts["running"] == "yes"
        assert facts["pid"] == str(broker.pid)
        assert facts["connections"] == "0"


@pytest.mark.parametrize("verb", [[], ["run"]])
def test_the_module_serves(verb: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "shmnd.broker", *verb, "--namespace", "module"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert f"pid {process.pid} serves " in process.stderr.readline()
        process.terminate()
        assert process.wait(5) == 0


def test_the_broker_of_a_group_is_another_one(
    broker: subprocess.Popen[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SHMND_RUNTIME_DIR")
    monkeypatch.setattr("shmnd.broker.place._COMMON", (tmp_path,))
    assert main(["broker", "status", *HERE, "--group", str(os.getegid())]) == 1
    assert main(["broker", "stop", *HERE, "--group", str(os.getegid())]) == 0
    assert "no broker runs" in capsys.readouterr().out
    place = place_of(NAMESPACE, group=os.getegid(), make=False)
    assert place.directory == tmp_path / f"shmnd-group-{os.getegid()}" / NAMESPACE
    assert not place.directory.exists(), "a question makes nothing"


def test_a_silent_broker_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "LIMIT", 0.05)
    place = place_of("silent")
    with place.listen(), observer.visit(place) as guest:
        assert guest is not None
        with pytest.raises(NdError, match=r"answer within 0\.05 s; is it stopped") as raised:
            guest.counts()
    assert isinstance(raised.value, TimeoutError)
    place.socket.unlink()


@pytest.mark.parametrize(
    "wrong", ["--namespace=a/b", "--namespace=", "--group=no such", "--group="]
)
def test_a_place_that_cannot_be_is_a_wrong_option_of_the_program(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        serve(["status", wrong])
    assert repr(wrong.partition("=")[2]) in capsys.readouterr().err
