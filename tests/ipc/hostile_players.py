# SPDX-License-Identifier: Apache-2.0
"""Processes of the same user that write anything into what they share; importable by a child."""

import contextlib
import os
import struct
import time
import warnings
from typing import Any

import numpy as np

from shmnd import ipc

EXTREMES = (0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 1)


def wild(chance: Any) -> bytes:
    """Return a word: an extreme, a small number, one with few bits, or any."""
    kind = int(chance.integers(4))
    word = int(chance.integers(1 << 63)) * 2
    if kind == 0:
        word = EXTREMES[int(chance.integers(len(EXTREMES)))]
    elif kind == 1:
        word = int(chance.integers(64))
    elif kind == 2:
        word >>= int(chance.integers(64))
    return struct.pack("Q", word & (2**64 - 1))


class QueueScribbler:
    """Writes into all parts of a queue's memory but the shape, which is read once."""

    def __init__(self, q: Any, seed: int) -> None:
        self.fd = q._core.fd
        self.chance = np.random.default_rng(seed)
        self.slots, self.table, self.chunks = struct.unpack("QQQ", os.pread(self.fd, 24, 48))

    def places(self) -> list[int]:
        """Return a place of each part."""
        pick = self.chance.integers
        return [
            int(pick(128, 632)) & ~7,  # positions, gates, counts
            4096 + 4096 * int(pick(4)) + 8 * int(pick(16)),  # what a member counts
            4096 + 4096 * int(pick(4)) + 8 * int(pick(512)),
            self.slots + 8 * int(pick(20)),
            self.table + 8 * int(pick(12)),
            self.chunks + (1 << 16) * int(pick(6)) + 128 * int(pick(16)) + 8 * int(pick(20)),
            self.chunks + (1 << 16) * int(pick(6)) + 8 * int(pick(20)),
        ]

    def scribble(self) -> None:
        places = self.places()
        at = places[int(self.chance.integers(len(places)))]
        if self.chance.integers(3):
            os.pwrite(self.fd, wild(self.chance), at)
        else:  # one bit
            word = struct.unpack("Q", os.pread(self.fd, 8, at))[0]
            word ^= 1 << int(self.chance.integers(64))
            os.pwrite(self.fd, struct.pack("Q", word), at)


def every_word(seed: int) -> None:
    """Damage one word after the other; each call ends by a value or an exception."""
    chance = np.random.default_rng(seed)
    places = [*range(128, 640, 8), *range(4096, 4096 + 256, 8)]
    item = np.arange(3000, dtype="u1")
    for at in places:
        for word in EXTREMES:
            q = ipc.JoinableQueue(8)
            q.put(item)
            q.put({"a": np.zeros(20_000)})
            os.pwrite(q._core.fd, struct.pack("Q", word), at)
            use(q, item, chance)
            q.close()
            del q


def use(q: Any, item: Any, chance: Any) -> None:
    calls = [
        lambda: q.put(item, timeout=0.001),
        lambda: q.put({"b": item, "c": np.zeros(17_000)}, timeout=0.001),
        lambda: q.put(b"x" * int(chance.integers(5000)), timeout=0.001),
        lambda: q.get(timeout=0.001),
        lambda: q.get(timeout=0.001),
        lambda: q.task_done(),
        lambda: (q.qsize(), q.full(), q.empty(), q._core.unfinished()),
        lambda: (q._core.reap(), q._core.pids(), q._core.addresses(), q._core.taker(3)),
        lambda: q.fileno(),
    ]
    for call in calls:
        with contextlib.suppress(Exception):
            call()


def scribble_for_ever(q: Any, seed: int) -> None:
    scribbler = QueueScribbler(q, seed)
    while True:
        for _ in range(20):
            scribbler.scribble()
        time.sleep(0)


