# SPDX-License-Identifier: Apache-2.0
"""Finds the module of a verb, reads the options, and turns errors into one line.

A verb is a module with `HELP`, `configure(parser)` and `run(args) -> int`. Only the one that is
wanted gets imported, so that a look at the broker does not load the data plane.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from shmnd import NdError, __version__

_NOUNS: Final[Mapping[str, tuple[str, Callable[[], Mapping[str, str]]]]] = {
    "address": ("the addresses of this host", lambda: {"list": "shmnd_tools.address_list"}),
    "bench": ("latency and bandwidth, also beside other transports", lambda: _bench_verbs()),
    "broker": (
        "the process through which others find each other",
        lambda: {verb: f"shmnd_tools.broker_{verb}" for verb in ("run", "status", "stop")},
    ),
}
_PLAIN: Final = {"clean": "shmnd_tools.clean", "info": "shmnd_tools.info"}
"""Nouns that need no verb."""

_PLAIN_HELP: Final = {
    "clean": "remove what crashed processes and brokers left behind",
    "info": "what the adapter can do, and where things are",
}


def _bench_verbs() -> Mapping[str, str]:
    from shmnd_bench import COMMANDS

    verbs: Mapping[str, str] = COMMANDS
    return verbs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; give its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        args = _parser(given).parse_args(given)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has seen enough. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except (NdError, OSError, ImportError) as exc:
        print(f"shmnd: {exc}", file=sys.stderr)
        return 1


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; `--help` has the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="shmnd", description="A NetworkDirect provider between the processes of one host."
    )
    parser.add_argument("--version", action="version", version=f"shmnd {__version__}")
    nouns = parser.add_subparsers(metavar="noun", required=True)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for noun, (text, verbs) in _NOUNS.items():
        below = nouns.add_parser(noun, help=text, description=text)
        if noun == wanted:
            _add_verbs(below, verbs())
    for noun, module in _PLAIN.items():
        below = nouns.add_parser(noun, help=_PLAIN_HELP[noun], description=_PLAIN_HELP[noun])
        if noun == wanted:
            _add_options(below, module)
    return parser


def _add_verbs(parser: argparse.ArgumentParser, verbs: Mapping[str, str]) -> None:
    below = parser.add_subparsers(metavar="verb", required=True)
    for verb, name in verbs.items():
        text = importlib.import_module(name).HELP
        _add_options(below.add_parser(verb, help=text, description=text), name)


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    module = importlib.import_module(name)
    module.configure(parser)
    parser.set_defaults(run=module.run)


if __name__ == "__main__":
    sys.exit(main())
