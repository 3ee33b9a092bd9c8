# SPDX-License-Identifier: Apache-2.0
"""All subjects by their names on the command line."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..floors.bare_asyncio import BareAsyncio
from ..floors.bare_python import BarePython
from ..floors.cacheline import CacheLine
from ..floors.kernel import KernelCopy
from ..floors.memcpy import Memcpy, PrivateMemcpy
from ..subjects.subject import Subject
from .iceoryx import Iceoryx
from .libfabric import FiPingpong
from .mpi import Mpich, OpenMpi
from .mqueue import PosixQueue
from .pipe import Pipe
from .ucx import UcxPerftest
from .zeromq import ZeroMq

PYTHONS_VARIABLE: Final = "SHMND_BENCH_PYTHONS"
"""Interpreters of peers, as `NAME=FILE` separated by colons."""

_PEERS: Final[Mapping[str, Callable[[str | None], Subject]]] = {
    "openmpi": OpenMpi,
    "mpich": Mpich,
    "fi_pingpong": lambda _: FiPingpong(),
    "ucx": lambda _: UcxPerftest(),
    "iceoryx2": lambda python: Iceoryx(python=python),
    "zmq": lambda python: ZeroMq(python=python),
    "mq": lambda python: PosixQueue(python=python),
    "pipe": lambda _: Pipe(),
    "cacheline": lambda _: CacheLine(),
    "bare_python": lambda _: BarePython(),
    "bare_asyncio": lambda _: BareAsyncio(),
    "memcpy": lambda _: Memcpy(),
    "memcpy-private": lambda _: PrivateMemcpy(),
    "process_vm_readv": lambda _: KernelCopy(),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose peers."""
    parser.add_argument(
        "--peers",
        type=_names,
        default=list(_PEERS),
        metavar="NAME,…",
        help=f"peers to take (default: {','.join(_PEERS)})",
    )
    parser.add_argument(
        "--peer-python",
        type=_python,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="interpreter that has what a peer needs (default: the one that runs this)",
    )


def chosen(args: argparse.Namespace) -> list[Subject]:
    """Make the peers that the options name."""
    given = os.environ.get(PYTHONS_VARIABLE, "")
    pythons = dict([*map(_python, filter(None, given.split(":"))), *args.peer_python])
    return [_PEERS[name](pythons.get(name)) for name in args.peers]


def missing(peers: Sequence[Subject]) -> list[tuple[Subject, str]]:
    """Return those that cannot be used here, and why."""
    checked = ((peer, peer.missing()) for peer in peers)
    return [(peer, problem) for peer, problem in checked if problem is not None]


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in _PEERS:
            raise argparse.ArgumentTypeError(f"no peer {name!r}; there are {', '.join(_PEERS)}")
    return names


def _python(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not equals or not file or name not in _PEERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE of a peer")
    return name, file
