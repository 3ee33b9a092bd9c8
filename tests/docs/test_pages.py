# SPDX-License-Identifier: Apache-2.0
"""What the pages show runs, and where they point there is something."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])

_BLOCK: Final = re.compile(
    r"(?:<!-- fragment:[ ]*(.*?)[ ]*-->\n+)?^```python\n(.*?)^```$", re.S | re.M
)
_CODE: Final = re.compile(r"^```.*?^```$|`[^`\n]*`", re.S | re.M)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NEEDS: Final = re.compile(r"^<!-- needs: (.*?) -->$", re.M)
_HEADING: Final = re.compile(r"^#+ +(.+?) *$", re.M)


def program(text: str) -> str:
    """All blocks of a page in their order, without those that say why they are fragments."""
    return "\n".join(block for reason, block in _BLOCK.findall(text) if not reason)


def anchors(page: Path) -> set[str]:
    """The names that headings get, as usual for Markdown on the web."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(_CODE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            yield target


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_the_index_leads_to_everything() -> None:
    led = {(DOCS / link).resolve() for link in links(DOCS / "index.md")}
    there = {*PAGES, *(DOCS / "examples").glob("*.py")} - {DOCS / "index.md"}
    assert {str(path.relative_to(ROOT)) for path in there - led} == set()


def test_a_broken_link_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A head\n[a](#a-head) [b](#no-head) [c](none.md) [d](https://example.org)\n")
    assert broken(page) == ["#no-head", "none.md"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.is_relative_to(DOCS) and program(page.read_text())],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    for found in _NEEDS.findall(page.read_text()):
        for module in found.split(", "):
            # Not imported here: some of them start threads, or keep descriptors.
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"the page shows {module}, which is not installed")
    script = tmp_path / "page.py"  # a file, since processes of multiprocessing import it
    script.write_text(program(page.read_text()))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fragment_is_left_out_only_with_a_reason() -> None:
    text = "<!-- fragment: why -->\n```python\na\n```\n<!-- fragment: -->\n```python\nb\n```\n"
    assert program(text) == "b\n"
