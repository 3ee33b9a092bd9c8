# SPDX-License-Identifier: Apache-2.0
"""Output on narrow terminals, and options that are not shortened."""

import io
import itertools
import os
import time

import pytest

from shmnd import open_adapter
from shmnd_tools.checks.finding import Finding, Level
from shmnd_tools.commands import whole_parser
from shmnd_tools.main import main
from shmnd_tools.output import fitted, headed
from shmnd_tools.verbs import doctor

WIDTHS = pytest.mark.parametrize("width", [40, 60, 80])


def narrow(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the output be a terminal of this width."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")


@WIDTHS
def test_the_heading_of_findings_fits_and_the_findings_stay_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow(width, monkeypatch)
    long = "x" * 100
    findings = [Finding("one", Level.WARNING, long, long, long), Finding("two", Level.OK, "fine")]
    monkeypatch.setattr(doctor, "examine", lambda *_: findings)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("level")
    assert max(map(len, lines[:2])) <= width
    assert lines[1].endswith("…")
    assert not any("…" in line for line in lines[2:])
    assert sum(line.endswith(long) for line in lines) == 4
    assert headed(["what"], [["x" * 100]]).splitlines()[2] == "x" * 100


@WIDTHS
def test_all_lines_of_the_rates_fit(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow(width, monkeypatch)
    with open_adapter() as adapter:
        queue = adapter.create_completion_queue(64)
        pairs = [adapter.create_queue_pair(queue, queue) for _ in range(3)]
        monkeypatch.setattr(time, "sleep", lambda _: None)
        assert main(["top", "--count", "1", "--interval", "0.01"]) == 0
        shown = capsys.readouterr().out.removeprefix("\x1b[H\x1b[2J").splitlines()
        assert max(map(len, shown)) <= width
        assert len(shown) >= 4 + len(pairs)


@WIDTHS
def test_a_line_that_fits_is_as_it_was(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(width, monkeypatch)
    assert fitted("x" * width) == "x" * width
    assert fitted("x" * (width + 1)) == "x" * (width - 1) + "…"


def test_columns_are_aligned_where_the_output_cannot_encode_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with io.TextIOWrapper(io.BytesIO(), "ascii") as output:
        monkeypatch.setattr("sys.stdout", output)
        table = headed(["name", "type"], [["kamera-ü", "f8"], ["x", "µ"]])
    heading, ruler, *rows = table.splitlines()
    assert rows == ["kamera-\\xfc  f8", "x            \\xb5"]
    assert heading.index("type") == ruler.rindex(" ") + 1 == rows[0].index("f8")


def test_a_cut_line_fits_where_the_output_cannot_encode_its_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow(40, monkeypatch)
    with io.TextIOWrapper(io.BytesIO(), "ascii") as output:
        monkeypatch.setattr("sys.stdout", output)
        monkeypatch.setattr(output, "isatty", lambda: True)
        cut = fitted("x" * 41)
    assert cut == "x" * 39 + "~"


@pytest.mark.parametrize("word", ["--for", "--form", "--f"])
def test_a_shortened_option_is_none(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What one verb calls --for would be the --format of another one."""
    with pytest.raises(SystemExit) as caught:
        main(["ipc", "rate", word, "5"])
    assert caught.value.code == 2
    assert f"'{word}' is not an option here" in capsys.readouterr().err


def test_no_parser_takes_shortened_options() -> None:
    parsers = [whole_parser()]
    for parser in parsers:
        assert not parser.allow_abbrev
        groups = parser._subparsers._group_actions if parser._subparsers else []
        parsers += itertools.chain.from_iterable(dict(each.choices).values() for each in groups)
    assert len(parsers) > 30
