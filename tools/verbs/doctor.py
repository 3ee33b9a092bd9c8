# SPDX-License-Identifier: Apache-2.0
"""Check whether this machine is set up for shmnd, as seen from this process.

Run it where the program runs: in its container, as its user, or in its unit
(`ExecStartPre=shmnd doctor`), because most of the checks depend on that environment.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Iterable

from ..checks import broker, cores, kernel, limits, memory, services
from ..checks.finding import Finding, Host, Level
from ..output import add_format, add_namespace, headed, show_rows

HELP = "check the set-up of this machine, and name the remedies"
EXAMPLE = "shmnd doctor --strict"
FAILURE = "a check failed (with --strict: or a check warns)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_namespace(parser)
    parser.add_argument("--strict", action="store_true", help="count warnings as failures")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Make all checks and print the findings."""
    found = examine(Host(), args.namespace)
    if args.format == "json":
        show_rows(args, [dataclasses.asdict(each) for each in found])
    else:
        print(_table(found))
    levels = {each.level for each in found}
    return int(Level.PROBLEM in levels or (args.strict and Level.WARNING in levels))


def examine(host: Host, namespace: str | None) -> list[Finding]:
    """Return all findings."""
    checks: Iterable[Iterable[Finding]] = (
        memory.check(host),
        kernel.check(host),
        cores.check(host),
        limits.check(host),
        services.check(host),
        broker.check(namespace),
    )
    return [*itertools.chain.from_iterable(checks)]


def _table(found: list[Finding]) -> str:
    rows = [(each.level.value, each.check, each.found) for each in found]
    lines = [headed(("level", "check", "found"), rows)]
    for each in found:
        if each.level is not Level.OK:
            lines += ["", f"{each.level}: {each.check}: {each.found}"]
            lines += [f"  meaning: {each.meaning}", f"  remedy:  {each.remedy}"]
    return "\n".join(lines)
