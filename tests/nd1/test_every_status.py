# SPDX-License-Identifier: Apache-2.0
"""Version 1: no documented status without a test, and no reason that stands for nothing."""

from pathlib import Path

from nd1.documented import CALLS, COMPLETIONS
from nd1.unprovoked import UNPROVOKED
from spi.provoked import cells_of, provoked

CELLS = cells_of(CALLS, COMPLETIONS)
TESTS = provoked(Path(__file__).parent, CELLS)


def test_every_documented_status_has_a_test_or_a_reason() -> None:
    empty = CELLS - set(TESTS) - set(UNPROVOKED)
    assert not empty, sorted(empty)


def test_every_reason_stands_for_a_documented_status_without_a_test() -> None:
    assert not set(UNPROVOKED) - CELLS
    assert not set(UNPROVOKED) & set(TESTS)
    assert all(UNPROVOKED.values())
