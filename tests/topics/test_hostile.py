# SPDX-License-Identifier: Apache-2.0
"""A publisher that writes anything to its own memory: subscribers get errors, and no crash.

And a subscriber that writes anything to what it may write, or moves those that sleep elsewhere: the
others get every sample.
"""

import contextlib
import ctypes
import mmap
import multiprocessing
import platform
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from topics import players

FORK = multiprocessing.get_context("fork")
REFUSED = (ValueError, TypeError, ipc.LoanLimit, ipc.PeerLost, TimeoutError, ipc.NoPublisher)


def use(sample: Any) -> int:
    """Read all that a sample has."""
    with sample:
        repr(sample)
        header = sample.header or b""
        array = sample.array
        return int(array.reshape(-1).view("u1").sum(dtype="u8")) + len(header)


def receive_from_both(name: str, seed: int, out: Any) -> None:
    """Receive from an honest publisher and from a hostile one; every honest sample is whole."""
    hostile = FORK.Process(target=players.publish_anything, args=(name, seed, 1500))
    with ipc.Publisher(name, "i8") as honest, contextlib.ExitStack() as stack:
        subs = [
            stack.enter_context(ipc.Subscriber(name, overflow=policy, buffer=64))
            for policy in ("drop_oldest", "drop_newest", "conflate", "block")
        ]
        assert honest.subscribers == 4
        hostile.start()
        right = read = 0
        number = 0
        while hostile.is_alive() or number < 100:
            with contextlib.suppress(TimeoutError):
                honest.send(players.numbered(number)[:700], timeout=0)
                number += 1
            for sub in subs:
                for _ in range(20):
                    try:
                        sample = sub.try_receive()
                        if sample is None:
                            break
                        if sample.publisher.pid != hostile.pid:
                            wanted = players.numbered(sample.sequence)[:700]
                            assert (sample.array == wanted).all()
                            right += 1
                        else:
                            use(sample)
                            read += 1
                    except REFUSED:
                        continue
        hostile.join()
        out.put((right > 50, read > 50, hostile.exitcode))


@pytest.mark.parametrize("seed", range(2))
def test_a_hostile_publisher(seed: int) -> None:
    # In a child: a crash is one of that process.
    out = FORK.SimpleQueue()
    child = FORK.Process(target=receive_from_both, args=(f"topic-{uuid.uuid4().hex}", seed, out))
    child.start()
    child.join(players.PATIENCE)
    if child.is_alive():
        child.kill()
        child.join()
    assert child.exitcode == 0
    assert out.get() == (True, True, 0)
    out.close()
    child.close()


# -- a hostile subscriber --

_FUTEX_WAKE, _FUTEX_REQUEUE = 1, 3
_MANY = 2**31 - 1
_FUTEX = {"x86_64": 202, "aarch64": 98}


def _shared(right: str) -> Iterator[tuple[int, int]]:
    """Return the shared mappings of this process with a right: where they begin and end."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights = line.split()[:2]
        if rights == f"r{right}-s" and "shmnd-data" in line:
            first, last = (int(each, 16) for each in where.split("-"))
            yield first, last


def write_anything(name: str, seed: int, over: Any) -> None:
    """Write at random to all that other processes read of a subscriber."""
    chance = random.Random(seed)
    before = set(_shared("w"))
    with ipc.Subscriber(name, "i8", buffer=8) as sub:
        while not sub.publishers:
            sub.ready()
        # Its page, in memory of its own, and the bitmap of sleepers, which all write.
        parts = [first for first, _ in set(_shared("w")) - before]
        assert len(parts) == 2
        count = 0
        while not over.is_set() or count < 20000:
            at = chance.choice(parts) + 8 * chance.choice((chance.randrange(40), 0, 1, 8, 9, 10))
            value = chance.choice((0, 1, 2**32 - 1, 2**64 - 1, chance.getrandbits(64), count))
            ctypes.c_uint64.from_address(at).value = value
            count += 1
            if count % 50 == 0:
                with contextlib.suppress(*REFUSED):
                    sub.try_receive()


def move_sleepers(name: str, seed: int, over: Any) -> None:
    """Have the kernel move those that sleep at the counter of the publisher, or wake them."""
    chance = random.Random(seed)
    libc = ctypes.CDLL(None, use_errno=True)
    number = _FUTEX[platform.machine()]
    other = mmap.mmap(-1, 4096)
    elsewhere = ctypes.addressof(ctypes.c_uint32.from_buffer(other))
    with ipc.Subscriber(name, "i8") as sub:
        while not sub.publishers:
            sub.ready()
        counters = [first + 64 for first, _ in _shared("-")]
        moved = 0
        while not over.is_set() or moved == 0:
            for each in counters:
                what = chance.choice((_FUTEX_REQUEUE, _FUTEX_REQUEUE, _FUTEX_WAKE))
                none, most = (0, _MANY) if what == _FUTEX_REQUEUE else (_MANY, 0)
                address, aside = ctypes.c_void_p(each), ctypes.c_void_p(elsewhere)
                found = libc.syscall(number, address, what, none, ctypes.c_long(most), aside, 0)
                moved += found > 0


def receive_honestly(name: str, there: Any, out: Any) -> None:
    got = 0
    with ipc.Subscriber(name, "i8", overflow="block", buffer=64) as sub:
        while not sub.publishers:
            sub.ready()
        there.release()
        while True:
            with sub.receive(players.PATIENCE) as sample:
                if sample.array.size == 0:
                    break
                assert (sample.array == players.numbered(sample.sequence)[:700]).all()
                got += 1
        out.put((got, sub.lost))


@pytest.mark.parametrize("hostile", [write_anything, move_sleepers])
def test_a_hostile_subscriber(hostile: Any) -> None:
    name = f"topic-{uuid.uuid4().hex}"
    there, out, over = FORK.Semaphore(0), FORK.SimpleQueue(), FORK.Event()
    children = [
        FORK.Process(target=hostile, args=(name, 5, over), daemon=True),
        *[
            FORK.Process(target=receive_honestly, args=(name, there, out), daemon=True)
            for _ in range(2)
        ],
    ]
    for each in children:
        each.start()
    number = 0
    with ipc.Publisher(name, "i8") as pub:
        pub.wait_for_subscribers(3, players.PATIENCE)
        for _ in range(2):
            assert there.acquire(timeout=players.PATIENCE)
        while number < 3000:
            pub.send(players.numbered(number)[:700], timeout=players.PATIENCE)
            number += 1
            if number % 5 == 0:
                over.wait(0.002)  # the others sleep
        over.set()
        children[0].join(players.PATIENCE)
        pub.send(np.zeros(0, "i8"), timeout=players.PATIENCE)
        for each in children[1:]:
            each.join(players.PATIENCE)
    assert [each.exitcode for each in children] == [0, 0, 0]
    assert [out.get(), out.get()] == [(number, 0)] * 2
    out.close()
