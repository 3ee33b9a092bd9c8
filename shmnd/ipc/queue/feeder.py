# SPDX-License-Identifier: Apache-2.0
"""The items of one process that found no room in a queue without a limit, and their thread.

A thread puts them, in order, when there is room; it ends with the last one. At the end of the
process it is waited for, as `multiprocessing.Queue` does.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.held import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmnd.ipc.queue.queue_core import QueueCore

__all__ = ["Feeder"]


class Feeder:
    """Keeps packed items and puts them later. It refers to no queue, but while it has items."""

    def __init__(self, core: QueueCore) -> None:
        self.items: Final[deque[int]] = deque()
        self._core: Final = core
        self._lock: Final = threading.RLock()  # a handler of a signal may put
        self._thread: threading.Thread | None = None
        self._joined_at_exit = True
        self._exit: Any = None

    @property
    def is_busy(self) -> bool:
        """Whether items wait to be put."""
        return self._thread is not None

    def keep(self, box: list[int], wait_for_room: Callable[[float, bool], None]) -> None:
        """Keep the item of a box until there is room, and empty the box.

        `wait_for_room` is called in the thread, with a time limit and whether a call has failed.
        """
        with Held(self._lock):
            if self._thread is None:
                self._begin(wait_for_room)
            self._core.set_behind(len(self.items) + 1)
            # One step, behind which a handler of a signal may raise: the item is in one place.
            self.items.extend(map(box.pop, (0,)))

    def _begin(self, wait_for_room: Callable[[float, bool], None]) -> None:
        """Start the thread, which waits for the lock; what raises leaves all as it was."""
        thread = threading.Thread(
            target=self._feed, args=(wait_for_room,), name="shmnd-queue-feeder", daemon=True
        )
        thread.start()
        if self._thread is not None:  # a handler of a signal has put, and started another one
            return
        self._thread = thread
        if self._joined_at_exit:  # at the end of the process, unless the thread is gone by then
            self._exit = util.Finalize(thread, _join, [weakref.ref(thread)], exitpriority=-5)

    def _feed(self, wait_for_room: Callable[[float, bool], None]) -> None:
        while True:
            with Held(self._lock):
                if self._thread is not threading.current_thread():
                    return
                if not self.items:
                    self._core.set_behind(0)
                    self._thread = None
                    return
                first = self.items[0]
            failed = False
            while not self._core.push([first]):
                wait_for_room(math.inf, failed)
                failed = True
            with Held(self._lock):
                self.items.popleft()
                self._core.set_behind(len(self.items))

    def join(self) -> None:
        """Wait until all items are put."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def abandon_at_exit(self) -> None:
        """Let the process end before all items are put."""
        self._joined_at_exit = False
        if self._exit is not None:
            self._exit.cancel()


def _join(reference: weakref.ref[threading.Thread]) -> None:
    thread = reference()
    if thread is not None:
        thread.join()
