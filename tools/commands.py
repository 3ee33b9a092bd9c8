# SPDX-License-Identifier: Apache-2.0
"""The commands, and the parser of each.

A verb is a module with `HELP`, an `EXAMPLE` of its use, `configure(parser)` and `run(args) -> int`;
where the exit code 1 has a meaning, `FAILURE` describes it. Only the chosen verb is imported, so
that a command about the broker does not load the data plane.
"""

import argparse
import difflib
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from shmnd import __version__, command_line

from .output import add_namespace

_NOUNS: Final[Mapping[str, tuple[str, Callable[[], Mapping[str, str]]]]] = {
    "address": (
        "list the addresses of this host",
        lambda: {"list": "shmnd_tools.verbs.address_list"},
    ),
    "bench": ("measure latency and bandwidth, also of other transports", lambda: _bench_verbs()),
    "broker": (
        "run, inspect or stop the broker, by which processes find each other",
        lambda: {verb: f"shmnd_tools.verbs.broker_{verb}" for verb in ("run", "status", "stop")},
    ),
    "ipc": (
        "list topics, services, events, blackboards and queues; print, record and replay topics",
        lambda: _ipc_verbs(),
    ),
}
_PLAIN: Final = {
    "clean": (
        "remove files that crashed processes and brokers left behind",
        "shmnd_tools.verbs.clean",
    ),
    "completion": (
        "print a script for the completion of commands and options in a shell",
        "shmnd_tools.verbs.completion",
    ),
    "doctor": (
        "check the set-up of this machine, and name the remedies",
        "shmnd_tools.verbs.doctor",
    ),
    "info": ("show the limits of the adapter, and the paths in use", "shmnd_tools.verbs.info"),
    "mpiexec": (
        "run a program written for mpi4py as N ranks on this host",
        "shmnd_tools.verbs.mpiexec",
    ),
    "ps": ("list processes and connections, and the cause of each wait", "shmnd_tools.verbs.ps"),
    "top": (
        "show messages and bytes per second of every connection, live",
        "shmnd_tools.verbs.top",
    ),
    "trace": ("print the events of connections as they occur", "shmnd_tools.verbs.trace"),
}
"""Nouns that need no verb."""

_USUAL_VERB: Final = {"address": "list", "broker": "run"}
_EXAMPLES: Final = {
    "address": "shmnd address list",
    "bench": "shmnd bench pingpong",
    "broker": "shmnd broker status",
    "ipc": "shmnd ipc list",
}
_ALONE: Final = ("broker", "bench", "ipc")
"""Nouns that print their help where nothing follows."""
_LIKE_MOST: Final = ("--format", "--namespace", "--group")
"""Options of nearly every verb, which may stand before the noun too."""

_READERS: Final = {"--namespace": command_line.namespace, "--group": command_line.group}
"""Readers of the options that every verb has, whichever module adds them."""

_NEAR: Final = 0.7
"""How much of a word must be right for another to be named: 'rate' is not a mistyped 'format'."""

_OPTION: Final = re.compile(r"--?[A-Za-z][^ ]*$|--[^ ]+$")
"""An option as it is written. A word with a space is none, nor a negative number."""

_FAILURE: Final = "the command failed; the reason is on stderr"


def _bench_verbs() -> Mapping[str, str]:
    from shmnd_bench import COMMANDS

    verbs: Mapping[str, str] = COMMANDS
    return verbs


