# SPDX-License-Identifier: Apache-2.0
"""The engine's headers without an interpreter, plain and under the sanitizers."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent / "native"
ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = [HERE, ROOT / "tests/native", ROOT / "shmnd/ring", ROOT / "shmnd/mpi"]
WARNINGS: Final = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
FLAVOURS: Final = {
    "plain": ["-O2"],
    "sanitized": ["-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    # The thread sanitizer does not model fences.
    "threads": ["-O1", "-fsanitize=thread", "-Wno-tsan"],
}
CASES: Final = [
    pytest.param("test_ranks", "plain", marks=pytest.mark.further),
    ("test_ranks", "sanitized"),
    ("test_receive_now", "sanitized"),
    pytest.param("test_schedules", "plain", marks=pytest.mark.further),
    ("test_schedules", "sanitized"),
    ("test_arena", "sanitized"),
    ("test_arena", "threads"),
    ("test_lanes", "plain"),
    ("test_lanes", "threads"),
    ("copying/test_share", "sanitized"),
    ("copying/test_share", "threads"),
    ("copying/test_share_kills", "plain"),
    ("test_faults", "sanitized"),
    ("test_faults", "threads"),
    ("test_called", "sanitized"),
    ("test_gates", "sanitized"),
    ("test_gates", "threads"),
    ("test_leaving", "sanitized"),
    ("test_leaving", "threads"),
    ("test_lines", "sanitized"),
    ("test_lines", "threads"),
    ("test_line_kills", "plain"),
    ("test_views", "sanitized"),
    ("copying/test_borrowed", "sanitized"),
    ("test_pickle_bodies", "sanitized"),
    ("test_pickle_bodies", "threads"),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("program", "flavour"), CASES)
def test_program(program: str, flavour: str, tmp_path: Path) -> None:
    binary = tmp_path / Path(program).name
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-g1", *WARNINGS, *FLAVOURS[flavour]]
    command += [*(f"-I{folder}" for folder in FOLDERS), "-pthread", str(HERE / f"{program}.c")]
    built = subprocess.run(
        [*command, "-o", str(binary)], capture_output=True, text=True, check=False, timeout=200
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([binary], capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^[1-9]\d* tests passed$", ran.stdout, re.MULTILINE), ran.stdout


def test_every_order_of_a_lane_names_both_sides() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "shmnd/mpi").rglob("*.h"))
    labels = (
        "bell",
        "shown",
        "room",
        "wants",
        "death",
        "left",
        "note",
        "share",
        "placed",
        "entry",
        "reuse",
    )
    for label in labels:
        uses = re.findall(rf"SYNC {label}\b[^\n]*", text)
        assert len(uses) >= 3, f"{label}: the argument and both sides, found {uses}"
