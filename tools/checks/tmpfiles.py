# SPDX-License-Identifier: Apache-2.0
"""The age limit of files in a folder, by the rules of systemd-tmpfiles (tmpfiles.d)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from .finding import Host

_FOLDERS: Final = (
    *("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d"),
)
"""The first that has a file of a name decides; the others' files of that name do not count."""
_FOLDER: Final = frozenset("dDevqQ")
"""Kinds of lines about a folder, whose contents they clean if they say an age."""
_PROTECT: Final = "x"


class Rule(NamedTuple):
    """A line about a folder, or one that protects something."""

    kind: str
    path: str
    age: str
    """Empty where nothing ages."""
    source: Path


def rule_of(host: Host, path: PurePosixPath) -> Rule | None:
    """Return the rule that removes `path` when old; None if there is none, or one protects it."""
    above = [str(each) for each in (path, *path.parents)]
    first: dict[str, Rule] = {}
    for rule in _rules(host):
        if any(fnmatchcase(each, rule.path) for each in above):
            if rule.kind == _PROTECT:
                return None
            first.setdefault(rule.path, rule)  # of two lines about one path the first counts
    aging = [rule for rule in first.values() if rule.age]
    return max(aging, key=lambda rule: len(rule.path), default=None)


def _rules(host: Host) -> Iterator[Rule]:
    for source in _sources(host):
        for line in source.read_text(errors="replace").splitlines():
            rule = _rule(line, source)
            if rule is not None:
                yield rule


def _sources(host: Host) -> list[Path]:
    found: dict[str, Path] = {}
    for folder in _FOLDERS:
        for source in host.path(folder).glob("*.conf"):
            found.setdefault(source.name, source)
    # A link to /dev/null is not a file: it takes its namesakes out.
    return [found[name] for name in sorted(found) if found[name].is_file()]


def _rule(line: str, source: Path) -> Rule | None:
    try:
        fields = shlex.split(line, comments=True)
    except ValueError:
        return None  # systemd-tmpfiles passes over what it cannot read, too
    # A line with ! is for the start of the machine, where nothing of ours lives yet.
    if len(fields) < 2 or "!" in fields[0] or "%" in fields[1]:
        return None
    kind = fields[0][0]
    if kind not in _FOLDER and kind != _PROTECT:
        return None
    age = fields[5].lstrip("~") if len(fields) > 5 and fields[5] != "-" else ""
    return Rule(kind, fields[1], age, source)
