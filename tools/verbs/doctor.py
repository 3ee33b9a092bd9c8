# SPDX-License-Identifier: Apache-2.0
"""Is this machine set up for shmnd, as far as can be seen from a process like this one?

It is of use where the program runs: in its container, under its user, or in its unit
(`ExecStartPre=shmnd doctor`), since most of what is looked at differs there.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Iterable

from shmnd_bench.report.table import render

from ..checks import (
    broker as check_broker,
)
from ..checks import (
    cores as check_cores,
)
from ..checks import (
    kernel as check_kernel,
)
from ..checks import (
    limits as check_limits,
)
from ..checks import (
    memory as check_memory,
)
from ..checks import (
    services as check_services,
)
from ..checks.finding import Finding, Host, Level
from ..output import add_format, show_rows

HELP = "what stands in the way here, and what to do about it"
EXAMPLE = "shmnd doctor --strict"
FAILURE = "something does not work (with --strict: or there is a warning)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--namespace", help="namespace to look at (default: the usual one)")
    parser.add_argument("--strict", action="store_true", help="count warnings as failures")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything, and tell."""
    found = examine(Host(), args.namespace)
    if args.format == "json":
        show_rows(args, [dataclasses.asdict(each) for each in found])
    else:
        print(_table(found))
    levels = {each.level for each in found}
    return int(Level.PROBLEM in levels or (args.strict and Level.WARNING in levels))


def examine(host: Host, namespace: str | None) -> list[Finding]:
    """Return all findings."""
    looks: Iterable[Iterable[Finding]] = (
        check_memory.look(host),
        check_kernel.look(host),
        check_cores.look(host),
        check_limits.look(host),
        check_services.look(host),
        check_broker.look(namespace),
    )
    return [*itertools.chain.from_iterable(looks)]


def _table(found: list[Finding]) -> str:
    rows = [(each.level.value, each.check, each.found) for each in found]
    lines = [render(("level", "check", "found"), rows)]
    for each in found:
        if each.level is not Level.OK:
            lines += ["", f"{each.level}: {each.check}: {each.found}"]
            lines += [f"  it means: {each.meaning}", f"  to mend:  {each.remedy}"]
    return "\n".join(lines)
