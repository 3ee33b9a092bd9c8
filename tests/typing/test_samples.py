# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them, under type checkers: correct ones pass, wrong ones do not.

A line of a sample ends with `# error` where a checker has to find one, and only there.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = sorted(Path(__file__).parent.joinpath("samples").glob("*.py"))
ROOT = Path(__file__).parents[2]


def expected(sample: Path) -> list[int]:
    """Return the numbers of the lines that are marked."""
    lines = sample.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# error")]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_mypy_finds_the_errors_of_a_sample_and_no_others(sample: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--output", "json"]
    command += ["--cache-dir", str(tmp_path), str(sample)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    errors = [entry for entry in found if entry["severity"] == "error"]
    assert sorted({entry["line"] for entry in errors}) == expected(sample), done.stdout


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_pyright_finds_the_errors_of_a_sample_and_no_others(sample: Path) -> None:
    program = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("pyright is not installed")
    command = [program, "--outputjson", "--pythonpath", sys.executable, str(sample)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [entry for entry in found if entry["severity"] == "error"]
    lines = sorted({entry["range"]["start"]["line"] + 1 for entry in errors})
    assert lines == expected(sample), done.stdout
