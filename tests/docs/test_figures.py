# SPDX-License-Identifier: Apache-2.0
"""Figures in the pages are those of the report that is there."""

from pathlib import Path

import pytest

from docs.figures import REPORT, ROOT, looked_up, pages, renewed

TABLES = """
### Every figure

| question | subject | median (least..greatest) |  | ÷ shmnd |
| --- | --- | --- | --- | --- |
| 8 B stream | shmnd | 7.35 (6.42..7.41) | M/s |  |

## Latency over size

| subject | 8 B | 64 B |
| --- | --- | --- |
| shmnd | 0.251 | 0.312 |

| what | subject | t_min[usec] | 99% |
| --- | --- | --- | --- |
| 40 B Read | shmnd | 0.213 | 0.342 |
"""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_the_figures_of_the_report(page: Path) -> None:
    text = page.read_text()
    assert renewed(text, REPORT.read_text()) == text, "cd tests && python -m docs.figures"


def test_a_figure_is_found_by_its_name() -> None:
    assert looked_up("8 B stream; shmnd", TABLES) == ("7.35", "M/s")
    assert looked_up("Latency over size; shmnd; 64 B", TABLES) == ("0.312", "")
    assert looked_up("40 B Read; shmnd; 99%", TABLES) == ("0.342", "")
    for name in ("8 B stream; other", "Latency over size; shmnd; 9 B", "40 B Read; shmnd"):
        with pytest.raises(KeyError):
            looked_up(name, TABLES)


def test_an_old_figure_is_renewed_and_another_unit_is_seen() -> None:
    page = "takes 1,234.5 M/s<!-- figure: 8 B stream; shmnd --> and 7 things\n"
    assert renewed(page, TABLES) == page.replace("1,234.5", "7.35")
    with pytest.raises(ValueError, match="is in M/s"):
        renewed(page.replace("M/s", "k/s"), TABLES)


def test_a_whole_table_is_renewed() -> None:
    rows = "| | 64 B |\n| --- | --- |\n| shmnd | 9 |\n| other | 9 |\n"
    page = f"<!-- table: Latency over size -->\n\n{rows}\nand 9\n"
    new = page.replace("shmnd | 9 |", "shmnd | 0.312 |").replace("other | 9 |", "other | – |")
    assert renewed(page, TABLES) == new


def test_an_optional_figure_is_a_dash_until_a_report_has_it() -> None:
    page = "| –<!-- optional figure: 8 B stream; {} --> | 7 |\n"
    assert renewed(page.format("shmnd"), TABLES) == page.format("shmnd").replace("–", "7.35")
    assert renewed(page.format("other"), TABLES) == page.format("other")
    old = page.format("other").replace("–", "3.1")
    assert renewed(old, TABLES) == page.format("other")