def use_for(q: Any, seed: int, seconds: float) -> None:
    """Put and get while another process scribbles."""
    chance = np.random.default_rng(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        item = np.arange(int(10 ** chance.integers(6)), dtype="u1")
        use(q, item, chance)


def call_while_hostile(name: str, seed: int, calls: int, out: Any) -> None:
    """An honest server and client; a hostile member scribbles into the client's answers."""
    chance = np.random.default_rng(seed)
    warnings.simplefilter("ignore", RuntimeWarning)
    with ipc.Server(name, buffer=4) as server, ipc.Client(name) as client:
        scribblers = [QueueScribbler(client._answers, seed), QueueScribbler(server._requests, seed)]
        done = 0
        for _ in range(calls):
            with contextlib.suppress(Exception):
                pending = client.send(np.arange(int(chance.integers(3000))), timeout=0.001)
                scribblers[int(chance.integers(2))].scribble()
                with contextlib.suppress(TimeoutError):
                    server.receive(0.001).respond(b"answer")
                scribblers[int(chance.integers(2))].scribble()
                pending.result(0.001)
            done += 1
        out.put(done)


def listen_while_hostile(name: str, seed: int, rounds: int, out: Any) -> None:
    """An honest notifier and listener; a hostile one scribbles into their table, one after another:
    a damaged page may make its listener deaf.
    """
    chance = np.random.default_rng(seed)
    out.put(sum(_listen_in_a_room(f"{name}-{table}", chance) for table in range(rounds // 50)))


def _listen_in_a_room(name: str, chance: np.random.Generator) -> int:
    with ipc.Notifier(name) as notifier, ipc.Listener(name) as listener:
        table = listener._table
        assert table is not None
        places = [
            *range(64, 128 + 128, 8),
            *(page * 4096 + at for page in (1, 2, 3, 1024) for at in (*range(0, 704, 8), 1024)),
        ]
        listener.fileno()
        heard = 0
        for number in range(50):
            os.pwrite(table.fd, wild(chance), places[int(chance.integers(len(places)))])
            with contextlib.suppress(Exception):
                notifier.notify(number % 4096)
            counted = 0
            with contextlib.suppress(Exception):
                counted = notifier.listeners
            assert counted >= 0
            with contextlib.suppress(Exception):
                heard += bool(listener.wait(0.0005))
                listener.ready()
        return heard


def read_while_hostile(name: str, seed: int, rounds: int, out: Any) -> None:
    """A hostile writer scribbles into its own memory, which the reader maps."""
    chance = np.random.default_rng(seed)
    board = ipc.Blackboard(name, {"a": "6f8", "b": "u1", "c": [("x", "i4"), ("y", "f8", (3,))]})
    memory = memoryview(board._map)
    known = len(memory)
    read = 0
    for number in range(rounds):
        with ipc.BlackboardReader(name) as reader:
            board["a"] = np.arange(6)
            damaged = int(chance.choice([8, 64 + 8 * int(chance.integers(16)), 0]))
            if damaged == 0:  # the texts and the cells
                damaged = 64 + 32 * 4096 + 8 * int(chance.integers(400))
            with_what = wild(chance)
            if number % 10 == 0:  # text that json or numpy refuses in other ways
                damaged, with_what = 64 + 32 * 4096, b"[" * 40
            before = bytes(memory[damaged : damaged + len(with_what)])
            memory[damaged : damaged + len(with_what)] = with_what
            for key in ("a", "b", "c", "d"):
                with contextlib.suppress(Exception):
                    reader.wait(key, timeout=0.0005)
                    read += 1
                found: list[Any] = []
                with contextlib.suppress(Exception):
                    found.append(reader.keys())
                    found.append(reader[key])
                assert all(each is not None for each in found)
            memory[damaged : damaged + len(before)] = before
    assert known == len(memoryview(board._map))
    board.close()
    out.put(read)


def send_nonsense(name: str, told: Any) -> None:
    """A member of a service that sends what no client sends."""
    with ipc.Client(name) as client:
        others = os.open(os.devnull, os.O_RDWR)
        found = os.fstat(others)
        where = (os.getpid(), others, found.st_dev, found.st_ino)
        for item in (
            None, 5, (), (1, 2), "x" * 7, (None,) * 7, ({},) * 7, (2**70,) * 7,
            (*where, 1, 0, b"another file"), (*where[:3], -1, 2**40, -5, None),
            (1, 0, 0, 0, 0, 0, 0),
        ):  # fmt: skip
            client._requests.put(item, timeout=60)
        told.set()
        time.sleep(60)
