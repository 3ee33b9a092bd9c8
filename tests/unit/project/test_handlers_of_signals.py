# SPDX-License-Identifier: Apache-2.0
"""No code of the library takes what a handler of a signal raises for a fault that it handles.

A handler of SIGALRM raises TimeoutError as a rule, which is an OSError, in the midst of any call.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3] / "shmnd"
ELSEWHERE: Final = ("broker/__main__.py", "broker/leftovers.py", "broker/service", "mpi/launcher")
"""Code of programs of the library's own, whose handlers raise nothing of the kind."""
CLAUSE: Final = re.compile(r"( *)except\b(.*):(?:\s*#.*)?$")
KINDS: Final = re.compile(r"\b(OSError|TimeoutError|ValueError|Exception)\b|^$")
COMPILED: Final = re.compile(r"\b(OSError|TimeoutError|Exception)\b|^$")
"""In compiled code no handler runs where it asks a buffer, which fails with ValueError."""
SUPPRESSES: Final = re.compile(
    r"\bsuppress\([^)]*\b(OSError|TimeoutError|Exception|ValueError|RuntimeError)\b"
)
DISTINGUISHES: Final = re.compile(
    r"\b(pass_on|is_interruption|refuse_closed)\(|^ *raise$", re.MULTILINE
)
FINAL: Final = {
    "common/exits.py": 1,
    "mpi/__main__.py": 1,
}
"""By file, the clauses of finalisers and of the end of a program: nothing takes an exception."""
SUPPRESS: Final = ["ipc/service/streaming.py", "ipc/service/streaming.py", "mpi/__main__.py"]
"""The end of a task has to go through, whatever the program's own code raises; and of a program."""
NOTIFIES_OTHERS: Final = {
    "ipc/service/turns.py": 2,
    "mpi/collectives/outcomes.py": 1,
    "mpi/files/file_state.py": 1,
    "mpi/files/pointers.py": 1,
    "mpi/futures/workers.py": 1,
    "mpi/one_sided/window.pyx": 2,
}
"""Those that have to tell another process, which waits, of whatever was raised."""


def files() -> Iterator[tuple[str, list[str]]]:
    """Return each file of the library, and its lines."""
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.pyx")]):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(ELSEWHERE):
            yield name, path.read_text(encoding="utf-8").splitlines()


def clauses() -> Iterator[tuple[str, str]]:
    """Return each clause that catches such an exception, and its body."""
    for name, lines in files():
        kinds = COMPILED if name.endswith(".pyx") else KINDS
        for number, line in enumerate(lines):
            found = CLAUSE.match(line)
            if found and kinds.search(found[2].strip()):
                yield (
                    f"{name}:{number + 1}: {found[2].strip()}",
                    body(lines[number + 1 :], found[1]),
                )


def body(lines: list[str], indent: str) -> str:
    """Return the lines that are indented more."""
    found = []
    for line in lines:
        if line.strip() and not line.startswith(f"{indent} "):
            break
        found.append(line)
    return "\n".join(found)


def test_every_clause_distinguishes_them() -> None:
    missing = [where for where, text in clauses() if not DISTINGUISHES.search(text)]
    known = FINAL | NOTIFIES_OTHERS
    found = Counter(where.partition(":")[0] for where in missing)
    assert found == known, "\n".join(missing)


def test_no_block_suppresses_them() -> None:
    """`shmnd.common.interruption.Ignoring` does not."""
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, lines in files()
        for number, line in enumerate(lines, 1)
        if SUPPRESSES.search(line)
    ]
    assert [each.partition(":")[0] for each in found] == SUPPRESS, "\n".join(found)
