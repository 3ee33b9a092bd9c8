# SPDX-License-Identifier: Apache-2.0
"""Correct random programs: their communicators, messages, types and collectives follow a model."""

from pathlib import Path

import pytest

from mpi.launcher.jobs import launch

PROGRAMS = Path(__file__).with_name("programs.py")
STEPS = 60


@pytest.mark.parametrize(("ranks", "first", "seeds"), [(3, 0, 12), (4, 100, 12)])
def test_random_programs(ranks: int, first: int, seeds: int) -> None:
    ran = launch(ranks, str(PROGRAMS), *map(str, (first, seeds, STEPS)))
    assert ran.stdout == "well\n", ran
