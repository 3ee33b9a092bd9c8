# SPDX-License-Identifier: Apache-2.0
"""Which lines of the C headers the native tests run: a table, by gcov."""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
RING: Final = ROOT / "shmnd" / "ring"
NATIVE: Final = ROOT / "tests" / "native"
Counts = dict[str, dict[int, int]]
"""For each header, how often each of its lines ran."""


def run(program: Path) -> dict[str, Any]:
    """Build one test program, run it, and return the lines of gcov."""
    build = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O0", "--coverage", f"-I{RING}", f"-I{NATIVE}"]
    build += ["-pthread", str(program), "-o", program.stem]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(build, cwd=folder, check=True)
        subprocess.run([f"./{program.stem}"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        # Compilers differ in how they call the file.
        (counted,) = Path(folder).glob("*.gcda")
        command = ["gcov", "--json-format", "--stdout", counted.name]
        printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(printed.stdout)
    return report


def count(programs: Iterable[Path]) -> Counts:
    """Return the lines of each header, with how often all programs together ran them."""
    counts: Counts = defaultdict(lambda: defaultdict(int))
    for program in programs:
        for file in run(program)["files"]:
            path = Path(os.path.normpath(file["file"]))
            if RING in path.parents:
                for line in file["lines"]:
                    counts[path.name][line["line_number"]] += line["count"]
    return counts


def ranges(numbers: Iterable[int]) -> Iterator[str]:
    """Return lines one after the other as `from-to`."""
    for _, run_ in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        lines = [number for _, number in run_]
        yield str(lines[0]) if len(lines) == 1 else f"{lines[0]}-{lines[-1]}"


def main() -> int:
    """Print one row for each header, and their sum."""
    counts = count(sorted(NATIVE.rglob("test_*.c")))
    if not counts:
        print("native_coverage: no line of a header was counted", file=sys.stderr)
        return 1
    print(f"{'Header':<24} {'Lines':>6} {'Missed':>6} {'Cover':>6}   Missing")
    lines = missed = 0
    for name, header in sorted(counts.items()):
        idle = [number for number, times in header.items() if times == 0]
        lines += len(header)
        missed += len(idle)
        share = 1 - len(idle) / len(header)
        print(f"{name:<24} {len(header):6} {len(idle):6} {share:6.1%}   {', '.join(ranges(idle))}")
    print(f"{'TOTAL':<24} {lines:6} {missed:6} {1 - missed / lines:6.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
