# SPDX-License-Identifier: Apache-2.0
"""What the verbs of topics take and say: values, widths, signals."""

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd_tools import columns
from shmnd_tools.ipc.echo import plain, shown
from shmnd_tools.ipc.recording import Recording
from shmnd_tools.main import main

PATIENCE = 20.0


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        ("1.5", "i4", "1.5 is not a whole number"),
        ("[70000]", "i2", "70000 is outside -32768..32767"),
        ("None", "f8", "the value has dtype object"),
        ("{'a': 1}", "f8", "the value has dtype object"),
        ("[[1], [1, 2]]", "f8", "the value cannot be an array"),
        ("(1.5, 2)", "i4,f8", "field f0: 1.5 is not a whole number"),
        ("[(1, 2), (1, 'a')]", "[('x', 'i4'), ('y', 'f8')]", "row 1: field y: 'a' is not a number"),
    ],
)
def test_publish_refuses_values_the_type_cannot_hold(
    name: str, value: str, type_: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it waits for a subscriber."""
    assert main(["ipc", "publish", name, value, "--type", type_]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


def test_publish_refuses_a_type_that_is_none(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As each wrong option: with the exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(["ipc", "publish", name, "5", "--type", "bogus"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "bogus" in said
    assert said.count("\n") == 1


def test_publish_sends_records_and_rows(name: str) -> None:
    type_ = "[('x', 'i4'), ('y', 'f8')]"
    for number, (value, shape) in enumerate([("(1, 2.5)", ()), ("[{'x': 1, 'y': 2.5}]", (1,))]):
        with ipc.Subscriber(f"{name}{number}") as sub:
            line = ["shmnd", "ipc", "publish", f"{name}{number}", value, "--type", type_]
            with subprocess.Popen([*RUN, *line[1:]]) as publisher:
                found = sub.receive(PATIENCE).array
                assert publisher.wait(PATIENCE) == 0
            assert found.shape == shape
            assert found.tolist() in ((1, 2.5), [(1, 2.5)])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (["record", "file", "t", "--buffer", "1000000"], "'1000000' is more than 262,144"),
        (["publish", "t", "--", "-5", "--wait", "1"], "'--wait' stands behind --"),
        (["echo", "t", "--timeout", "-1"], "from 0 to 1,000,000\n"),
        (["publish", "t", "-x"], "'-x' is not an option here; --help"),
        (["publish", "t", "--x"], "'--x' is not an option here; --help"),
    ],
)
def test_options_beyond_their_bounds_are_a_line(
    line: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ipc", *line])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("line", [["--", "--x"], ["--x y"]])
def test_a_value_may_look_like_an_option(
    line: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ipc", "publish", name, "--wait", "0", "--type", "bytes", *line]) == 0
    assert not capsys.readouterr().err


RUN = [sys.executable, "-m", "shmnd_tools.main"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_recording_whole(name: str, number: int, tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    line = [*RUN, "ipc", "record", str(path), name]
    with ipc.Publisher(name, "i8") as pub, subprocess.Popen(line) as recorder:
        pub.wait_for_subscribers(timeout=PATIENCE)
        for value in range(5):
            pub.send(value)
        while recorded_in(path) < 5:
            assert recorder.poll() is None
            time.sleep(0.01)
        recorder.send_signal(number)
        assert recorder.wait(PATIENCE) == 0
    with Recording(path) as recording:
        assert recording._ends is not None, "it has an index"
        assert len(recording) == 5


def recorded_in(path: Path) -> int:
    """How many samples there are in a file that is being recorded."""
    if not path.exists() or path.stat().st_size < 8:
        return 0
    with Recording(path) as recording:
        return len(recording)


def test_columns_precede_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    row = {"state": "down", "command": "x" * 200}
    what = [columns.text("state"), columns.text("command")]
    for given, real, width in (("", 60, 60), ("30", 60, 30), ("x", 60, 60), ("0", 0, 80)):
        size = os.terminal_size((real, 24))
        monkeypatch.setattr("os.get_terminal_size", lambda size=size: size)
        monkeypatch.setenv("COLUMNS", given)
        monkeypatch.setenv("NO_COLOR", "1")
        assert max(map(len, columns.draw(what, [row]).splitlines())) == width


def test_times_and_long_doubles_are_values() -> None:
    """Whatever their unit: numpy has no object of Python for some."""
    late = "1970-01-01T00:00:00.000000005"
    assert plain(np.array([5, "NaT"], "M8[ns]")) == [late, None]
    assert plain(np.datetime64(5, "ns")) == late
    assert plain(np.array([5], ">M8[s]")) == ["1970-01-01T00:00:05"]
    assert plain(np.array(["20000-01-01"], "M8[D]")) == ["20000-01-01"]
    assert plain(np.array([5, "NaT"], ">m8[D]")) == [5, None]
    assert plain(np.array([5], "m8[ns]")) == plain(np.array([5], "m8[us]")) == [5]
    assert plain(np.timedelta64(5, "s")) == 5
    rows = np.zeros((2, 1), [("at", "M8[ns]"), ("inner", [("n", "i4", 2), ("long", "m8[h]")])])
    assert plain(rows) == [[["1970-01-01T00:00:00.000000000", [[0, 0], 0]]]] * 2
    assert plain(np.array([1.5, np.nan, -np.inf], "g")) == ["1.5", None, None]


def test_json_of_large_and_of_odd_values(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    frame = np.arange(3_000_000, dtype="u1").reshape(1000, 1000, 3)
    assert plain(frame) == frame.tolist()
    assert plain(np.array([[1.5, np.nan], [-np.inf, 2]])) == [[1.5, None], [None, 2.0]]
    when = datetime.datetime(2026, 1, 2, 3, 4, 5)
    assert plain(np.array([when], "M8[s]")) == ["2026-01-02T03:04:05"]
    assert plain({"at": when.date()}) == {"at": "2026-01-02"}
    with ipc.Publisher(name, object, history=2) as pub:
        for value in (10**5000, "\ud800"):  # beyond what Python writes as digits
            pub.send(value)
        assert main(["ipc", "echo", name, "--count", "2", "--format", "json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["value"] is None
    assert "4300" in first["unreadable"]
    assert second["value"] == "\ud800"


class Coloured:
    """Its text would change the terminal."""

    def __repr__(self) -> str:
        return "\x1b[31mred\nnext"


def test_objects_are_shown_in_part_and_without_control_characters() -> None:
    assert shown(Coloured()) == "\\x1b[31mred\nnext"
    many: Any = list(range(1000))
    text = shown(many)
    assert text.startswith("[0, 1, 2, ")
    assert text.endswith("... (4,890 characters; --full shows all)")
    assert shown(many, full=True) == repr(many)
