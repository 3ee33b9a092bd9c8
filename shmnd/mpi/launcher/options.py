# SPDX-License-Identifier: Apache-2.0
"""The command line of the launcher."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from shmnd import command_line
from shmnd.mpi.launcher.hosts.allocation import (
    MOST,
    Unreadable,
    allocated_hosts,
    is_elsewhere,
    slots_of,
)


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, as all commands do; `--help` has the rest."""

    def error(self, message: str) -> NoReturn:
        """End the program with the exit code of a wrong command."""
        self.exit(2, f"{self.prog}: {message}\n")


class JobOptions(NamedTuple):
    """What a command line asks for."""

    ranks: int
    command: list[str]
    environment: dict[str, str]
    folder: str | None
    bind: str | None
    oversubscribe: bool
    prefix: bool
    recovery: bool
    private_arrays: bool
    timeout: float | None
    hosts: list[str]
    hostfile: str | None
    """The file that has all of the hosts."""
    allocated: bool
    """The hosts are those of a batch system, which the real mpiexec asks, too."""
    note: str
    """The launcher says this of the hosts when it starts; empty where it has nothing to say."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the launcher."""
    _add_ranks(parser)
    _add_job(parser)
    _add_program(parser)


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which ranks there are, and how each is started."""
    add = parser.add_argument
    add("-n", "-np", "--np", dest="ranks", type=_ranks, metavar="N", help="how many ranks to start")
    add("--wdir", dest="folder", metavar="FOLDER", help="working directory of the ranks")
    add(
        "-x",
        "--env",
        dest="environment",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a variable in the ranks (may be repeated); NAME alone: as it is here, which "
        "ranks get anyway, or unset",
    )
    add(
        "--bind-to",
        dest="bind",
        choices=("core", "none"),
        help="core: one rank a core (the default where there are enough); none: no binding",
    )
    add(
        "--oversubscribe",
        action="store_true",
        help="more ranks than cores are meant so: no warning",
    )
    add(
        "--prefix",
        "--tag-output",
        dest="prefix",
        action="store_true",
        help="write [rank] before every line of output, coloured on a terminal",
    )


def _add_job(parser: argparse.ArgumentParser) -> None:
    """Add the options of the job as a whole: its limits, and where it runs."""
    add = parser.add_argument
    add(
        "--enable-recovery",
        dest="recovery",
        action="store_true",
        help="a rank that dies does not end the job: it is an error in the calls that need it",
    )
    add(
        "--private-arrays",
        action="store_true",
        help="arrays of numpy stay in private memory; their messages take longer",
    )
    add("--timeout", type=_seconds, metavar="SECONDS", help="end the job after so long")
    add(
        "--host",
        dest="hosts",
        metavar="A,B",
        help="hosts, of which a:4 has 4 slots; others than this one: the real mpiexec runs it",
    )
    add(
        "--hostfile",
        metavar="FILE",
        help="a file of hosts; others than this one: the real mpiexec runs it",
    )
    add(
        "--namespace",
        type=command_line.namespace,
        help="namespace of the ranks (default: SHMND_NAMESPACE, or the default namespace)",
    )
    add(
        "--group",
        type=command_line.group,
        help="group of the namespace of the ranks (default: SHMND_GROUP, or none)",
    )


def _add_program(parser: argparse.ArgumentParser) -> None:
    """Add what the ranks run, which ends the options."""
    add = parser.add_argument
    add(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module, as Python's -m",
    )
    add(
        "-c", dest="code", nargs=argparse.REMAINDER, metavar="CODE", help="run code, as Python's -c"
    )
    add("program", nargs=argparse.REMAINDER, help="program and its arguments")


def options_of(args: argparse.Namespace, parser: argparse.ArgumentParser) -> JobOptions:
    """Return what the parsed arguments ask for; end the program where that cannot be."""
    hosts = _hosts_of(args.hosts, parser) if args.hosts else []
    if args.hostfile is not None:
        hosts += _hosts_in(args.hostfile, parser)
    batch, note = ([], "") if hosts else _hosts_of_batch_system()
    hosts, allocated = hosts or batch, bool(batch)
    ranks = args.ranks
    if ranks is None:
        if not hosts:
            parser.error("-n N says how many ranks to start, as in -n 4")
        ranks = len(hosts)
        if ranks > MOST:
            parser.error(f"the hosts have more slots than the {MOST} ranks that a job may have")
    command = _command(args, parser)
    # The real mpiexec takes the parts.
    if ":" in command and not is_elsewhere(hosts, allocated=allocated):
        parser.error("a job has one program: the parts after a : cannot be started")
    if args.folder is not None and not Path(args.folder).is_dir():
        parser.error(f"--wdir {args.folder}: there is no such folder")
    return JobOptions(
        ranks=ranks,
        command=command,
        environment=_environment(args, parser),
        folder=args.folder,
        bind=args.bind,
        oversubscribe=args.oversubscribe,
        prefix=args.prefix,
        recovery=args.recovery,
        private_arrays=args.private_arrays,
        timeout=args.timeout,
        hosts=hosts,
        hostfile=None if args.hosts else args.hostfile,
        allocated=allocated,
        note=note,
    )


def parse(arguments: Sequence[str], prog: str) -> JobOptions:
    """Parse a command line of the launcher; end the program where it is wrong."""
    parser = _Parser(
        prog=prog,
        description="Start a program as N ranks that talk by MPI, on this host.",
        allow_abbrev=False,
    )
    configure(parser)
    args, unknown = parser.parse_known_args(
        _separated(
            arguments,
            {
                option
                for action in parser._actions
                if action.nargs is None
                for option in action.option_strings
            },
        )
    )
    if unknown:
        parser.error(f"{unknown[0]!r} is not an option here; --help lists the options")
    return options_of(args, parser)


def _separated(words: Sequence[str], with_value: Container[str]) -> list[str]:
    """Return a command line in which -m and -c are words of their own, also for -mtimeit.

    The value of the options `with_value` may be the next word. A program begins behind --, or is -.
    """
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i].strip("-"):
        option, attached = words[i][:2], words[i][2:]
        if option in ("-m", "-c"):
            return [*words[:i], option, *([attached] if attached else []), *words[i + 1 :]]
        i += 2 if words[i] in with_value else 1
    return list(words)


def _environment(args: argparse.Namespace, parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the variables that the ranks get besides those of the launcher, or in their place."""
    environment = {}
    for each in args.environment:
        name, equals, value = each.partition("=")
        if not name:
            parser.error(f"--env {each}: a name is missing before the =")
        if equals:
            environment[name] = value
        elif name in os.environ:  # ranks do not see a variable that is not set here
            environment[name] = os.environ[name]
    for name, value in (("SHMND_NAMESPACE", args.namespace), ("SHMND_GROUP", args.group)):
        if value is not None:
            environment[name] = value
    return environment


