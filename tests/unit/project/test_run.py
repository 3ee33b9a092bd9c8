# SPDX-License-Identifier: Apache-2.0
"""The task runner answers questions at once, where nothing has been built."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TASKS = ["native", "sanitize", "lint", "docs", "coverage", "package", "copy", "pythons"]
TASKS.append("mpi4py-suite")


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("task", TASKS)
def test_the_help_of_a_task_builds_nothing(task: str, option: str, tmp_path: Path) -> None:
    none = tmp_path / "venv"
    answer = subprocess.run(
        [ROOT / "run", task, option],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "SHMND_VENV": str(none)},
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"usage: ./run {task}")
    assert len(answer.stdout.splitlines()) > 1
    assert not none.exists()
