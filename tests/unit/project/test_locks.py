# SPDX-License-Identifier: Apache-2.0
"""Locks are entered by `Held` and its kin.

By `with lock:` itself, a handler of a signal that raises can leave a lock taken (`held.pyx`).
"""

import ast
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[3] / "shmnd"

SOURCES: Final = sorted(PACKAGE.rglob("*.py"))

NO_LOCKS: Final = {
    ("broker/observer.py", "sock"),
    ("broker/spawn.py", "process"),
    ("handshake/attempt.py", "view"),
    ("ipc/naming/shared_name.py", "taken"),
    ("mpi/launcher/processes.py", "rank.process"),
}
"""Names that are entered as they are: of files and processes."""


def test_the_sources_were_found() -> None:
    assert len(SOURCES) > 200


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_lock_is_entered_as_it_is(path: Path) -> None:
    entered = {
        ast.unparse(item.context_expr)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.With | ast.AsyncWith)
        for item in node.items
        if not isinstance(item.context_expr, ast.Call)
    }
    here = str(path.relative_to(PACKAGE))
    known = {name for file, name in NO_LOCKS if file == here}
    assert {name for name in entered if "Held(" not in name} == known
