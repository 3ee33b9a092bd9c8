# SPDX-License-Identifier: Apache-2.0
"""Scripts by which a shell completes the commands, written from the parsers.

A script holds everything, so that pressing the key starts no Python.
"""

import argparse

from ..commands import whole_parser
from ..completions.scripts import SCRIPTS
from ..completions.tree import commands_of

HELP = "print a script for the completion of commands and options in a shell"
EXAMPLE = "shmnd completion bash"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(SCRIPTS[args.shell]([*commands_of(whole_parser())]), end="")
    return 0
