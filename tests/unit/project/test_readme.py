# SPDX-License-Identifier: Apache-2.0
"""The programs of README.md and of the tutorial run in two processes, as the pages say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def consoles(page: Path) -> list[tuple[str, list[str]]]:
    """Each command of a page that is a program of the documents, with what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.S | re.M)
    found = []
    for block in blocks:
        command, *lines = block.splitlines()
        if command.startswith("$ .venv/bin/python docs/"):
            found.append((command.removeprefix("$ .venv/bin/python "), lines))
    return found


def in_terminal(command: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", *command.split()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_readme_shows_the_program_of_the_documents() -> None:
    shown = re.findall(
        r"^```python\n# (\w+\.py)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M
    )
    for name, text in shown:
        assert (DOCS / name).read_text().endswith(f'"""\n\n{text}')
    assert [name for name, _ in shown] == ["hello.py"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hello.py", "by_hand.py"])
def test_two_terminals_show_the_output_of_the_tutorial(name: str) -> None:
    (serve, served), (ask, asked) = [
        entry for entry in consoles(DOCS / "tutorial.md") if name in entry[0]
    ]
    with in_terminal(serve) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().rstrip() == served[0]
            with in_terminal(ask) as client:
                try:
                    printed, _ = client.communicate(timeout=20)
                finally:
                    client.kill()
            assert (client.returncode, printed.splitlines()) == (0, asked)
            printed, _ = server.communicate(timeout=20)
            assert (server.returncode, printed.splitlines()) == (0, served[1:])
        finally:
            server.kill()
