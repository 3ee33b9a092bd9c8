# SPDX-License-Identifier: Apache-2.0
"""Items of a queue: an object is packed into a block, and unpacked from it."""

from collections.abc import Callable
from typing import Any

from shmnd.ipc.queue.queue_memory import QueueMemory

class QueueItems(QueueMemory):
    """What packs and unpacks the items of a queue."""

    partly: Callable[[bytes, BaseException], Any] | None

    def pack(self, obj: object) -> int:
        """Copy an object into a block that is not sent yet; return the block."""
    def drop(self, box: list[int], born: int = 0) -> None:
        """Empty a box, and free its block unless that is the parent's: one step for handlers."""
