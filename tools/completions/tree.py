# SPDX-License-Identifier: Apache-2.0
"""What can be typed where: the commands with their options, read off the parsers themselves."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


class Takes(enum.Enum):
    """The value of an option."""

    NOTHING = enum.auto()
    WORD = enum.auto()
    """One of its words."""
    FILE = enum.auto()
    VALUE = enum.auto()
    """A value that no list contains: the user types it."""


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    names: tuple[str, ...]
    help: str
    takes: Takes
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command with what can follow it: `shmnd`, a noun, or a verb."""

    line: str
    """How it is called, as in `shmnd broker run`."""
    options: tuple[Option, ...]
    below: dict[str, str] = field(default_factory=dict)
    """The commands below it, each with its help."""
    operands: tuple[str, ...] = ()
    """Words that it takes as they are."""


def commands_of(parser: argparse.ArgumentParser) -> Iterator[Command]:
    """Go through a command and all below it."""
    options: list[Option] = []
    below: dict[str, str] = {}
    operands: tuple[str, ...] = ()
    parsers: list[argparse.ArgumentParser] = []
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = {each.dest: each.help or "" for each in action._choices_actions}
            parsers += action.choices.values()
        elif action.option_strings:
            text = formatter._expand_help(action) if action.help else ""
            options.append(Option(tuple(action.option_strings), text, *_taken(action)))
        else:
            operands += _words(action)
    yield Command(parser.prog, tuple(options), below, operands)
    for each in parsers:
        yield from commands_of(each)


def _taken(action: argparse.Action) -> tuple[Takes, tuple[str, ...]]:
    if action.nargs == 0:
        return Takes.NOTHING, ()
    if action.choices is not None:
        return Takes.WORD, _words(action)
    return (Takes.FILE if action.type is Path else Takes.VALUE), ()


def _words(action: argparse.Action) -> tuple[str, ...]:
    return tuple(str(each) for each in action.choices or ())
