# SPDX-License-Identifier: Apache-2.0
"""One end of a measured pair: a process that executes the commands of the harness.

An *end* is an object that uses one transport. The worker finds its class by name, so that a
transport is one file and this one never changes.
"""

import argparse
import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol

from ..measure.question import Question
from ..measure.reading import Reading
from . import leash
from .control import Channel, ChannelClosed, Conversation

CLIENT = 0
"""The role that starts, keeps the time, and sends in a stream."""
SERVER = 1
"""The role that answers."""

_RANKS = ("SHMND_MPI_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


class End(Protocol):
    """What the module of a transport offers to the worker process."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        """Load the transport."""

    def describe(self) -> dict[str, str]:
        """Return versions, for the report."""

    def offer(self, question: Question) -> dict[str, Any]:
        """Prepare the server for a client; return what the client needs to find it."""

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Connect, at both ends, with what the server offered."""

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Do `count` rounds, at both ends; return their times, of each round if it can.

        The client's answer counts.
        """

    def close(self) -> None:
        """End everything, in an orderly way."""


def load(name: str) -> Callable[[int, dict[str, Any]], End]:
    """Return the class of an end by `module:class`; the module is relative to `shmnd_bench`."""
    module, _, attribute = name.partition(":")
    package = (__package__ or "").partition(".")[0]
    found: Callable[[int, dict[str, Any]], End] = getattr(
        importlib.import_module(module, package), attribute
    )
    return found


class Worker:
    """Has an end carry out commands."""

    def __init__(self, role: int) -> None:
        self._role = role
        self._end: End | None = None

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carry out a command and return its answer, which may be an error."""
        # A transport may hang where no Python code runs. The default action of SIGALRM ends the
        # process even there, and the harness sees its channel close.
        signal.alarm(int(message["limit"]))
        try:
            return {"ok": self._carry_out(message)}
        except Exception as exc:
            return {"error": f"{type(exc).__name__}: {exc}"}
        finally:
            signal.alarm(0)

    def _carry_out(self, message: dict[str, Any]) -> object:
        if message["do"] == "open":
            return self.open(message["end"], message["options"])
        if self._end is None:
            raise RuntimeError(f"{message['do']!r} came before 'open'")
        question = Question.from_json(message["question"])
        match message["do"]:
            case "offer":
                return self._end.offer(question)
            case "join":
                self._end.join(question, message["offer"])
                return None
            case "run":
                reading = self._end.run(question, int(message["count"]), bool(message["record"]))
                # The other side's samples are the same once more.
                return reading.as_json() if self._role == CLIENT else None
            case other:
                raise ValueError(f"unknown command {other!r}")

    def open(self, end: str, options: dict[str, Any]) -> object:
        """Load a transport; return its versions."""
        self._end = load(end)(self._role, options)
        return self._end.describe()

    def close(self) -> None:
        """Close the end, if one was opened."""
        if self._end is not None:
            end, self._end = self._end, None
            end.close()


def serve(channel: Conversation, role: int) -> None:
    """Take commands off a channel until the harness has no more."""
    worker = Worker(role)
    channel.send({"hello": role, "pid": os.getpid()})
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        if message["do"] == "quit":
            worker.close()
            channel.send({"ok": None})
            return
        channel.send(worker.answer(message))


def rank() -> int:
    """Return the role that an MPI launcher chose for this process."""
    for name in _RANKS:
        if name in os.environ:
            return int(os.environ[name])
    raise SystemExit(f"not started by mpiexec: none of {', '.join(_RANKS)} is set")


def main(arguments: list[str]) -> int:
    """Run a worker process."""
    parser = argparse.ArgumentParser(prog="shmnd_bench.workers.worker")
    parser.add_argument("--control", required=True, help="abstract socket of the harness")
    parser.add_argument("--role", required=True, help="0, 1, or mpi")
    parser.add_argument("--cpus", default="", help="as 0,1: a CPU for each role")
    parser.add_argument("--parent", type=int, help="end at once if this is not the parent")
    options = parser.parse_args(arguments)
    leash.hold(options.parent)
    # Ctrl-C is for the harness; it ends the workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role = rank() if options.role == "mpi" else int(options.role)
    cpus = leash.parse_cpus(options.cpus)
    leash.pin(cpus[role : role + 1])
    # As timeit does: the loops make no cycles, and a collection would delay any message.
    gc.disable()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"\0{options.control}")
        serve(Channel(sock), role)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
