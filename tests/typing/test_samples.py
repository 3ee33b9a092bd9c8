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

pytestmark = pytest.mark.timeout(600)  # the first one waits for its type checker


def expected(sample: Path) -> list[int]:
    """Return the numbers of the lines that are marked."""
    lines = sample.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# error")]


@pytest.fixture(scope="module")
def lines_by_mypy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """Return the lines in which mypy finds errors, by the name of the sample."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--output", "json"]
    command += ["--cache-dir", str(tmp_path_factory.mktemp("mypy")), *map(str, SAMPLES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines: dict[str, set[int]] = {sample.stem: set() for sample in SAMPLES}
    print(done.stdout)
    for entry in map(json.loads, done.stdout.splitlines()):
        assert ROOT / entry["file"] in SAMPLES, entry
        if entry["severity"] == "error":
            lines[Path(entry["file"]).stem].add(entry["line"])
    return lines


@pytest.fixture(scope="module")
def lines_by_pyright() -> dict[str, set[int]]:
    """Return the lines in which pyright finds errors, by the name of the sample."""
    program = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("pyright is not installed")
    command = [program, "--outputjson", "--pythonpath", sys.executable, *map(str, SAMPLES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines: dict[str, set[int]] = {sample.stem: set() for sample in SAMPLES}
    print(done.stdout)
    for entry in json.loads(done.stdout)["generalDiagnostics"]:
        assert Path(entry["file"]) in SAMPLES, entry
        if entry["severity"] == "error":
            lines[Path(entry["file"]).stem].add(entry["range"]["start"]["line"] + 1)
    return lines


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_mypy_finds_the_errors_of_a_sample_and_no_others(
    lines_by_mypy: dict[str, set[int]], sample: Path
) -> None:
    assert sorted(lines_by_mypy[sample.stem]) == expected(sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_pyright_finds_the_errors_of_a_sample_and_no_others(
    lines_by_pyright: dict[str, set[int]], sample: Path
) -> None:
    assert sorted(lines_by_pyright[sample.stem]) == expected(sample)
