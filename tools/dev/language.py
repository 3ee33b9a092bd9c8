# SPDX-License-Identifier: Apache-2.0
"""The language check of `./run lint`: wording that the project replaces by plain technical English.

`PATTERNS` holds the wording to avoid and what to write instead, and `TEST_NAMES` the words to avoid
in the names of test functions. `language.toml` next to this file holds the phrases that are
allowed, and for each folder the number of matches that it had when the check was last tightened. A
folder that exceeds its number fails the check; a folder without a number must have none. `--update`
lowers the numbers to the present counts and never raises one.
"""

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SETTINGS: Final = Path(__file__).with_suffix(".toml")
FOLDERS: Final = ("shmnd", "tools", "bench", "docs", "tests", ".ci")
KINDS: Final = frozenset({".py", ".pyi", ".pyx", ".pxd", ".h", ".md", ".svg", ".toml"})
SKIPPED: Final = frozenset({"tools/dev/language.py", "tests/unit/project/test_language.py"})
"""Files that quote the patterns."""

BE: Final = "(?:is|are|was|were|be|been|being)"
PATTERNS: Final = {
    "nobody": (
        r"(?:nobody|whoever|somebody|anybody|everybody|whosoever|whom)",
        "name the peer, the waiter, the sender",
    ),
    "told": (rf"{BE} (?:not )?told|told of", "receives, learns, is notified"),
    "is no": (
        rf"(?P<allowed>t?here )?{BE} no (?!(?:longer|more|less|such|one|sooner|way|room)\b)[a-z(]+",
        "is not a",
    ),
    "goes on": (r"(?:go|goes|went|going|gone) on", "continues, makes progress"),
    "give": (r'"""(?:Give|Tell|Say|See|Hear|Look|Hand)s?', "Return, Raise, Report"),
    "what is": (
        r"what (?:is|are|was|were|has|have|had|does|did|stays|comes|came|lies|stands|counts)",
        "name the thing",
    ),
    "look": (
        r"look(?:s|ed|ing)? (?:at|again|around|once|after|here|there|first)",
        "poll, check, read",
    ),
    "liar": (r"liars?|that (?:lies|lie|lied)", "hostile peer, malformed"),
    "who": (r"who (?:looks|waits|rings|sees|asks|writes|sends|holds|polls)", "name the subject"),
    "beside": (r"beside(?!\.py|[(:'\"])", "next to, in addition to, besides"),
}
"""For each pattern what it matches, as whole words and in either case, and what to write. A match
whose group `allowed` took part does not count."""

TEST_NAME: Final = "test name"
TEST_NAME_ADVICE: Final = "name the subject (a peer, a thread); is reported, continues, is invalid"
TEST_NAMES: Final = re.compile(
    r"\bdef (?P<name>test_(?:\w+_)?"
    r"(?:nobodys?|somebody|anybody|everybody|whoever|whom|told|goes_on|go_on|what_is_no)(?:_\w+)?)\b"
)
"""Test functions whose names contain words that `PATTERNS` replaces in prose."""

_SPACE: Final = r"(?:[ ]|[ \t]*\n[ \t]*(?:#:?[ ]|\*[ ]|//[ ])?)"
"""What a space of a pattern matches: also a line break, in a comment with the mark of the next."""
_COMPILED: Final = {
    name: re.compile(rf"(?<![\w./]){source.replace(' ', _SPACE)}(?![\w/])", re.IGNORECASE)
    for name, (source, _) in PATTERNS.items()
}


@dataclass(frozen=True)
class Match:
    """One place where a pattern was found."""

    path: str
    line: int
    pattern: str
    text: str

    @property
    def folder(self) -> str:
        """The folder whose number it counts against."""
        return str(Path(self.path).parent)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r} ({self.pattern}: {self.advice})"

    @property
    def advice(self) -> str:
        """Wording to use instead."""
        return TEST_NAME_ADVICE if self.pattern == TEST_NAME else PATTERNS[self.pattern][1]


def sources(root: Path) -> Iterator[Path]:
    """Return the files to check, generated ones left out."""
    yield from sorted(root.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in KINDS and str(path.relative_to(root)) not in SKIPPED:
                yield path


def matches(path: str, text: str, allowed: tuple[str, ...] = ()) -> Iterator[Match]:
    """Return the matches in one text, also those that a line break divides."""
    for phrase in allowed:
        text = text.replace(phrase, " " * len(phrase))
    for name, pattern in _COMPILED.items():
        for found in pattern.finditer(text):
            if not found.groupdict().get("allowed"):
                number = text.count("\n", 0, found.start()) + 1
                yield Match(path, number, name, " ".join(found[0].split()))
    for found in TEST_NAMES.finditer(text) if path.endswith(".py") else ():
        yield Match(path, text.count("\n", 0, found.start()) + 1, TEST_NAME, found["name"])


def check(root: Path, allowed: tuple[str, ...]) -> list[Match]:
    """Return all matches below a folder."""
    return [
        match
        for path in sources(root)
        for match in matches(str(path.relative_to(root)), path.read_text(), allowed)
    ]


def settings() -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the allowed phrases and the number of each folder."""
    stored = tomllib.loads(SETTINGS.read_text())
    return tuple(stored["allowed"]), dict(stored["folders"])


def write_numbers(numbers: dict[str, int]) -> None:
    """Replace the numbers in the settings; all that stands before them is kept."""
    head = SETTINGS.read_text().partition("[folders]\n")[0]
    lines = [f'"{folder}" = {number}\n' for folder, number in sorted(numbers.items()) if number]
    SETTINGS.write_text(head + "[folders]\n" + "".join(lines))


def main(arguments: list[str]) -> int:
    """Print the matches of each folder that has too many; return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="./run lint language", description=__doc__)
    parser.add_argument("--update", action="store_true", help="lower the numbers to the counts")
    parser.add_argument("--all", action="store_true", help="print every match")
    parser.add_argument("--count", action="store_true", help="print a table by folder and pattern")
    options = parser.parse_args(arguments)
    allowed, numbers = settings()
    found = check(ROOT, allowed)
    counts = Counter(match.folder for match in found)
    exceeded = {folder for folder, count in counts.items() if count > numbers.get(folder, 0)}
    if options.count:
        table = Counter((match.folder, match.pattern) for match in found)
        for (folder, pattern), count in sorted(table.items()):
            print(f"{folder:<24} {pattern:<10} {count:>5}")
        print(f"{'total':<24} {'':<10} {len(found):>5}")
    for match in found:
        if options.all or (match.folder in exceeded and not options.count):
            print(match)
    for folder in sorted(exceeded if not options.count else ()):
        print(f"language: {folder}: {counts[folder]} matches, {numbers.get(folder, 0)} allowed")
    if options.update:
        write_numbers({folder: min(limit, counts[folder]) for folder, limit in numbers.items()})
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
