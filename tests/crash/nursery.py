# SPDX-License-Identifier: Apache-2.0
"""Two processes that survive, and a parent of those that do not.

The parent has opened nothing, so its children are as new as any process, and made in no time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from crash.crowd import CONNECTED, HONEST, MADE, Report, live_and_die, survive
from crash.faces import WAIT, Address

_spawn: Final = multiprocessing.get_context("spawn")


BORN: Final = "born"
MOMENTS: Final = (BORN, MADE, CONNECTED)


def nurse(pipe: Connection) -> None:
    """Raise a child and kill it so long after a moment of its life; tell when that was."""
    while True:
        version, seed, moment, seconds, addresses = pipe.recv()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _live(version, seed, addresses, write)
        os.close(write)
        while moment != BORN and os.read(read, 1) not in {moment[:1].encode(), b""}:
            continue
        time.sleep(seconds)
        instant = time.monotonic()
        os.kill(child, signal.SIGKILL)
        pipe.send((instant, os.waitpid(child, 0)[1]))
        os.close(read)


def _live(version: int, seed: int, addresses: list[Address], mark: int) -> None:
    try:
        live_and_die(version, seed, addresses, lambda word: os.write(mark, word[:1].encode()))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(9)


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
    """Survivors of both versions, and whoever is born among them to die."""

    def __init__(self, seed: int) -> None:
        self.all = [Process(nurse)]
        try:
            self.survivors = [Process(survive, version, seed + version) for version in (2, 1)]
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
        instant, status = self.all[0].ask((version, seed, moment, seconds, self.addresses))
        assert os.WIFSIGNALED(status), "it ended by itself; its words are above"
        assert os.WTERMSIG(status) == signal.SIGKILL
        reports: list[Report] = []
        for each in self.survivors:
            each.pipe.send("what became of them")
        for each in self.survivors:
            reports += each.hear()
        return instant, reports

    def looks(self) -> list[tuple[Counter[str], int]]:
        """What each survivor holds, and how many messages of the other one it has taken."""
        return [each.ask("what do you hold") for each in self.survivors]

    def close(self) -> None:
        for each in self.all:  # all at once, so that none survives another
            each.process.kill()
        for each in self.all:
            each.end()
