# SPDX-License-Identifier: Apache-2.0
"""Threads that sleep at the word of their queue's bell, as the tests of that have them.

The sleep there ends by itself after 10 ms. In these tests it does not: a lost wake-up is a failure.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from shmnd.ring.process.waiting import set_longest_at_word
from spi.harness import WAIT, wait_until
from spi.pair import Pair
from spi.remote import Ends

USUAL = 0.01


@contextlib.contextmanager
def sleeping_at_the_word(ends: Ends) -> Iterator[Pair]:
    """Two processes, connected; waits at the queue of the active end sleep at once, and there."""
    pair = ends.pair("two").connect()
    pair.active.cq.spin = 0.0
    set_longest_at_word(3600.0)
    try:
        yield pair
    finally:
        set_longest_at_word(USUAL)


def asleep(queue: Any) -> bool:
    """Return whether a thread sleeps at the word of a queue, or just before that."""
    return bool(queue._at_word)


def waiting(queue: Any, got: list[Any], count: int = 1) -> threading.Thread:
    """Begin to wait in a thread, which sleeps at the word when this returns."""

    def run() -> None:
        got.extend(queue.wait(count, WAIT))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: asleep(queue), "a thread sleeps at the word")
    time.sleep(0.02)  # until it sleeps; nothing that follows depends on it
    return thread


def ended(thread: threading.Thread) -> None:
    thread.join(WAIT)
    assert not thread.is_alive(), "the thread sleeps on"
