# SPDX-License-Identifier: Apache-2.0
"""Processes that live one whole life with shmnd, unless they die at a step of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import shmnd
from shmnd import MrFlag, NdError
from shmnd.common import steps

WAIT = 20.0
SIZES = (8, 2000, 70_000, 300_000)
LARGEST = max(SIZES)
ALL = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE


class Half:
    """What one end needs for one connection."""

    def __init__(self, adapter: shmnd.Adapter | None = None) -> None:
        self.adapter = adapter or shmnd.open_adapter()
        self.queue = self.adapter.create_completion_queue(64)
        self.pair = self.adapter.create_queue_pair(self.queue, self.queue)
        self.memory = self.adapter.allocate(LARGEST)
        self.region = self.adapter.create_memory_region()
        self.region.register(self.memory, ALL).result(WAIT)
        self.connector = self.adapter.create_connector()
        self.posted = 0
        self.ended = 0

    def post(self, number: int) -> None:
        """A receive and a Send of each size."""
        for size in SIZES:
            self.pair.receive(self.region.sge(), ("receive", number, size))
            self.pair.send(self.region.sge(0, size), ("send", number, size))
            self.posted += 2

    def reap(self, timeout: float = 0.0) -> None:
        """Count the requests that ended."""
        self.ended += len(self.queue.wait(64, timeout) if timeout else self.queue.get_results())


def exchange(half: Half, rounds: int = 3) -> None:
    """Send and receive until the connection ends or all is done."""
    for number in range(rounds):
        half.post(number)
        deadline = time.monotonic() + WAIT
        while half.ended < half.posted and time.monotonic() < deadline:
            half.reap(0.05)


def live_active(pipe: Connection) -> None:
    """Connect, talk, hang up."""
    half = Half()
    address = pipe.recv()
    half.connector.connect(half.pair, address, 4, 4).result(WAIT)
    half.connector.complete_connect().result(WAIT)
    exchange(half)
    half.connector.disconnect().result(WAIT)
    half.adapter.close()


def live_passive(pipe: Connection) -> None:
    """Listen, accept, talk, hang up; then refuse the next one."""
    half = Half()
    listener = half.adapter.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    pipe.send(listener.get_local_address())
    listener.get_connection_request(half.connector).result(WAIT)
    half.connector.accept(half.pair, 4, 4).result(WAIT)
    exchange(half)
    half.connector.disconnect().result(WAIT)
    other = half.adapter.create_connector()
    listener.get_connection_request(other).result(WAIT)
    other.reject()
    half.adapter.close()


def live_broker(pipe: Connection) -> None:
    """Be the broker of this namespace until its last client has left."""
    from shmnd.broker.__main__ import main

    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for life
    main(["--idle", "0.5"])


LIVES: dict[str, Callable[[Connection], None]] = {
    "active": live_active,
    "passive": live_passive,
    "broker": live_broker,
}


def _live(role: str, name: str, passes: int, pipe: Connection) -> None:
    left = passes

    def reached(step: str) -> None:
        nonlocal left
        if step == name:
            left -= 1
            if left == 0:
                pipe.send(("dies", time.monotonic()))
                os.kill(os.getpid(), signal.SIGKILL)

    steps.reached = reached
    try:
        LIVES[role](pipe)
    except NdError:
        sys.exit(4)  # its peer gave up, as a survivor may


@contextmanager
def killable(role: str, name: str = "", passes: int = 1) -> Iterator[tuple[Any, Connection]]:
    """A process of a role that dies at the given pass of a step."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_live, args=(role, name, passes, there), daemon=True)
    process.start()
    there.close()
    try:
        yield process, here
    finally:
        process.kill()
        process.join(WAIT)
        process.close()
        here.close()
