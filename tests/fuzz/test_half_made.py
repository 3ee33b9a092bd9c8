# SPDX-License-Identifier: Apache-2.0
"""Objects of `shmnd.ipc` that were never made do not end the interpreter, whatever is called."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("half_made.py")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.further)])
def test_no_call_of_a_half_made_object_ends_the_interpreter(seed: int) -> None:
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(seed)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
    assert int(ended.stderr.split()[-2]) > 80  # classes
