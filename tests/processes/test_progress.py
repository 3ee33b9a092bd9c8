# SPDX-License-Identifier: Apache-2.0
"""The page about what continues by itself says what two processes find when they try.

A cell that says that requests complete is waited for as long as on any machine. One that says that
they do not is given a short while: nothing can come of it later, for neither side makes a call.
"""

from collections.abc import Iterator

import pytest

from processes.kit import PATIENCE
from processes.progress_table import NO, YES, Row, Trial, columns, rows, shown

SHORT = 0.2
QUICK = [row for row in rows() if row.quick]


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    made = Trial()
    yield made
    made.close()


def check(trial: Trial, row: Row) -> None:
    """Try each cell of a row, for as long as what the page says takes."""
    said = shown()[row.title, row.what]
    tried = [
        trial.cell(
            row,
            *column,
            patience=PATIENCE if cell == YES else SHORT,
            later=SHORT if cell == NO else PATIENCE,
        )
        for column, cell in zip(columns(), said, strict=True)
    ]
    assert tried == said


def test_the_page_has_every_row() -> None:
    assert list(shown()) == [(row.title, row.what) for row in rows()]


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row.title}, {row.what}")
def test_requests_continue_as_documented(trial: Trial, row: Row) -> None:
    check(trial, row)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_all_requests_continue_as_documented(trial: Trial) -> None:
    for row in rows():
        check(trial, row)
