# SPDX-License-Identifier: Apache-2.0
"""A publisher that writes anything to its own memory: subscribers get errors, and no crash."""

import contextlib
import multiprocessing
import uuid
from typing import Any

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
