# SPDX-License-Identifier: Apache-2.0
"""In what order, and when, the samples of several topics are replayed."""

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from shmnd import ipc
from shmnd_tools.ipc.recording import Recording, Writer
from shmnd_tools.main import main

PATIENCE = 60.0


def written(path: Path, names: list[str], times: list[list[int]]) -> None:
    """Write a recording whose recorder took the samples of one topic after those of another."""
    with Writer(path) as writer:
        for name, whens in zip(names, times, strict=True):
            topic = writer.add_topic({"name": name, "type": {"dtype": "<i8"}, "attributes": {}})
            for number, when in enumerate(whens):
                sample = SimpleNamespace(
                    kind="array",
                    sequence=number,
                    timestamp_ns=when,
                    header=None,
                    array=np.array([when]),
                )
                writer.add(topic, sample)


def test_topics_are_replayed_in_the_order_of_their_times(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    written(path, [f"{name}-{number}" for number in range(2)], [[1, 3, 5, 5], [2, 4, 5, 6]])
    for end in (None, -1):  # without its index as well
        path.write_bytes(path.read_bytes()[:end])
        with Recording(path) as recording:
            found = [(each.topic, int(each.array[0])) for each in recording]
        assert found == [(1, 1), (2, 2), (1, 3), (2, 4), (1, 5), (1, 5), (2, 5), (2, 6)]


def test_the_order_of_a_topic_stays(name: str, tmp_path: Path) -> None:
    """Where its publishers sent in another order than that of their times."""
    path = tmp_path / "run.rec"
    written(path, [f"{name}-{number}" for number in range(2)], [[1, 5, 4, 7], [2, 6, 3]])
    with Recording(path) as recording:
        found = [(each.topic, int(each.array[0])) for each in recording]
    assert found == [(1, 1), (2, 2), (1, 5), (1, 4), (2, 6), (2, 3), (1, 7)]


def test_a_damaged_time_delays_no_other_sample(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    written(path, [f"{name}-{number}" for number in range(2)], [[1, 1 << 62, 3, 5], [2, 4]])
    with Recording(path) as recording:
        found = [int(each.array[0]) for each in recording]
    assert found == [1, 2, 3, 4, 5, 1 << 62]


def test_a_history_is_replayed_at_once(name: str, tmp_path: Path) -> None:
    """A sample that was sent long before the recording keeps those of the recording not waiting."""
    path = tmp_path / "run.rec"
    ago = time.monotonic_ns() - 300 * 10**9
    with ipc.Publisher(name, history=1) as pub, ipc.Publisher(f"{name}-2", history=2) as other:
        pub.send(b"first")
        for value in range(2):
            other.send(value)
        line = ["record", str(path), name, f"{name}-2", "--count", "3"]
        assert main(["ipc", *line]) == 0
    with Recording(path) as recording:
        assert recording.began_ns > max(each.timestamp_ns for each in recording) > ago
    soon = time.monotonic_ns() + 400 * 10**6
    written(path.with_suffix(".2"), [name, f"{name}-2"], [[ago, ago + 1], [soon]])
    with Recording(path.with_suffix(".2")) as recording:
        least = (soon - recording.began_ns) / 1e9
    began = time.monotonic()
    assert main(["ipc", "replay", str(path.with_suffix(".2"))]) == 0
    assert least <= time.monotonic() - began < PATIENCE
