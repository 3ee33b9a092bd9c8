# SPDX-License-Identifier: Apache-2.0
"""Scripts by which a shell completes the commands, written from the parsers.

A script holds everything, so that pressing the key starts no Python.
"""

import argparse

from ..commands import whole_parser
from ..completions.scripts import SCRIPTS
from ..completions.tree import commands_of

HELP = "the script by which a shell completes shmnd's commands and options"
EXAMPLE = "shmnd completion bash"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="which shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(SCRIPTS[args.shell]([*commands_of(whole_parser())]), end="")
    return 0
