# SPDX-License-Identifier: Apache-2.0
"""Several links from one namespace to another one: one carries a publisher, the others wait."""

from collections.abc import Iterator

import numpy as np
import pytest

from link.kit import PATIENCE, Links, free_endpoint, links, unique, until
from shmnd import ipc

pytest.importorskip("zenoh")

pytestmark = pytest.mark.slow

LONGER = 2.0
"""Seconds in which a link that waits tries again."""


@pytest.fixture
def started() -> Iterator[Links]:
    with links() as found:
        yield found


def test_no_sample_comes_twice_and_another_link_continues(started: Links) -> None:
    """Two links on each side, each connected to both of the other side."""
    here, there = unique("here"), unique("there")
    ends = [free_endpoint() for _ in range(2)]
    for each in ends:
        started.start(here, "--topic", "*", "--listen", each)
    to_both = [word for each in ends for word in ("--connect", each)]
    far = [started.start(there, "--topic", "*", *to_both) for _ in range(2)]
    with (
        ipc.Publisher("t", "i8", namespace=here) as pub,
        ipc.Subscriber("t", "i8", buffer=64, namespace=there) as sub,
    ):
        carried: list[int] = []
        for _ in far:
            until(lambda: sub.publishers == 1 and pub.subscribers == 1)
            with pytest.raises(TimeoutError):
                sub.receive(LONGER)
            for number in range(30):
                pub.send(np.int64(number))
            samples = [sub.receive(PATIENCE) for _ in range(30)]
            assert [int(each.value) for each in samples] == list(range(30))
            with pytest.raises(TimeoutError):
                sub.receive(LONGER)
            assert (sub.publishers, pub.subscribers) == (1, 1)
            (pid,) = {each.publisher.pid for each in samples}
            assert pid not in carried
            carried.append(pid)
            for link in far:
                if link.process.pid == pid:
                    link.kill()
            until(lambda: not _publishes("t", there, carried))
    assert [link.process.returncode for link in far] == [-9, -9]


def _publishes(name: str, namespace: str, pids: list[int]) -> bool:
    found = (each for each in ipc.topics(namespace=namespace) if each.name == name)
    return any(pid in pids for each in found for pid, _ in each.who)
