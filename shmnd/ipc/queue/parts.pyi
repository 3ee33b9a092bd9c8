# SPDX-License-Identifier: Apache-2.0
"""One part for each queue of this process, from its descriptor on."""

from shmnd.ipc.naming.shared_name import Holder
from shmnd.ipc.queue.queue_core import QueueCore

__all__ = ["core_here", "core_of", "new_core", "taken_over"]

def core_of(file: Holder) -> QueueCore:
    """Return this process's part in the queue of a descriptor, which it takes over."""

def new_core(slots: int, limited: bool) -> QueueCore:
    """Return this process's part in a new queue."""

def core_here(device: object, number: object) -> QueueCore | None:
    """Return this process's part in the queue of a file; None if it has none."""

def taken_over(fd: int) -> bool:
    """Take over another descriptor of a queue, if this process has a part in that.

    To close it would end the locks of the part.
    """
