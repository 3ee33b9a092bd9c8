# SPDX-License-Identifier: Apache-2.0
"""Random programs on a topic, each with a small model of what its policy keeps."""

import uuid
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shmnd import ipc

SIZES = (1, 5, 40, 5000)


def value(number: int) -> Any:
    return np.full(SIZES[number % 4], number, "i8")


class Model:
    """The samples that a subscriber has not received, by its policy."""

    def __init__(self, policy: str, buffer: int) -> None:
        self.policy = policy
        self.buffer = 1 if policy == "conflate" else buffer
        self.unread: deque[int] = deque()
        self.lost = 0

    @property
    def blocks(self) -> bool:
        return self.policy == "block" and len(self.unread) == self.buffer

    def put(self, number: int) -> None:
        if len(self.unread) < self.buffer:
            self.unread.append(number)
        elif self.policy == "drop_newest":
            self.lost += 1
        else:
            self.unread.popleft()
            self.unread.append(number)
            self.lost += 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 12)),
        st.tuples(st.just("receive"), st.integers(1, 12)),
        st.tuples(st.just("hold"), st.integers(1, 3)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("grow"), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "conflate", "block"])
@settings(max_examples=25)
@given(steps=STEPS, buffer=st.integers(1, 9))
@example(steps=[("send", 1), ("receive", 1)] * 20, buffer=1)
@example(steps=[("send", 5), ("receive", 3)] * 20, buffer=3)
def test_a_policy_keeps_the_samples_of_its_model(
    policy: str, steps: list[tuple[str, int]], buffer: int
) -> None:
    name = f"topic-{uuid.uuid4().hex}"
    with (
        ipc.Publisher(name, "i8") as pub,
        ipc.Subscriber(name, "i8", overflow=policy, buffer=buffer) as sub,
    ):
        assert pub.subscribers == 1
        model = Model(policy, buffer)
        held: list[tuple[int, Any]] = []
        more: list[ipc.Subscriber] = []
        sent = 0
        for step, count in steps:
            if step == "grow":  # one with a larger buffer moves the board
                more.append(ipc.Subscriber(name, buffer=20 << min(len(more), 6)))
            for _ in range(count):
                if step == "send":
                    if model.blocks:
                        with pytest.raises(TimeoutError):
                            pub.send(value(sent), timeout=0)
                        break
                    assert pub.send(value(sent), header=str(sent).encode(), timeout=0) == sent
                    model.put(sent)
                    sent += 1
                elif step in ("receive", "hold"):
                    sample = sub.try_receive()
                    if not model.unread:
                        assert sample is None
                        break
                    assert sample is not None
                    number = model.unread.popleft()
                    assert sample.sequence == number
                    assert sample.header == str(number).encode()
                    assert np.array_equal(sample.array, value(number))
                    if step == "hold":
                        held.append((number, sample.array))
            if step == "release":
                held.clear()
            assert sub.lost == model.lost
            for number, array in held:
                assert np.array_equal(array, value(number))
        for each in more:
            each.close()
