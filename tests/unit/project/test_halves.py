# SPDX-License-Identifier: Apache-2.0
"""What runs the suite in two halves leaves nothing out and counts what they say."""

import pytest

from shmnd_tools.dev import halves


def test_every_folder_of_tests_is_in_one_half() -> None:
    first, second = halves.halves()
    assert not set(first) & set(second)
    assert {path.parts[len(halves.TESTS.parts)] for path in halves.TESTS.rglob("test_*.py")} == {
        folder.rpartition("/")[2] for folder in (*first, *second)
    }
    assert len(first) == len(halves.FIRST)
    assert all(path.exists() for path in halves.ALONE)


def test_counts_of_closing_lines_are_added(capsys: pytest.CaptureFixture[str]) -> None:
    said = [
        "tests/a.py ..F\n",
        "=== 1 failed, 2 passed, 1 error in 0.12s ===\n",
    ]
    more = ["========= 5212 passed, 10 skipped, 2 errors in 492.73s (0:08:12) =========\n"]
    total = halves.shown(said, []) + halves.shown(more, [])
    assert total == {"failed": 1, "passed": 5214, "skipped": 10, "error": 3}
    assert capsys.readouterr().out == "".join(said + more)


@pytest.mark.parametrize(
    "said", ["", "Fatal Python error: Aborted\n", "=== no tests ran in 0.01s ===\n"]
)
def test_what_counts_nothing_adds_nothing(said: str) -> None:
    assert not halves.shown([said], [])


def test_failures_are_collected(capsys: pytest.CaptureFixture[str]) -> None:
    failed: list[str] = []
    halves.shown(["a.py .F\n", "FAILED a.py::test_b - no\n", "ERROR c.py\n"], failed)
    assert failed == ["FAILED a.py::test_b - no\n", "ERROR c.py\n"]
    assert capsys.readouterr().out.count("\n") == 3
