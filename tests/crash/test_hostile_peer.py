# SPDX-License-Identifier: Apache-2.0
"""A hostile process that forges everything it shares, and two peers that talk with it.

The peers check every message of each other, at the margins of all their memory, and at how often
each of their requests ends. The long run, which prints the forged values:

    SHMND_LIES=100000 python -m pytest tests/crash/test_hostile_peer.py -m soak -s
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from crash.hostile_peer import ANY, DOORBELL, MESSAGE, layout, names
from crash.spawning import Crowd

A_LIFE = 500
"""Lies of one process, over as many lines as they cost."""

pytestmark = pytest.mark.crash


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker of its own."""
    name = f"hostile-{os.getpid()}"
    monkeypatch.setenv("SHMND_NAMESPACE", name)
    return name


def test_every_word_has_a_name(tmp_path: Path) -> None:
    known = layout(tmp_path)
    subjects = names(known)
    assert len(subjects) == len(set(subjects)) > 40
    for field in (
        "side.hazard",
        "slot.ready_pos",
        "grant.token",
        "share.claim",
        "bell.armed",
        "marks.ready",
    ):
        assert f"shmnd_{field}" in subjects
    for size, words in known.values():
        assert all(word.offset + word.nbytes <= size for word in words)


def lies(wanted: int, seed: int, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Have so many words forged; return how often each was, and how the hostile peers ended."""
    known, told, ends = layout(folder), Counter[str](), Counter[str]()
    crowd = Crowd(seed, trusting=False)
    try:
        while told.total() < wanted:
            seed += 1
            before = [got for _, got in crowd.looks()]
            ended, reports, about = crowd.receive_forgeries(1 + seed % 2, seed, known, A_LIFE)
            told.update(about)
            for report in reports:
                ends[
                    "by the survivor" if report.over < ended else "by the end of the hostile peer"
                ] += 1
                ends.update(report.statuses)
            after = [got for _, got in crowd.looks()]
            assert all(b > a for a, b in zip(before, after, strict=True)), (before, after)
    finally:
        crowd.close()
    return told, ends


@pytest.mark.slow
def test_forgeries(namespace: str, tmp_path: Path) -> None:
    told, ends = lies(int(os.environ.get("SHMND_LIES", "1500")), 1, tmp_path)
    assert ends["by the survivor"] > 2
    assert told[MESSAGE] > 20
    assert told[ANY] > 20
    assert told[DOORBELL] > 5


@pytest.mark.soak
def test_many_forgeries(namespace: str, tmp_path: Path) -> None:
    told, ends = lies(int(os.environ.get("SHMND_LIES", "100000")), 1000, tmp_path)
    print(f"\n{told.total()} lies: {told}\nlines ended {ends}")
    assert all(told.values())
