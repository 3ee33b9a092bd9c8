# SPDX-License-Identifier: Apache-2.0
"""The task runner answers questions at once, where nothing has been built."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_help_of_the_suite_of_mpi4py_builds_nothing(tmp_path: Path) -> None:
    none = tmp_path / "venv"
    said = subprocess.run(
        [ROOT / "run", "mpi4py-suite", "--help"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "SHMND_VENV": str(none)},
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("usage: ./run mpi4py-suite")
    assert not none.exists()
