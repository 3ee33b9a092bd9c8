# SPDX-License-Identifier: Apache-2.0
"""No documented status without a test, and no test name that means nothing."""

import ast
from collections import defaultdict
from pathlib import Path

from shmnd import Status
from spi.documented import cells
from spi.unprovoked import UNPROVOKED

HERE = Path(__file__).parent
INTERFACES = sorted({interface for interface, _, _ in cells()})


def _test_names(interface: str) -> list[str]:
    tree = ast.parse((HERE / f"test_{interface}.py").read_text())
    return [
        node.name.removeprefix("test_")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def _longest(name: str, words: set[str]) -> str:
    """The longest word that the name begins with, so that `query_into` is not `query`."""
    fitting = [word for word in words if name == word or name.startswith(word + "_")]
    return max(fitting, key=len, default="")


def provoked() -> dict[tuple[str, str, str], list[str]]:
    """Each (interface, method, status) with the tests whose names say they provoke it."""
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    spelled = {status.lower(): status for status in Status.__members__}
    for interface in INTERFACES:
        methods = {method for at, method, _ in cells() if at == interface}
        for name in _test_names(interface):
            method = _longest(name, methods)
            status = _longest(name.removeprefix(method).lstrip("_"), set(spelled))
            if method and status:
                found[interface, method, spelled[status]].append(f"test_{name}")
    return found


def test_every_documented_status_has_a_test_or_a_reason() -> None:
    empty = cells() - set(provoked()) - set(UNPROVOKED)
    assert not empty, sorted(empty)


def test_every_reason_stands_for_a_documented_status_without_a_test() -> None:
    assert not set(UNPROVOKED) - cells()
    assert not set(UNPROVOKED) & set(provoked())
    assert all(UNPROVOKED.values())
