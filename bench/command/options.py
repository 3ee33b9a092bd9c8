# SPDX-License-Identifier: Apache-2.0
"""The options that the benchmarks share. Letters mean what they mean in perftest."""

import argparse
import math
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from shmnd.info import LIMITS

from ..measure.environment import choose_cpus
from ..measure.how import How, Memory, Wait
from ..subjects.nd1 import ShmndNd1
from ..subjects.own import Shmnd, ShmndNative
from ..subjects.subject import Subject
from ..workers.leash import parse_cpus

ROUNDS, SECONDS = 9, 0.2
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.05
ALL_SIZES: Final = tuple(1 << power for power in range(1, 24))
"""What -a stands for: 2 bytes to 8 MiB."""
SIZE_MAX: Final = 1 << 30
STDOUT: Final = Path("/dev/stdout")
"""Where an output goes for which no file is named."""
ENGINES: Final = {"python": (Shmnd,), "native": (ShmndNative,), "both": (Shmnd, ShmndNative)}

_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)([kmg]?)(?:i?b)?", re.IGNORECASE)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of every benchmark."""
    _add_extent(parser)
    _add_output(parser)
    parser.set_defaults(complain=parser.error)


def _add_extent(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how long, and where")
    group.add_argument("--rounds", type=within(int, 1, 10_000), help=f"rounds (default {ROUNDS})")
    group.add_argument(
        *("-D", "--seconds"),
        type=within(float, 0.001, 20),
        help=f"seconds of each measurement of a round (default {SECONDS:g})",
    )
    group.add_argument(
        *("-n", "--iterations"),
        type=within(int, 1, 5_000_000),
        metavar="N",
        help="messages of each measurement, instead of seconds",
    )
    group.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_ROUNDS} rounds of {QUICK_SECONDS:g} s, unless other options say otherwise",
    )
    group.add_argument(
        "--pin",
        type=_cpus,
        metavar="A,B",
        help="CPUs of client and server (default: the first two allowed)",
    )
    group.add_argument(
        "--namespace",
        help="namespace of the adapters (default: SHMND_NAMESPACE, or the default namespace)",
    )
    group.add_argument(
        "--progress", action="store_true", help="print progress messages, also without a terminal"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    for name, text in (
        ("--json", "write all results"),
        ("--csv", "write one line per figure"),
        (
            "--hdr",
            "write histograms: percentile tables if FILE ends in .hgrm, else a histogram log",
        ),
    ):
        output.add_argument(
            name,
            type=Path,
            nargs="?",
            const=STDOUT,
            metavar="FILE",
            help=f"{text}; without FILE, in place of the table",
        )
    output.add_argument("--plot", type=Path, metavar="FILE.png", help="plot the results")
    output.add_argument(
        "--format", choices=("table", "json"), default="table", help="format of the output"
    )


def add_sizes(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the options that choose sizes."""
    group = parser.add_argument_group("messages")
    choice = group.add_mutually_exclusive_group()
    choice.add_argument(
        *("-s", "--size"),
        type=sizes,
        default=[default],
        metavar="N,…",
        dest="sizes",
        help=f"bytes, as in 40,4K,1M (default {default})",
    )
    choice.add_argument(
        *("-a", "--all"),
        action="store_const",
        const=list(ALL_SIZES),
        dest="sizes",
        help="all powers of two from 2 bytes to 8 MiB",
    )
    group.add_argument(
        "--memory",
        choices=[Memory.SEGMENT.value, Memory.PRIVATE.value, Memory.MIXED.value],
        default=Memory.SEGMENT.value,
        help="memory of the messages: allocated from the adapter, an ordinary array, or mixed: "
        "a header of 8 bytes in an array and the rest allocated, for Sends of the loop in Python",
    )
    group.add_argument(
        "--validate", action="store_true", help="first send messages whose every byte is checked"
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses where the loop runs."""
    parser.add_argument(
        "--engine",
        choices=tuple(ENGINES),
        default="python",
        help="the loop to measure: in Python over the public interface, or compiled",
    )


def add_interface(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the version of the interface."""
    parser.add_argument(
        "--face",
        choices=("nd2", "nd1", "both"),
        default="nd2",
        help="version 2 of the interface, version 1, or both in turn",
    )


def subjects_of(args: argparse.Namespace) -> list[Subject]:
    """Return the subjects to measure: engines and versions of the interface."""
    kinds: list[type[Shmnd]] = []
    if args.face != "nd1":
        kinds += ENGINES[args.engine]
    elif args.engine != "python":
        args.complain(
            f"--engine {args.engine} is below both versions of the interface: "
            "--face nd1 runs in Python"
        )
    if args.face != "nd2":
        kinds.append(ShmndNd1)
    return [kind(args.namespace) for kind in kinds]


def add_queues(
    parser: argparse.ArgumentParser, *, two_sided: bool, inline: bool, pairs: bool
) -> None:
    """Add the options of queue pairs, and how to wait."""
    group = parser.add_argument_group("queues")
    waits = group.add_mutually_exclusive_group()
    waits.add_argument(
        "--wait",
        choices=("poll", "event", "hybrid"),
        default=Wait.HYBRID.value,
        help="poll, sleep at once, or poll first and then sleep (default)",
    )
    waits.add_argument(
        *("-e", "--events"),
        action="store_const",
        const=Wait.EVENT.value,
        dest="wait",
        help="the same as --wait event",
    )

    def number(letter: str, name: str, low: int, high: int, default: int, text: str) -> None:
        kind = within(int, low, high)
        group.add_argument(letter, name, type=kind, default=default, metavar="N", help=text)

    number("-t", "--tx-depth", 1, 4096, 0, "depth of the initiator queue")
    if two_sided:
        number("-r", "--rx-depth", 1, 4096, 0, "depth of the receive queue")
    if pairs:
        number("-q", "--qp", 1, 1024, 1, "queue pairs that share the traffic")
    if inline:
        most = LIMITS.max_inline_data_size
        number("-I", "--inline", 0, most, 0, "Sends and Writes of up to N bytes are inline")
    group.add_argument(
        "--warmup",
        type=within(int, 0, 5_000_000),
        metavar="N",
        help="messages before the measurement (default: a twentieth)",
    )


def add_rate(parser: argparse.ArgumentParser) -> None:
    """Add the option that opens the loop."""
    parser.add_argument(
        "--rate",
        type=within(float, 0.1, 1e7),
        default=0.0,
        metavar="R",
        help="start R messages per second, and measure from the intended start",
    )


def how_of(args: argparse.Namespace) -> How:
    """Return the manner of the traffic, from the options that a command has."""
    known = vars(args)
    return How(
        wait=Wait(known.get("wait", Wait.HYBRID)),
        memory=Memory(known.get("memory", Memory.SEGMENT)),
        inline=known.get("inline", 0),
        sends=known.get("tx_depth", 0),
        receives=known.get("rx_depth", 0),
        pairs=known.get("qp", 1),
        credit=known.get("flow") == "credit",
        rate=known.get("rate", 0.0),
        warmup=known.get("warmup"),
        validate=known.get("validate", False),
    )


def sizes(text: str) -> list[int]:
    """Return a list of sizes."""
    found = []
    for word in text.split(","):
        match = _SIZE.fullmatch(word.strip())
        size = int(match[1]) * _FACTORS[match[2].lower()] if match else 0
        if not 1 <= size <= SIZE_MAX:
            raise argparse.ArgumentTypeError(f"{word!r} is not a size from 1 to 1G")
        found.append(size)
    return found


def numbers(low: int, high: int) -> Callable[[str], list[int]]:
    """Return a reader of lists of whole numbers."""
    one = within(int, low, high)
    return lambda text: [int(one(word)) for word in text.split(",")]


def words(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a reader of lists of known words."""

    def read(text: str) -> list[str]:
        for word in text.split(","):
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return text.split(",")

    return read


def within(
    kind: Callable[[str], int] | Callable[[str], float], low: float, high: float
) -> Callable[[str], float]:
    """Return a reader of numbers for argparse that says which ones are allowed."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return value

    return read


def _cpus(text: str) -> list[int]:
    try:
        return choose_cpus(parse_cpus(text))
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
