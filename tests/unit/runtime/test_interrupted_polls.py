# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises within a poll: the next poll does the rest.

`TimeoutError`, the usual exception of a handler of SIGALRM, is an OSError, as are the failures that
the library expects of its descriptors.
"""

import select

import pytest

import shmnd
from interrupting import Alarm, Interrupted, inside, interrupted
from shmnd import Adapter
from shmnd.common.descriptors import Doorbell, EventCount

WITHIN = inside(shmnd)
KINDS = [Alarm, Interrupted, TimeoutError, ValueError]


class Asking:
    """Polled once at the next poll: its first poll is interrupted."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.ticks = 0

    def _tick(self) -> None:
        self.ticks += 1
        if self.ticks == 1:
            raise self.kind


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_to_be_polled_soon_is_polled_again(kind: type[BaseException]) -> None:
    with shmnd.open_adapter() as adapter:
        asking, another = Asking(kind), Asking(KeyError)
        another.ticks = 1
        adapter._engine.pending_operations.hurry(asking)
        adapter._engine.pending_operations.hurry(another)
        with pytest.raises(kind):
            adapter._engine.progress()
        adapter._engine.progress()
        assert (asking.ticks, another.ticks) == (2, 2)
        adapter._engine.progress()
        assert (asking.ticks, another.ticks) == (2, 2)


def is_readable(adapter: Adapter) -> bool:
    return bool(select.select([adapter._engine.epoll_fd], [], [], 0)[0])


@pytest.mark.parametrize("waits", [False, True], ids=["poll", "wait"])
@pytest.mark.parametrize("kind", KINDS)
def test_rings_that_an_interrupted_poll_has_taken_are_handed_over(
    kind: type[BaseException], waits: bool
) -> None:
    with shmnd.open_adapter() as adapter:
        engine = adapter._engine
        engine.progress()
        asking = Asking(kind)
        engine.pending_operations.hurry(asking)
        engine.ring()
        assert is_readable(adapter)
        with pytest.raises(kind):
            engine.wait(lambda: False, 1.0) if waits else engine.progress()
        assert is_readable(adapter)


@pytest.mark.parametrize("kind", KINDS)
def test_no_exception_of_a_handler_is_taken_for_a_failure_of_a_descriptor(
    kind: type[BaseException],
) -> None:
    def ring_and_drain() -> None:
        nonlocal raised
        raised = True
        count.add()
        count.drain()
        doorbell.drain()
        raised = False

    count, other = EventCount(), EventCount()
    doorbell = Doorbell(other.fileno(), "another process")
    doorbell.drain()
    at, more = 0, True
    while more:
        raised = False
        more = interrupted(at, ring_and_drain, WITHIN, kind)
        assert raised is more, f"interrupted at place {at}"
        at += 1
    assert at > 4
    count.close()
    doorbell._fd = -1
    other.close()
