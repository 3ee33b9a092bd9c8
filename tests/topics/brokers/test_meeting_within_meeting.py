# SPDX-License-Identifier: Apache-2.0
"""While one end asks the broker about another one, the thread may come to it once more.

It polls within that call, and what it finds there is the same change.
"""

import uuid
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd.neighbours import Neighbour

PATIENCE = 20.0


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


def come_again(monkeypatch: pytest.MonkeyPatch, end: Any, adapter: Any) -> list[Any]:
    """Have the next neighbour that an end meets lead to a poll, in the midst of the meeting."""
    before = Neighbour.view
    met: list[Any] = []

    def view(self: Neighbour, *where: Any, **how: Any) -> Any:
        found = before(self, *where, **how)
        if self._adapter is adapter and not met:
            met.append(end)
            end._attend()
        return found

    monkeypatch.setattr(Neighbour, "view", view)
    return met


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
def test_a_subscriber_receives_each_sample_once(
    name: str, overflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ipc.Subscriber(name, "i8", overflow=overflow) as sub:
        met = come_again(monkeypatch, sub, sub._shared.adapter)
        with ipc.Publisher(name, "i8") as pub:
            assert sub.publishers == 1
            assert met == [sub]
            assert pub.subscribers == 1
            for number in range(5):
                pub.send(np.full(100, number), timeout=PATIENCE)
                with sub.receive(PATIENCE) as sample:
                    assert sample.sequence == number
                assert sub.try_receive() is None


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
def test_a_publisher_gives_each_subscriber_one_seat(
    name: str, overflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ipc.Publisher(name, "i8") as pub:
        met = come_again(monkeypatch, pub, pub._adapter)
        with ipc.Subscriber(name, "i8", overflow=overflow, buffer=1) as sub:
            assert pub.subscribers == 1
            assert met == [pub]
            assert pub._present == 1
            for _ in range(3):
                pub.send(np.zeros(100, "i8"), timeout=PATIENCE)
                assert sub.receive(PATIENCE).nbytes == 800
            pub.send(np.zeros(100, "i8"), timeout=PATIENCE)
        assert pub.subscribers == 0
        assert pub._present == 0
        pub.send(np.zeros(100, "i8"), timeout=PATIENCE)
