# SPDX-License-Identifier: Apache-2.0
"""The test suite, four folders at a time, with one closing line for all of it.

Its tests wait as often as they work, so two processors have room for four folders. Each folder has
a pytest of its own and not a worker of one: a worker has an additional thread, and the tests fork,
count threads and check all objects of their process. Options go to each of them.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2] / "tests"
AT_A_TIME: Final = 4
LONGEST_FIRST: Final = (
    "mpi", "ipc", "unit", "spi", "processes", "native", "topics", "crash", "fuzz", "stress",
)  # fmt: skip
"""Folders that take minutes; short ones follow, so that all lanes end at about the same time."""
ALONE: Final = (
    TESTS / "processes" / "broker" / "test_leftovers.py",
    TESTS / "unit" / "broker" / "test_leftovers.py",
)
"""They create names in /dev/shm without an owner. Any broker that starts removes such names, and
other tests expect none."""

PYTEST: Final = (sys.executable, "-m", "pytest", "--color=no")
ENVIRONMENT: Final = {
    # The tests start thousands of interpreters. OpenBLAS has a thread for each processor, which
    # spins for as long as half of numpy's import takes, and no test needs it.
    "OPENBLAS_NUM_THREADS": "1",
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
}
"""What each pytest runs with. Without bytecode on the disk each interpreter compiles all sources
of an installation in place again."""
NOTHING_SELECTED: Final = 5  # what pytest ends with when options leave no test of a folder
_CLOSING: Final = re.compile(r"=+ (.* in [\d.]+s.*) =+\n?")


def folders() -> list[str]:
    """Return every folder that has tests, in the order in which they begin."""
    names = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    return [*LONGEST_FIRST, *sorted(names.difference(LONGEST_FIRST))]


class Report:
    """Print the lines of one pytest after those of another, and count what they say.

    One pytest at a time has the terminal and is seen as it goes. The lines of another one wait
    until the terminal is free.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.total: Counter[str] = Counter()
        self._terminal = threading.Lock()

    def follow(self, lines: Iterable[str]) -> None:
        """Print the output of a pytest, note its failures, and add its closing line's counts."""
        waiting: list[str] = []
        shown = False
        try:
            for line in lines:
                waiting.append(line)
                shown = shown or self._terminal.acquire(blocking=False)
                if shown:
                    self._show(waiting)
        finally:
            if not shown:
                self._terminal.acquire()
            self._show(waiting)
            self._terminal.release()

    def _show(self, waiting: list[str]) -> None:
        """Print the lines; called by the thread that has the terminal."""
        for line in waiting:
            print(line, end="", flush=True)
            if closing := _CLOSING.fullmatch(line):
                self.total += counts(closing[1])
            if line.startswith(("FAILED ", "ERROR ")):
                self.failed.append(line)
        waiting.clear()


def counts(closing: str) -> Counter[str]:
    """Return the counts of a closing line; `1 error` and `2 errors` are of one kind."""
    found = re.findall(r"(\d+) (error|warning|\w+)", closing)
    return Counter({kind: int(number) for number, kind in found})


def run(arguments: Iterable[str], report: Report) -> int:
    """Run a pytest, and return what it ended with."""
    command = [*PYTEST, *arguments]
    out, err = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        command, stdout=out, stderr=err, text=True, errors="replace", env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        report.follow(process.stdout)
    return process.returncode


def main(options: list[str]) -> int:
    """Run every folder, then what must be alone."""
    began = time.monotonic()
    report = Report()
    apart = [f"--ignore={path}" for path in ALONE]
    with ThreadPoolExecutor(AT_A_TIME) as lanes:
        started = [
            lanes.submit(run, [*options, str(TESTS / name), *apart], report) for name in folders()
        ]
        codes = {each.result() for each in started}
    codes.add(run([*options, *map(str, ALONE)], report))
    if report.total:
        codes.discard(NOTHING_SELECTED)
    if died := sorted(code for code in codes if not 0 <= code <= 1):
        print(f"suite: a pytest ended with {', '.join(map(str, died))}", file=sys.stderr)
    # Once more, and together: most lie thousands of lines above.
    print(*report.failed, sep="", end="", flush=True)
    kinds = ", ".join(f"{number} {kind}" for kind, number in report.total.items())
    print(f"===== {kinds or 'nothing was run'} in {time.monotonic() - began:.2f}s =====")
    return max(map(abs, codes), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
