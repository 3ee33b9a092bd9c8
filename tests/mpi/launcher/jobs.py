# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, started as programs start them."""

import subprocess
import sys
from typing import Final

PATIENCE: Final = 100
"""Seconds that a job may take on a machine that has other things to do."""


def launch(
    ranks: int, *command: str, expect: int = 0, patience: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """The result of a job that ended with the expected exit code."""
    line = [sys.executable, "-m", "shmnd.mpi", "-n", str(ranks), "--oversubscribe", *command]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=patience, check=False)
    assert ran.returncode == expect, ran.stdout + ran.stderr
    return ran
