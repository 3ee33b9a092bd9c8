# SPDX-License-Identifier: Apache-2.0
"""The test suite in two concurrent halves, with one closing line for all of it.

Its tests wait as often as they work, so one processor has room for another half. Each half is a
pytest of its own and not a worker of one: a worker has an additional thread, and the tests fork,
count threads and check all objects of their process. Options go to each of them.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2] / "tests"
FIRST: Final = frozenset(
    {"docs", "fuzz", "ipc", "link", "model", "native", "reference", "soak", "unit"}
)
"""Folders of the first half; all others are the second. Both take about the same time."""
ALONE: Final = (
    TESTS / "processes" / "broker" / "test_leftovers.py",
    TESTS / "unit" / "broker" / "test_leftovers.py",
)
"""They create names in /dev/shm without an owner. Any broker that starts removes such names, and
other tests expect none."""

PYTEST: Final = (sys.executable, "-m", "pytest", "--color=no")
_CLOSING: Final = re.compile(r"=+ (.* in [\d.]+s.*) =+\n?")


def halves() -> tuple[list[str], list[str]]:
    """Return the folders of both; every folder that has tests is in one of them."""
    folders = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")})
    first = [str(TESTS / name) for name in folders if name in FIRST]
    return first, [str(TESTS / name) for name in folders if name not in FIRST]


def shown(lines: Iterable[str], failed: list[str]) -> Counter[str]:
    """Print the output of a pytest, collect its failures, and return its closing line's counts."""
    closing = None
    for line in lines:
        print(line, end="", flush=True)
        closing = _CLOSING.fullmatch(line) or closing
        if line.startswith(("FAILED ", "ERROR ")):
            failed.append(line)
    return counts(closing[1]) if closing else Counter()


def counts(closing: str) -> Counter[str]:
    """Return the counts of a closing line; `1 error` and `2 errors` are of one kind."""
    found = re.findall(r"(\d+) (error|warning|\w+)", closing)
    return Counter({kind: int(number) for number, kind in found})


def main(options: list[str]) -> int:
    """Run both halves, then what must be alone."""
    began = time.monotonic()
    first, second = halves()
    command = [*PYTEST, *options]
    failed: list[str] = []
    apart = [f"--ignore={path}" for path in ALONE]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen([*command, *first, *apart], stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen([*command, *second, *apart], stdout=said, stderr=said) as other,
    ):
        assert one.stdout is not None
        total = shown(one.stdout, failed)
        other.wait()
        said.seek(0)
        total += shown(said, failed)
    with subprocess.Popen([*command, *map(str, ALONE)], stdout=subprocess.PIPE, text=True) as last:
        assert last.stdout is not None
        total += shown(last.stdout, failed)
    codes: list[int] = [each.returncode for each in (one, other, last)]
    if died := [code for code in codes if not 0 <= code <= 1]:
        print(f"halves: a pytest ended with {', '.join(map(str, died))}", file=sys.stderr)
    # Once more, and together: the first half's lie thousands of lines above.
    print(*failed, sep="", end="", flush=True)
    kinds = ", ".join(f"{number} {kind}" for kind, number in total.items())
    print(f"===== {kinds or 'nothing was run'} in {time.monotonic() - began:.2f}s =====")
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
