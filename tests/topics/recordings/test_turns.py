# SPDX-License-Identifier: Apache-2.0
"""Recordings of several topics: their ends, and their shares."""

import contextlib
import multiprocessing
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from shmnd import ipc
from shmnd_tools.ipc.recording import Recording
from shmnd_tools.main import main

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


def counts(path: Path) -> Counter[str]:
    """Return how many samples of each topic a file has."""
    with Recording(path) as recording:
        return Counter(recording.topics[found.topic]["name"] for found in recording)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 12])
def test_a_recording_ends_at_its_count(name: str, count: int, tmp_path: Path) -> None:
    """Also where it is reached while other topics have samples."""
    path = tmp_path / "run.rec"
    names = [f"{name}-{number}" for number in range(3)]
    with contextlib.ExitStack() as stack:
        for each in names:
            pub = stack.enter_context(ipc.Publisher(each, "i8", history=4))
            for value in range(4):
                pub.send(value)
        line = ["record", str(path), *names, "--count", str(count), "--seconds", "60"]
        began = time.monotonic()
        assert main(["ipc", *line]) == 0
        assert time.monotonic() - began < PATIENCE
    assert counts(path).total() == count


def publish_always(name: str) -> None:
    """Send faster than a recorder writes."""
    with ipc.Publisher(name, "i8", history=1) as pub:
        while True:
            pub.send(np.arange(4))


def test_a_fast_topic_keeps_neither_the_others_nor_the_end_waiting(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.rec"
    fast, slow = f"{name}-fast", f"{name}-slow"
    child = FORK.Process(target=publish_always, args=(fast,))
    child.start()
    try:
        with ipc.Subscriber(fast) as sub:
            sub.receive(PATIENCE).release()
        with ipc.Publisher(slow, "i8", history=5) as pub:
            for value in range(5):
                pub.send(value)
            assert main(["ipc", "record", str(path), fast, slow, "--count", "500"]) == 0
            line = ["record", str(tmp_path / "more.rec"), fast, slow, "--seconds", "0.2"]
            assert main(["ipc", *line]) == 0
    finally:
        child.kill()
        child.join()
    found = counts(path)
    assert found == {fast: 495, slow: 5}
