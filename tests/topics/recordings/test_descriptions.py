# SPDX-License-Identifier: Apache-2.0
"""What a recording says of its topics, and what a replayed topic has of it."""

import json
import re
import resource
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd_tools.ipc.recording import Recording, Writer
from shmnd_tools.main import main

PATIENCE = 60.0


class Command:
    """A command in a thread."""

    def __init__(self, *line: str) -> None:
        self.codes: list[int] = []
        self.thread = threading.Thread(
            target=lambda: self.codes.append(main(["ipc", *line])), daemon=True
        )
        self.thread.start()

    def code(self) -> int:
        """Wait for its end."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.codes[0]


def sample(number: int, when: int) -> Any:
    return SimpleNamespace(
        kind="array", sequence=number, timestamp_ns=when, header=None, array=np.array([number])
    )


def described(path: Path) -> list[dict[str, Any]]:
    """What a file says of its topics; the same without its index."""
    found = []
    whole = path.read_bytes()
    for each in (whole, whole[:-1]):
        path.write_bytes(each)
        said: list[str] = []
        with Recording(path, said.append) as recording:
            assert len(list(recording)) == len(recording)
            found.append(list(recording.topics.values()))
        assert not said
    assert found[0] == found[1]
    return found[0]


def test_a_replayed_topic_has_its_history(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    with ipc.Publisher(name, "i8", history=3) as pub:
        for number in range(5):
            pub.send(number)
        assert main(["ipc", "record", str(path), name, "--count", "3", "--seconds", "60"]) == 0
    (topic,) = described(path)
    assert topic["history"] == 3
    with Writer(tmp_path / "slow.rec") as writer:
        number = writer.add_topic(topic)
        now = time.monotonic_ns()
        for at in range(3):
            writer.add(number, sample(at, now + at))
        writer.add(number, sample(3, now + 3_000_000_000))
    with ipc.Subscriber(name) as first:
        replay = Command("replay", str(tmp_path / "slow.rec"), "--wait", "20")
        for at in range(3):
            assert first.receive(PATIENCE).array[0] == at
        with ipc.Subscriber(name) as late:
            assert [late.receive(PATIENCE).array[0] for _ in range(4)] == [0, 1, 2, 3]
    assert replay.code() == 0


def test_attributes_of_a_later_publisher_are_recorded(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    with ipc.Publisher(name, "i8") as early:
        record = Command("record", str(path), name, "--count", "2", "--seconds", "60")
        early.wait_for_subscribers(1, PATIENCE)
        early.send(1)
        with ipc.Publisher(name, "i8", attributes={"unit": "m"}, history=2) as late:
            late.wait_for_subscribers(1, PATIENCE)
            late.send(2)
            assert record.code() == 0
    (topic,) = described(path)
    assert (topic["attributes"], topic["history"]) == ({"unit": "m"}, 2)
    with ipc.Subscriber(name) as sub:
        assert main(["ipc", "replay", str(path), "--speed", "0", "--wait", "20"]) == 0
        assert [sub.receive(PATIENCE).array[()] for _ in range(2)] == [1, 2]


def test_attributes_stay_when_their_publisher_ends(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    with ipc.Publisher(name, "i8", attributes={"unit": "m"}, history=2) as early:
        record = Command("record", str(path), name, "--count", "2", "--seconds", "60")
        early.wait_for_subscribers(1, PATIENCE)
        early.send(1)
        ends = time.monotonic() + PATIENCE
        while not path.exists() or b"attributes" not in path.read_bytes():
            assert time.monotonic() < ends
            time.sleep(0.01)
    with ipc.Publisher(name, "i8") as late:
        late.wait_for_subscribers(1, PATIENCE)
        late.send(2)
        assert record.code() == 0
    (topic,) = described(path)
    assert (topic["attributes"], topic["history"]) == ({"unit": "m"}, 2)


TOPIC: dict[str, Any] = {"name": "t", "type": {"dtype": "<i8"}, "attributes": {}, "history": 1}
DAMAGED = [
    {**TOPIC, "name": "u"},
    {**TOPIC, "type": {"dtype": "<f8"}},
    {**TOPIC, "history": -1},
    {**TOPIC, "history": 1 << 60},
    {**TOPIC, "history": "many"},
    {"name": "t"},
]


@pytest.mark.parametrize("change", DAMAGED, ids=json.dumps)
def test_a_later_description_that_is_damaged_changes_nothing(
    change: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.rec"
    with Writer(path) as writer:
        before = {"name": "t", "type": {"dtype": "<i8"}, "attributes": {}}
        number = writer.add_topic(before)
        writer.add(number, sample(0, 0))
        writer.change_topic(number, change)
        writer.add(number, sample(1, 1))
    said: list[str] = []
    with Recording(path, said.append) as recording:
        assert len(list(recording)) == 2
        assert list(recording.topics.values()) == [before]
    assert len(said) == 1
    assert "a later description of topic 1 makes no sense" in said[0]


def test_a_disk_without_room_for_a_recording_is_left_without_one(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        with pytest.raises(OSError, match=re.escape(str(path))):
            Writer(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not path.exists()
    Writer(path).close()
