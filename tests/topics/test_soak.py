# SPDX-License-Identifier: Apache-2.0
"""Long runs of topics: many samples, each byte checked, and many subscribers.

    pytest -m soak tests/topics/test_soak.py

SHMND_SOAK_SAMPLES says how many samples, 10**8 without it.
"""

import multiprocessing
import os
import uuid
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from topics import players

FORK = multiprocessing.get_context("fork")
SAMPLES = int(os.environ.get("SHMND_SOAK_SAMPLES", str(10**8)))
SUBSCRIBERS = 1000
PER_PROCESS = 250


def send_many(name: str, count: int) -> None:
    words = [np.empty(size, "u8") for size in (1, 3, 5, 8, 64)]
    with ipc.Publisher(name, "u8") as pub:
        pub.wait_for_subscribers(timeout=players.PATIENCE)
        for number in range(count):
            array = words[number % 5]
            array.fill(number)
            pub.send(array, timeout=players.PATIENCE)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_samples() -> None:
    name = f"topic-{uuid.uuid4().hex}"
    with ipc.Subscriber(name, "u8", overflow="block", buffer=256) as sub:
        child = FORK.Process(target=send_many, args=(name, SAMPLES))
        child.start()
        for number in range(SAMPLES):
            with sub.receive(timeout=players.PATIENCE) as sample:
                assert sample.sequence == number
                assert (sample.array == number).all()
        child.join(players.PATIENCE)
        assert child.exitcode == 0
        assert sub.lost == 0


def receive_by_many(name: str, count: int, out: Any) -> None:
    subs = [ipc.Subscriber(name, "i8", buffer=64) for _ in range(PER_PROCESS)]
    good = 0
    for number in range(count):
        for sub in subs:
            with sub.receive(timeout=players.PATIENCE) as sample:
                good += sample.sequence == number and players.is_numbered(sample.array, number)
    out.put(good)
    for sub in subs:
        sub.close()


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_subscribers() -> None:
    name = f"topic-{uuid.uuid4().hex}"
    out = FORK.SimpleQueue()
    processes = SUBSCRIBERS // PER_PROCESS
    children = [
        FORK.Process(target=receive_by_many, args=(name, 50, out)) for _ in range(processes)
    ]
    for child in children:
        child.start()
    with ipc.Publisher(name, "i8") as pub:
        pub.wait_for_subscribers(SUBSCRIBERS, timeout=600)
        for number in range(50):
            pub.send(players.numbered(number))
        for _ in children:
            assert out.get() == 50 * PER_PROCESS
        for child in children:
            child.join(players.PATIENCE)
            assert child.exitcode == 0
        with pytest.raises(TimeoutError):
            pub.wait_for_subscribers(timeout=0)
    out.close()
