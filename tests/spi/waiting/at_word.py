# SPDX-License-Identifier: Apache-2.0
"""Threads that sleep at the word of their queue's bell, as the tests of that have them.

That sleep ends by itself after 10 ms. In these tests it does not (`spi.harness`): a lost wake-up is
a failure.
"""

import threading
import time
from typing import Any

from shmnd import NdError, Status
from spi.harness import WAIT, wait_until
from spi.pair import Pair
from spi.remote import Ends


def sleeping_at_the_word(ends: Ends) -> Pair:
    """Two processes, connected; waits at the queue of the active end sleep at once, and there."""
    pair = ends.pair("two").connect()
    pair.active.cq.spin = 0.0
    return pair


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


def waiting_for_a_failure(queue: Any, failures: list[Status]) -> threading.Thread:
    """The same for a wait that ends with a status."""

    def run() -> None:
        try:
            queue.wait(1, WAIT)
        except NdError as exc:
            failures.append(exc.status)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: asleep(queue), "a thread sleeps at the word")
    return thread


def ended(thread: threading.Thread) -> None:
    thread.join(WAIT)
    assert not thread.is_alive(), "the thread sleeps on"
