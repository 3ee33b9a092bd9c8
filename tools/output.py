# SPDX-License-Identifier: Apache-2.0
"""The two forms in which every verb can print what it found."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shmnd.broker.observer import as_words
from shmnd_bench.report.table import encodable, render

from .values import how_many, seconds

_USUAL_WIDTH: Final = 80


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the form."""
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="format of the output"
    )


def add_namespace(parser: argparse.ArgumentParser, purpose: str = "namespace to observe") -> None:
    """Add the option that chooses the namespace; without it every command has a plain one."""
    parser.add_argument(
        "--namespace", help=f"{purpose} (default: SHMND_NAMESPACE, or the default namespace)"
    )


def add_repetition(parser: argparse.ArgumentParser) -> None:
    """Add the options of a table that is shown again and again."""
    parser.add_argument(
        "--interval",
        type=seconds(0.01, 3600),
        default=1.0,
        metavar="SECONDS",
        help="time between two tables (default 1)",
    )
    parser.add_argument(
        "--count",
        type=how_many,
        metavar="N",
        help="end after N tables (default: run until Ctrl-C)",
    )


def show_facts(args: argparse.Namespace, facts: Mapping[str, Any]) -> None:
    """Print named values. Names in capitals are those of the interface, and stay as they are."""
    if args.format == "json":
        print(json.dumps(facts, indent=1))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        words = name if name.isupper() else name.replace("_", " ")
        print(f"{words:{width}}  {printable(as_words(value))}")


def show_rows(args: argparse.Namespace, rows: Sequence[Mapping[str, Any]], *names: str) -> None:
    """Print things of one kind, one row each."""
    if args.format == "json":
        print(json.dumps(rows, indent=1))
        return
    headings = [name.replace("_", " ") for name in names]
    print(headed(headings, [[printable(str(row[name])) for name in names] for row in rows]))


def headed(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the text of a table with long texts whole; its heading fits into the terminal."""
    heading, ruler, *lines = render(headings, rows).splitlines()
    return "\n".join((fitted(heading), fitted(ruler), *lines))


def fitted(line: str) -> str:
    """Return a line, cut to the width of the terminal if the output is one."""
    if not sys.stdout.isatty() or len(line) <= (width := _width()):
        return line
    mark = "…" if encodable("…") == "…" else "~"
    return f"{line[: width - 1]}{mark}"


def _width() -> int:
    """Return the columns of the terminal; COLUMNS takes precedence, as in other programs."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return int(given)
    return os.get_terminal_size().columns or _USUAL_WIDTH  # some say 0


def printable(text: str) -> str:
    """Return a text without what would move the cursor, or begin a line."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
