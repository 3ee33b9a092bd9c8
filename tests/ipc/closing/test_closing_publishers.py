# SPDX-License-Identifier: Apache-2.0
"""A publisher that another thread closes while it sends: it has sent, or raises Closed."""

import time
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd.status import NdError, Status
from topics.conftest import name as name
from topics.conftest import pair as pair
from topics.taking import PATIENCE, everything


@pytest.mark.parametrize("step", ["_waiter.rest", "_seats.come_again", "_seats.drop_dead"])
@pytest.mark.parametrize("way", ["send", "loan"])
def test_a_sample_that_was_sent_raises_nothing(
    pair: tuple[ipc.Publisher, ipc.Subscriber], way: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pub, sub = pair
    owner, name = step.split(".")

    def meanwhile() -> None:
        """What another thread does between two steps of this one, and what the next one raises."""
        pub.close()
        raise NdError(Status.DEVICE_REMOVED, "the adapter is closed")

    loan = pub.loan(100)
    loan.array[:] = 7
    time.sleep(0.02)  # the members are read once in ten milliseconds
    monkeypatch.setattr(getattr(pub, owner), name, meanwhile)
    last = loan.send() if way == "loan" else pub.send(np.full(3, 7.0))
    assert pub.closed
    with pytest.raises(ipc.Closed):
        pub.send(np.zeros(3))
    sample = sub.receive(PATIENCE)
    assert sample.sequence == last
    assert set(sample.value) == {7}
    sample.release()


def test_a_publisher_that_a_conversion_closes_sends_nothing(
    pair: tuple[ipc.Publisher, ipc.Subscriber],
) -> None:
    pub, sub = pair

    class Value:
        """Becomes an array in code of Python, while another thread closes the publisher."""

        def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
            pub.close()
            return np.zeros(3)

    with pytest.raises(ipc.Closed, match="is closed"):
        pub.send(Value())
    assert everything(sub) == []
