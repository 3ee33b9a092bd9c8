# SPDX-License-Identifier: Apache-2.0
"""A publisher that says that its lines are elsewhere: it moves to longer ones, few times."""

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd.adapter import Adapter
from shmnd.ipc.topic.refusals import are_not_next

WHERE = 16  # a word of the head
LOG = 8  # of the lines for a history of 64
HERE, LONGER = 5 << 8 | LOG, 6 << 8 | LOG + 1


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Return what a publisher allocates; its head is the first."""
    memories: list[Any] = []
    allocate = Adapter.allocate_segment

    def watched(self: Adapter, nbytes: int, **options: Any) -> Any:
        memories.append(allocate(self, nbytes, **options))
        return memories[-1]

    monkeypatch.setattr(Adapter, "allocate_segment", watched)
    yield memories
    memories.clear()


@pytest.mark.parametrize("overflow", ["drop_oldest", "conflate", "block"])
@pytest.mark.parametrize("log", [1, LOG - 1])
def test_lines_that_are_not_longer_are_an_error_and_others_are_received(
    head: list[Any], overflow: Any, log: int
) -> None:
    """Each of its moves would be one more mapping that its subscriber keeps."""
    name = f"topic-{uuid.uuid4().hex}"
    with (
        ipc.Publisher(name, "i8", history=64),
        ipc.Subscriber(name, "i8", overflow=overflow) as sub,
    ):
        assert sub.publishers == 1
        words = head[0].view("u8")
        assert words[WHERE] & 0xFF == LOG
        words[WHERE] = int(words[WHERE]) - LOG + log
        with pytest.raises(ValueError, match="names lines that it does not share"):
            sub.receive(timeout=20)
        del words
        with ipc.Publisher(name, "i8", history=1) as honest:
            honest.send(np.int64(7))
            assert sub.receive(timeout=60).value == 7


def test_a_thread_that_is_late_enters_no_lines_of_before() -> None:
    assert not are_not_next(LONGER, HERE, LONGER)
    assert are_not_next(LONGER, LONGER, LONGER)  # another thread has entered them
    assert are_not_next(HERE, LONGER, LONGER)  # and those behind
    assert are_not_next(HERE, LONGER, 7 << 8 | LOG + 2)
    for shorter in (HERE, LONGER + (1 << 8)):
        with pytest.raises(ValueError, match="not longer"):
            are_not_next(shorter, LONGER, shorter)
