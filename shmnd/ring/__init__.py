# SPDX-License-Identifier: Apache-2.0
"""The data plane: memory that processes share, and what moves through it.

Compiled. It knows statuses and nothing else of the rooms above it.
"""

from shmnd.ring.arena import Arena, Block
from shmnd.ring.memory import Registry, Sge
from shmnd.ring.peer import Link, PeerAdapter, doorbell_ring
from shmnd.ring.qp import QueuePair
from shmnd.ring.queue import CompletionCore, ReceiveCore, Result
from shmnd.ring.segment import Segment

__all__ = [
    "Arena",
    "Block",
    "CompletionCore",
    "Link",
    "PeerAdapter",
    "QueuePair",
    "ReceiveCore",
    "Registry",
    "Result",
    "Segment",
    "Sge",
    "doorbell_ring",
]
