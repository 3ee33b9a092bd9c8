# SPDX-License-Identifier: Apache-2.0
"""What runs the suite leaves no folder out, keeps outputs apart and counts what they say."""

import threading
from collections.abc import Iterator

import pytest

from shmnd_tools.dev import suite


def test_every_folder_of_tests_is_run_once() -> None:
    folders = suite.folders()
    assert len(folders) == len(set(folders))
    assert set(folders) == {
        path.parts[len(suite.TESTS.parts)] for path in suite.TESTS.rglob("test_*.py")
    }
    assert all(path.exists() for path in suite.ALONE)


def test_counts_of_closing_lines_are_added(capsys: pytest.CaptureFixture[str]) -> None:
    said = [
        "tests/a.py ..F\n",
        "=== 1 failed, 2 passed, 1 error in 0.12s ===\n",
    ]
    more = ["========= 5212 passed, 10 skipped, 2 errors in 492.73s (0:08:12) =========\n"]
    report = suite.Report()
    report.follow(said)
    report.follow(more)
    assert report.total == {"failed": 1, "passed": 5214, "skipped": 10, "error": 3}
    assert capsys.readouterr().out == "".join(said + more)


@pytest.mark.parametrize(
    "said", ["", "Fatal Python error: Aborted\n", "=== no tests ran in 0.01s ===\n"]
)
def test_output_without_counts_adds_nothing(said: str) -> None:
    report = suite.Report()
    report.follow([said])
    assert not report.total


def test_failures_are_collected(capsys: pytest.CaptureFixture[str]) -> None:
    report = suite.Report()
    report.follow(["a.py .F\n", "FAILED a.py::test_b - no\n", "ERROR c.py\n"])
    assert report.failed == ["FAILED a.py::test_b - no\n", "ERROR c.py\n"]
    assert capsys.readouterr().out.count("\n") == 3


def test_lines_of_one_folder_stay_together(capsys: pytest.CaptureFixture[str]) -> None:
    report = suite.Report()
    begun, over = threading.Event(), threading.Event()

    def first() -> Iterator[str]:
        yield "first 1\n"
        begun.set()
        assert over.wait(60)
        yield "first 2\n"

    def second() -> Iterator[str]:
        yield "second 1\n"
        over.set()
        yield "=== 1 passed in 0.01s ===\n"

    thread = threading.Thread(target=report.follow, args=(first(),))
    thread.start()
    assert begun.wait(60)
    report.follow(second())
    thread.join(60)
    assert report.total == {"passed": 1}
    assert capsys.readouterr().out.splitlines()[:3] == ["first 1", "first 2", "second 1"]


def test_an_output_that_cannot_be_read_leaves_the_terminal_free() -> None:
    def broken() -> Iterator[str]:
        yield "a line\n"
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text")

    report = suite.Report()
    with pytest.raises(UnicodeDecodeError):
        report.follow(broken())
    report.follow(["=== 1 passed in 0.01s ===\n"])
    assert report.total == {"passed": 1}
