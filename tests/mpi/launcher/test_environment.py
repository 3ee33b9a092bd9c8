# SPDX-License-Identifier: Apache-2.0
"""What the launcher says where the options of Python hide its package from the ranks."""

import sys

import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi.launcher.environment import hidden_by


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("python -I program.py", "-I"),
        ("/usr/bin/python3.11 -uE program.py", "-E"),
        ("python3 -X dev -Werror -W ignore -sI -c code", "-I"),
        ("python3 --check-hash-based-pycs always -E -m module", "-E"),
        ("python program.py -I", ""),
        ("python -m module -E", ""),
        ("python -mE -I", ""),
        ("python -c -I", ""),
        ("python -X -I program.py", ""),
        ("python -XI program.py", ""),
        ("python - -I", ""),
        ("python -- -I", ""),
        ("python", ""),
        ("program -I", ""),
    ],
)
def test_an_option_that_hides_the_package_is_found(line: str, option: str) -> None:
    assert hidden_by(line.split()) == option


@pytest.mark.slow
def test_the_launcher_names_it() -> None:
    assert "PYTHONPATH" not in launch(1, sys.executable, "-c", "").stderr
    said = launch(1, sys.executable, "-I", "-c", "").stderr
    assert " -I ignores PYTHONPATH" in said
