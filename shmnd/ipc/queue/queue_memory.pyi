# SPDX-License-Identifier: Apache-2.0
"""The memory of a queue: which member has which part of it."""

from shmnd.ipc.queue.queue_members import QueueMembers

class QueueMemory(QueueMembers):
    """This process's part in a queue."""
