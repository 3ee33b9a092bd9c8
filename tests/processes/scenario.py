# SPDX-License-Identifier: Apache-2.0
"""Everything that a program does from opening an adapter to the end, within one process.

For tests in which something is missing: all objects made here are released, whatever fails.
"""

from __future__ import annotations

import contextlib
import gc
import time
from pathlib import Path
from typing import Any

import shmnd
from census import descriptors
from shmnd import MrFlag, NdError, Overlapped

WAIT = 20.0


class Scenario:
    """The steps in order; `reached` says how far it came."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.reached = "nothing"

    def run(self) -> None:
        """Go through all steps; NdError from the first that the system does not allow."""
        with contextlib.ExitStack() as stack:
            self._run(stack)
        self.reached = "the end"

    def _run(self, stack: contextlib.ExitStack) -> None:
        adapter = stack.enter_context(shmnd.open_adapter(**self.options))
        self.reached = "open_adapter"
        cq = adapter.create_completion_queue(64)
        self.reached = "create_completion_queue"
        memory = adapter.allocate(100_000)
        large = adapter.allocate(1 << 21)
        self.reached = "allocate"
        region = adapter.create_memory_region()
        region.register(memory, MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        self.reached = "register"
        srq = adapter.create_shared_receive_queue(4)
        pairs = [adapter.create_queue_pair(cq, cq), adapter.create_queue_pair_with_srq(cq, cq, srq)]
        self.reached = "create_queue_pair"
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self.reached = "listen"
        active, passive = adapter.create_connector(), adapter.create_connector()
        request = listener.get_connection_request(passive)
        asked = active.connect(pairs[0], listener.get_local_address())
        self._until(request)
        passive.accept(pairs[1])
        self.reached = "accept"
        self._until(asked)
        active.complete_connect().result(WAIT)
        self.reached = "complete_connect"
        srq.receive(region.sge(50_000, 50_000))
        memory[:9] = 7
        pairs[0].send(region.sge(0, 9))
        done: list[Any] = []
        while len(done) < 2:
            done += cq.wait(8, WAIT) or [None, None]
        assert all(result.status == 0 for result in done)
        assert bytes(memory[50_000:50_009]) == b"\7" * 9
        file = adapter.create_overlapped_file()
        assert file.fileno() >= 0
        assert cq.fileno() >= 0
        self.reached = "a message"
        assert len(large) == 1 << 21

    def _until(self, operation: Overlapped) -> None:
        operation.result(WAIT)


def held() -> tuple[set[str], int]:
    """Descriptors, and mappings of shared memory."""
    for _ in range(3):
        gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return descriptors(), sum("memfd:shmnd" in line for line in maps)


def attempt(**options: Any) -> tuple[str, str]:
    """Run once; give how far it came and what it raised. Anything but NdError is a failure."""
    scenario = Scenario(**options)
    try:
        scenario.run()
    except NdError as err:
        return scenario.reached, str(err)
    return scenario.reached, ""


def settle(before: tuple[set[str], int]) -> str:
    """Wait until everything is released; return the rest."""
    deadline = time.monotonic() + WAIT
    while True:
        fds, maps = held()
        if fds <= before[0] and maps <= before[1]:
            return ""
        if time.monotonic() > deadline:
            return f"{sorted(fds - before[0])}, {maps - before[1]} mappings"
        time.sleep(0.02)