def _ipc_verbs() -> Mapping[str, str]:
    from .ipc import VERBS

    return VERBS


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, with the nearest valid word; `--help` has the rest.

    Options are not shortened: `--for`, an option of some verbs, would be read as `--format` by the
    others.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; an option that is none of this command ends the program here."""
        given = list(sys.argv[1:] if args is None else args)
        behind = given.index("--") if "--" in given else len(given)
        for word in given[:behind] if self._subparsers is None else ():
            name = word.partition("=")[0]
            # First: its value may be taken for a word.
            if _OPTION.match(word) and not {name, word[:2]} & self._option_string_actions.keys():
                self._refuse(name)
        found, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            self._refuse(word.partition("=")[0])
        return found, unknown

    def _refuse(self, word: str) -> NoReturn:
        if word in self._option_string_actions:
            self.error(f"{word!r} stands behind --, where no word is an option")
        kind = "an option" if word.startswith("-") else "expected"
        near = _nearest(word, self._option_string_actions) or "; --help lists the options"
        self.error(f"{word!r} is not {kind} here{near}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        words = [str(each) for each in action.choices or ()]
        if words and value not in words:
            near = _nearest(str(value), words) or f"; it is one of {', '.join(words)}"
            raise argparse.ArgumentError(action, f"{value!r} is not known{near}")

    def error(self, message: str) -> NoReturn:
        """End with the exit code of a wrong command."""
        self.exit(2, f"{self.prog}: {message}\n")


def _nearest(word: str, words: Iterable[str]) -> str:
    """Return a hint with the word that was probably meant, if one is near, ignoring dashes."""
    bare = {each.lstrip("-"): each for each in words}
    found = difflib.get_close_matches(word.lstrip("-"), bare, 1, _NEAR)
    letters = [each for each in bare if len(each) == 1 and each != "h"]
    if re.fullmatch("-[a-z]", word) and not letters:  # a command whose options have none
        found = [each for each in bare if each.startswith(word[1])]
    return f", did you mean {bare[found[0]]!r}?" if len(found) == 1 else ""


def in_order(given: Sequence[str]) -> list[str]:
    """Return a command in the order of its parser: options before the noun are moved behind it.

    A noun without its verb gets its usual verb, or prints its help.
    """
    before: list[str] = []
    rest = list(given)
    while rest and rest[0].partition("=")[0] in _LIKE_MOST:
        take = 1 if "=" in rest[0] else 2
        before, rest = before + rest[:take], rest[take:]
    if not rest and not before:
        return ["--help"]
    if len(rest) == 1 and rest[0] in _ALONE:
        return [*rest, "--help"]
    if rest and rest[0] in _USUAL_VERB:
        follows = rest[1] if rest[1:] else "-"
        if follows.startswith("-") and follows not in ("-h", "--help"):
            rest.insert(1, _USUAL_VERB[rest[0]])
    if rest[:1] == ["mpiexec"]:  # its line ends with one of another program
        return [*rest[:1], *before, *rest[1:]]
    return rest + before


def parser_of(wanted: str | None) -> Parser:
    """Return the parser of the whole command, in which the noun that is wanted has its options."""
    return _parser(lambda noun: noun == wanted)


def whole_parser() -> Parser:
    """Return the parser with all nouns, verbs and options. It imports everything."""
    return _parser(lambda _: True)


def _parser(full: Callable[[str], bool]) -> Parser:
    parser = Parser(
        prog="shmnd", description="A NetworkDirect provider between the processes of one host."
    )
    _add_example(parser, "shmnd info --format json")
    parser.add_argument("--version", action="version", version=f"shmnd {__version__}")
    nouns = parser.add_subparsers(metavar="noun", required=True)
    for noun, (text, verbs) in _NOUNS.items():
        below = nouns.add_parser(noun, help=text, description=text)
        _add_example(below, _EXAMPLES[noun])
        if full(noun):
            _add_verbs(below, verbs())
    for noun, (text, module) in _PLAIN.items():
        below = nouns.add_parser(noun, help=text, description=text)
        if full(noun):
            _add_options(below, module)
    return parser


def _add_example(parser: argparse.ArgumentParser, example: str) -> None:
    parser.epilog = f"example:\n  {example}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _add_verbs(parser: argparse.ArgumentParser, verbs: Mapping[str, str]) -> None:
    below = parser.add_subparsers(metavar="verb", required=True)
    for verb, name in verbs.items():
        text = importlib.import_module(name).HELP
        _add_options(below.add_parser(verb, help=text, description=text), name)


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    module = importlib.import_module(name)
    module.configure(parser)
    if "--namespace" not in parser._option_string_actions:
        add_namespace(parser, "namespace to use")
    if "--group" not in parser._option_string_actions:
        parser.add_argument(
            "--group", help="use the namespace of this group (default: SHMND_GROUP, or none)"
        )
    for option, read in _READERS.items():
        parser._option_string_actions[option].type = read
    codes = {
        0: "success",
        1: getattr(module, "FAILURE", _FAILURE),
        2: "the command or an option is wrong",
        130: "ended by Ctrl-C",
    } | getattr(module, "MORE_CODES", {})
    _add_example(parser, module.EXAMPLE)
    lines = "\n".join(f"  {code:<5}{meaning}" for code, meaning in sorted(codes.items()))
    parser.epilog = f"{parser.epilog}\n\nexit codes:\n{lines}"
    parser.set_defaults(run=module.run)