def _seconds(text: str) -> float:
    """Return a limit of time; a limit that nothing can keep is wrong."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _ranks(text: str) -> int:
    try:
        ranks = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks") from None
    if not 1 <= ranks <= MOST:
        raise argparse.ArgumentTypeError(f"{ranks} ranks; a job has 1 to {MOST}")
    return ranks


def _hosts_of(text: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the hosts of a list such as a,b:4: each as often as it has slots."""
    hosts = []
    for each in filter(None, text.split(",")):
        name, *slots = each.split(":")
        if len(slots) != 1:  # a name alone, or an address such as ::1
            hosts.append(each)
        elif name and slots[0].isdecimal():
            hosts += slots_of(name, slots[0])
        else:
            parser.error(f"--host {each}: must be a host, or a host and its slots, as in a:4")
    if not hosts:
        parser.error(f"--host {text}: names no host with a slot")
    return hosts


def _hosts_in(name: str, parser: argparse.ArgumentParser) -> list[str]:
    hosts = []
    try:
        text = Path(name).read_text()
    except OSError as exc:
        parser.error(f"--hostfile {name}: {exc.strerror}")
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            slots = [word.partition("=")[2] for word in words[1:] if word.startswith("slots=")]
            if slots and not slots[0].isdecimal():
                parser.error(f"--hostfile {name}: slots={slots[0]} is not a number")
            hosts += slots_of(words[0], slots[0] if slots else "1")
    if not hosts:
        parser.error(f"--hostfile {name}: names no host with a slot")
    return hosts


def _hosts_of_batch_system() -> tuple[list[str], str]:
    """Return the hosts, and what the launcher says where they cannot be read."""
    try:
        return allocated_hosts(), ""
    except Unreadable as exc:  # as in a container, which has the variable and not its file
        then = "each host counts as one slot" if exc.hosts else "the ranks run on this host"
        return exc.hosts, f"{exc} cannot be read: {then}"


def _command(args: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """Return the program to start: a Python file, a module and code run in this interpreter."""
    for option, given in (("-m", args.module), ("-c", args.code)):
        if given is not None:
            if not given:
                parser.error(f"{option} needs an argument")
            return [sys.executable, option, *given]
    program = [word for i, word in enumerate(args.program) if i or word != "--"]
    if not program:
        parser.error("a program is missing, as in: -n 4 program.py")
    first = Path(program[0])
    return [sys.executable, *program] if first.suffix == ".py" else program
