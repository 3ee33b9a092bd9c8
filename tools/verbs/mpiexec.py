# SPDX-License-Identifier: Apache-2.0
"""`shmnd mpiexec`: start a program as the ranks of one job."""

import argparse
from collections.abc import Sequence

from shmnd.mpi.launcher import job, options

HELP = "run a program written for mpi4py as N ranks on this host"
EXAMPLE = "shmnd mpiexec -n 4 program.py"
FAILURE = "the job could not be started; otherwise the exit code of the first rank that failed"
MORE_CODES = {
    124: "the job took longer than --timeout allows",
    126: "the program cannot be executed",
    127: "there is no such program",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the launcher."""
    options.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Start the ranks, and wait for them."""
    raise AssertionError("shmnd mpiexec is run by its own command line")


def run_line(arguments: Sequence[str]) -> int:
    """Run a command line: words behind the program belong to it."""
    return job.main(list(arguments))
