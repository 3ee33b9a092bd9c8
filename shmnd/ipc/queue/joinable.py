# SPDX-License-Identifier: Apache-2.0
"""Queues that know how many of their items are still worked on."""

from __future__ import annotations

import math

from shmnd.ipc.common.ringing import PAUSE
from shmnd.ipc.queue.queueing import Queue, ns_of
from shmnd.ipc.queue.waits import DONE

__all__ = ["JoinableQueue"]


class JoinableQueue(Queue):
    """A queue that knows how many items are still worked on: `multiprocessing.JoinableQueue`.

    An item that a process took and died with counts as done.
    """

    def task_done(self) -> None:
        """Report that an item that was got is done; ValueError when reported too often."""
        if not self._core.task_done():
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Wait until every item that was put is done."""
        while not self._core.join(ns_of(PAUSE)):
            self._wait_long(DONE, math.inf)
