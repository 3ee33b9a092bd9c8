# SPDX-License-Identifier: Apache-2.0
"""Where an allocation fails, a call raises: it loses no result, and does no harm to memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("out_of_memory.py")


@pytest.mark.slow
def test_a_call_without_memory_loses_nothing() -> None:
    pytest.importorskip("_testcapi", reason="this Python cannot have an allocation fail")
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(PROGRAM)],
        env=os.environ | {"PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-6000:]
