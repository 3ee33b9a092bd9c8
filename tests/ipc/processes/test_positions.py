# SPDX-License-Identifier: Apache-2.0
"""Queues whose positions, counts and laps are near the ends of 31, 32, 62, 63 and 64 bits."""

import multiprocessing
import os
import signal
import struct
from typing import Any

import pytest

from shmnd import ipc

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0
ITEMS = 120
LAPS = 1 << 30
WRITE_POS, READ_POS = 128, 256
SLOTS, MEMBERS_OFF, SLOTS_OFF = 16, 40, 48
TAKEN, DONE = 16, 24


def begin_at(q: Any, pos: int) -> None:
    """Have a fresh queue continue as if this process had put, taken and reported `pos` items."""
    core = q._core

    def word(at: int) -> int:
        found: int = struct.unpack("Q", os.pread(core.fd, 8, at))[0]
        return found

    def put(at: int, *values: int) -> None:
        os.pwrite(core.fd, struct.pack(f"{len(values)}Q", *values), at)

    slots, own = word(SLOTS), word(MEMBERS_OFF) + 4096 * core.me
    words = [0] * slots
    for each in range(pos, pos + slots):
        words[each % slots] = (each // slots % LAPS) << 34
    put(word(SLOTS_OFF), *words)
    put(own + TAKEN, (pos % 2**32) << 32 | pos % 2**32)
    put(own + DONE, pos)
    put(WRITE_POS, pos)
    put(READ_POS, pos)


def work(q: Any, results: Any) -> None:
    while (item := q.get(timeout=PATIENCE)) is not None:
        results.put(item)
        q.task_done()
    q.task_done()


def take_and_die(q: Any) -> None:
    q.get(timeout=PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "pos", [2**31 - 20, 2**32 - 20, 5 * LAPS - 20, 2**62, 2**63 - 20, 2**64 - 1000]
)
@pytest.mark.parametrize("maxsize", [1, 5])
def test_items_go_past_a_boundary(maxsize: int, pos: int) -> None:
    with ipc.JoinableQueue(maxsize) as q, ipc.Queue() as results:
        begin_at(q, pos)
        workers = [FORK.Process(target=work, args=(q, results), daemon=True) for _ in range(2)]
        for each in workers:
            each.start()
        for number in range(ITEMS):
            q.put(number, timeout=PATIENCE)
        q.join()
        assert sorted(results.get(timeout=PATIENCE) for _ in range(ITEMS)) == list(range(ITEMS))
        for _ in workers:
            q.put(None, timeout=PATIENCE)
        for each in workers:
            each.join(PATIENCE)
        q.put("of one that dies", timeout=PATIENCE)
        dying = FORK.Process(target=take_and_die, args=(q,), daemon=True)
        dying.start()
        dying.join(PATIENCE)
        q.join()
        q.put("last", timeout=PATIENCE)
        assert (q.qsize(), q.get(timeout=PATIENCE)) == (1, "last")
        q.task_done()
        q.join()
        assert q.empty()
