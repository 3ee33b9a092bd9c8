# SPDX-License-Identifier: Apache-2.0
"""Commands that read a topic whose publisher is started anew, with another type."""

import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd_tools.main import main

PATIENCE = 60.0
TYPES: tuple[Any, ...] = ("f4", ipc.Array("u1", 2), object)


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


def publish_each(name: str, done: threading.Event) -> None:
    for type_ in TYPES:
        with ipc.Publisher(name, type_) as pub:
            pub.wait_for_subscribers(timeout=PATIENCE)
            for number in range(3):
                pub.send(np.array([number] * 2, "f4" if type_ == "f4" else "u1"))
    done.wait(PATIENCE)


def while_it_changes(name: str, *line: str) -> int:
    done = threading.Event()
    thread = threading.Thread(target=publish_each, args=(name, done))
    thread.start()
    try:
        return main(["ipc", *line])
    finally:
        done.set()
        thread.join(PATIENCE)


def test_echo_reports_it_and_continues(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert while_it_changes(name, "echo", name, "--count", "9", "--timeout", "30") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split()[1] for line in lines] == ["0", "1", "2"] * 3
    assert lines[0].endswith("float32[2] [0. 0.]")
    assert lines[3].endswith("uint8[2] [0 0]")
    assert err.splitlines() == [
        f"shmnd: the type of {name} was dtype float32, and is Array('uint8', (2,)) from here on",
        f"shmnd: the type of {name} was Array('uint8', (2,)), and is object from here on",
    ]


def test_rate_counts_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["rate", name, "--interval", "1", "--count", "2", "--format", "json"]
    assert while_it_changes(name, *line) == 0
    assert "is object from here on" in capsys.readouterr().err


def test_a_recording_ends_there(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ipc.Publisher(name, "f4", history=1) as pub:
        pub.send(np.zeros(2, "f4"))
        codes: list[int] = []
        path = str(tmp_path / "run")
        thread = threading.Thread(target=lambda: codes.append(main(["ipc", "record", path, name])))
        thread.start()
        pub.wait_for_subscribers(timeout=PATIENCE)
        pub.send(np.ones(2, "f4"))
    with ipc.Publisher(name, "i8"):
        thread.join(PATIENCE)
    assert codes == [1]
    err = capsys.readouterr().err
    assert f"no more is recorded of '{name}'" in err
    assert "has type dtype float32 here, and dtype int64" in err
    assert "2 samples" in err
