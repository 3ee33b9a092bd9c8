# SPDX-License-Identifier: Apache-2.0
"""The page of environment variables names each variable that the sources read, and no other."""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from shmnd_tools.main import main
from shmnd_tools.verbs.info import VARIABLES

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "environment.md").read_text()

_READ: Final = re.compile(
    r"""environ(?:\.get\(|\[)f?"([A-Z][A-Z0-9_]*)  # a name in its place
    |(?:VARIABLE|variable)\b.*?=\ "([A-Z][A-Z0-9_]*)"  # or given to a constant
    |\$\{?(SHMND_[A-Z_]+|PYTHON)\b  # or in the shell
    """,
    re.X,
)
OF_OTHERS: Final = {"PWD", "PYTHONPATH"}
"""Variables that are not settings of this project."""


def read_by_the_sources() -> set[str]:
    """Return the names; one that is put together ends in an underscore."""
    files = [ROOT / "run"]
    for folder in ("shmnd", "tools", "bench"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".pyx"}]
    found = (_READ.findall(path.read_text()) for path in files)
    return {"".join(names) for each in found for names in each} - OF_OTHERS


def test_each_variable_is_on_the_page() -> None:
    read = read_by_the_sources()
    assert len(read) > 10
    assert {name for name in read if f"`{name}" not in PAGE} == set()


def test_the_page_names_no_other_variable() -> None:
    read = read_by_the_sources()
    prefixes = tuple(name for name in read if name.endswith("_"))
    named = set(re.findall(r"`((?:SHMND|MPI4PY|NO|XDG)_[A-Z0-9_]+)`", PAGE))
    assert {name for name in named - read if not name.startswith(prefixes)} == set()


def test_info_prints_each_variable_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", "64M")
    assert main(["info", "--config"]) == 0
    rows = dict(re.split(r" {2,}", line) for line in capsys.readouterr().out.splitlines())
    assert set(VARIABLES) <= set(rows)
    assert rows["SHMND_MEMORY_LIMIT"] == "64M"
    assert rows["memory limit"] == f"{64 << 20} bytes"
    assert tuple(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.M)) == VARIABLES


def test_info_prints_the_variables_where_no_directory_can_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "file" / "below"))
    monkeypatch.delenv("SHMND_MEMORY_LIMIT", raising=False)
    monkeypatch.setenv("NO_COLOR", "(not set)")
    assert main(["info", "--config", "--namespace", "here", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["runtime_directory"] == str(tmp_path / "file" / "below" / "here")
    assert (facts["SHMND_MEMORY_LIMIT"], facts["memory_limit"]) == (None, None)
    assert facts["NO_COLOR"] == "(not set)"  # a value, which the variable may have

    monkeypatch.setenv("SHMND_RUNTIME_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", "64M")
    assert main(["info", "--config", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory_limit"] == 64 << 20
    assert not (tmp_path / "new").exists()
