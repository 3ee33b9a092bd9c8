# SPDX-License-Identifier: Apache-2.0
"""One part for each queue of this process, from its descriptor on."""

from shmnd.ipc.queue.queue_core import QueueCore

__all__ = ["core_here", "core_of", "new_core"]

def core_of(fd: int) -> QueueCore:
    """Return this process's part in the queue of a descriptor, which it takes over."""

def new_core(slots: int, limited: bool) -> QueueCore:
    """Return this process's part in a new queue."""

def core_here(device: object, number: object) -> QueueCore | None:
    """Return this process's part in the queue of a file; None if it has none."""
