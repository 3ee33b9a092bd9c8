# SPDX-License-Identifier: Apache-2.0
"""Two processes that survive, and a parent of those that do not.

The parent has opened nothing, so its children are as new as any process, and made in no time.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from crash.crowd import CONNECTED, HONEST, MADE, live_and_die, survive
from crash.hostile_peer import Layout, live_and_lie, names
from crash.links import Report
from crash.versions import WAIT, Address

_spawn: Final = multiprocessing.get_context("spawn")


BORN: Final = "born"
MOMENTS: Final = (BORN, MADE, CONNECTED)


def nurse(pipe: Connection) -> None:
    """Raise one child after another, and tell of each when and how it ended."""
    while True:
        raising, *arguments = pipe.recv()
        pipe.send(raising(*arguments))


def to_be_killed(
    version: int, seed: int, addresses: list[Address], moment: str, seconds: float
) -> tuple[float, int]:
    """A child that is killed so long after a moment of its life."""
    read, write = os.pipe()
    child = _child(
        live_and_die, version, seed, addresses, lambda word: os.write(write, word[:1].encode())
    )
    os.close(write)
    while moment != BORN and os.read(read, 1) not in {moment[:1].encode(), b""}:
        continue
    time.sleep(seconds)
    instant = time.monotonic()
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(read)
    return instant, status


def to_lie(
    version: int, seed: int, addresses: list[Address], known: Layout, lies: int
) -> tuple[float, dict[str, int]]:
    """A child that writes forged values, until its count or its own end; returns their counts."""
    subjects = names(known)
    told = np.frombuffer(mmap.mmap(-1, 8 * len(subjects)), np.int64)
    child = _child(live_and_lie, version, seed, addresses, known, lies, told)
    os.waitpid(child, 0)
    return time.monotonic(), {name: int(n) for name, n in zip(subjects, told, strict=True)}


def _child(live: Callable[..., None], *arguments: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            live(*arguments)
        except BaseException:
            if live is not live_and_lie:  # which may well stumble over its own lies
                traceback.print_exc()
        finally:
            os._exit(9)
    return child


def _guarded(role: Callable[..., None], arguments: tuple[Any, ...], pipe: Connection) -> None:
    try:
        role(*arguments, pipe)
    except BaseException as why:
        why.add_note(traceback.format_exc())
        pipe.send(why)
        raise


class Process:
    """One of ours, and the pipe to it."""

    def __init__(self, role: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = _spawn.Pipe()
        self.process = _spawn.Process(target=_guarded, args=(role, arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def hear(self) -> Any:
        if not self.pipe.poll(2 * WAIT):
            raise TimeoutError("a process says nothing")
        said = self.pipe.recv()
        if isinstance(said, BaseException):
            raise said
        return said

    def ask(self, question: Any) -> Any:
        self.pipe.send(question)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.join(WAIT)
        self.process.close()
        self.pipe.close()


class Crowd:
    """Survivors of both versions, and the children among them that die."""

    def __init__(self, seed: int, *, trusting: bool = True) -> None:
        self.all = [Process(nurse)]
        try:
            self.survivors = [
                Process(survive, version, seed + version, trusting) for version in (2, 1)
            ]
            self.all += self.survivors
            self.addresses: list[Address] = [each.hear() for each in self.survivors]
            for each, others in zip(self.survivors, ([], self.addresses[:1] * HONEST), strict=True):
                each.pipe.send(others)
            for each in self.survivors:
                assert each.hear() == "ready"
        except BaseException:
            self.close()
            raise

    def kill_one(
        self, version: int, seed: int, moment: str, seconds: float
    ) -> tuple[float, list[Report]]:
        """Raise one and kill it: the instant, and what became of its lines."""
        instant, status = self.all[0].ask(
            (to_be_killed, version, seed, self.addresses, moment, seconds)
        )
        assert os.WIFSIGNALED(status), "it ended by itself; its words are above"
        assert os.WTERMSIG(status) == signal.SIGKILL
        return instant, self.reports()

    def receive_forgeries(
        self, version: int, seed: int, known: Layout, lies: int
    ) -> tuple[float, list[Report], dict[str, int]]:
        """Start a hostile child; return when it ended, the ends of its lines, its forged values."""
        instant, told = self.all[0].ask((to_lie, version, seed, self.addresses, known, lies))
        return instant, self.reports(), told

    def reports(self) -> list[Report]:
        """What became of all lines but those of the survivors."""
        for each in self.survivors:
            each.pipe.send("what became of them")
        return [report for each in self.survivors for report in each.hear()]

    def looks(self) -> list[tuple[Counter[str], int]]:
        """What each survivor holds, and how many messages of the other one it has taken."""
        for each in self.survivors:
            each.pipe.send("what do you hold")
        return [each.hear() for each in self.survivors]

    def close(self) -> None:
        for each in self.all:  # all at once, so that none survives another
            each.process.kill()
        for each in self.all:
            each.end()
