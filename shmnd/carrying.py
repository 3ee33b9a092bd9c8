# SPDX-License-Identifier: Apache-2.0
"""Who looks at requests in progress when nobody polls their completion queue?

They go on when somebody looks, so every thread that sleeps for something else does, be it another
queue: it looks before it sleeps, and has what moves those requests wake it. A queue that another
thread polls is left to that thread, and its traffic wakes nobody. And who polls one queue in vain
looks at the others now and then.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shmnd.protocols import Carrier, DataPlaneLike
    from shmnd.watch import Watch

__all__ = ["Carriers", "Vigil"]

_GRACE: Final = 0.01
"""Seconds for which nobody must have polled a queue, before those who sleep carry it on."""


class Carriers:
    """The completion queues of one hub."""

    def __init__(self) -> None:
        self._queues: dict[int, weakref.ref[Carrier]] = {}

    def add(self, queue: Carrier) -> None:
        """Have its requests carried on. It is held weakly."""
        key = id(queue)
        self._queues[key] = weakref.ref(queue, lambda _: self._queues.pop(key, None))

    def busy(self) -> list[Carrier]:
        """Those with requests in progress."""
        queues = [reference() for reference in list(self._queues.values())]
        return [queue for queue in queues if queue is not None and queue.busy]

    def look(self) -> None:
        """Carry all of them on, as far as they go now."""
        for queue in self.busy():
            queue.look()

    def clear(self) -> None:
        """After fork: all of them are the parent's."""
        self._queues.clear()


class Vigil:
    """What one sleeping thread does for queues that nobody looks at."""

    def __init__(self, carriers: Carriers, watch: Watch, data_plane: DataPlaneLike) -> None:
        self._carriers = carriers
        self._watch = watch
        self._data_plane = data_plane
        self._watched: list[Carrier] = []
        self._looks: dict[int, int] = {}

    def keep(self) -> None:
        """Before each sleep."""
        busy = self._carriers.busy()
        for queue in [*self._watched]:
            if queue not in busy or queue.looks != self._looks[id(queue)]:
                self._watched.remove(queue)
                queue.watch(False)
        for queue in busy:
            self._keep_over(queue)
        if not busy:
            self._data_plane.announce_next_request()

    def _keep_over(self, queue: Carrier) -> None:
        if queue not in self._watched:
            if queue.attended:
                return
            if self._looks.get(id(queue)) != queue.looks:  # or this is the first time
                self._looks[id(queue)] = queue.looks
                self._watch.wake_at(time.monotonic() + _GRACE)
                return
            queue.watch(True)
            self._watched.append(queue)
        queue.look()
        due = queue.due
        if due is not None:
            self._watch.wake_at(due)

    def end(self) -> None:
        """After the last sleep."""
        for queue in self._watched:
            queue.watch(False)
