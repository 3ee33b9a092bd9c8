# SPDX-License-Identifier: Apache-2.0
"""Commands that the pages name exist, with the options that stand there; no block goes untested."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shmnd_tools.commands import whole_parser

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_CONSOLE: Final = re.compile(r"^```console\n(.*?)^```$", re.S | re.M)


def commands(page: Path) -> set[str]:
    """Return the shell commands of a page: lines behind a prompt, and text in backticks."""
    text = page.read_text()
    typed = [
        line[2:]
        for block in _CONSOLE.findall(text)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    return {*typed, *re.findall(r"`((?:shmnd|\./run) [^`\n]+)`", text)}


def every_page(test: object) -> object:
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))(
        test
    )


def test_pages_have_commands_of_each_kind() -> None:
    found = {command.split()[0] for page in PAGES for command in commands(page)}
    assert {"shmnd", "./run"} <= found


@every_page
def test_every_command_is_one(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(page):
        if not command.startswith("shmnd ") or page.name == "report.md":
            continue  # there these are the names of measurements
        words = command.split()[1:]
        if words[0] == "mpiexec":
            words = words[:1]  # the words behind it are those of a program
        named = [word for word in words if re.fullmatch(r"[a-z-]*[a-z]", word) and word[0] != "-"]
        with pytest.raises(SystemExit) as left:
            whole_parser().parse_args([*named[:2], "--help"])
        described = capsys.readouterr().out
        assert left.value.code == 0, command
        for option in re.findall(r"(?<=[\s\[])--[a-z-]+", command):
            assert re.search(rf"(?<![\w-]){option}\b", described), f"{option} of {command}"


@every_page
def test_every_task_is_one(page: Path) -> None:
    usage = (ROOT / "run").read_text().partition("TEXT")[2].partition("TEXT")[0]
    tasks = set(re.findall(r"^  ([\w-]+)(?: |$)", usage, re.M))
    for command in commands(page):
        if command.startswith("./run "):
            assert command.split()[1] in {*tasks, "<task>"}, command


@every_page
def test_every_block_is_of_a_kind_that_something_checks(page: Path) -> None:
    """Python and C run or are compared, commands are looked up, the reference is built.

    The Cython of the page about compiled modules is compiled by tests/compiled.
    """

    def kinds(text: str) -> Iterator[str]:
        inside = False
        for line in text.splitlines():
            if line.startswith("```"):
                if not inside:
                    yield line.removeprefix("```")
                inside = not inside

    checked = {"python", "console", "text", "{eval-rst}"}
    if page.parent.name == "design":
        checked.add("c")
    if page.name == "native.md":
        checked.add("cython")
    assert set(kinds(page.read_text())) <= checked


def test_a_command_that_is_none_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`shmnd dance` and\n```console\n$ ./run away\n```\n")
    assert commands(page) == {"shmnd dance", "./run away"}
    with pytest.raises(SystemExit) as left:
        whole_parser().parse_args(["dance", "--help"])
    assert left.value.code == 2
