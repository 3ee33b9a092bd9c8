# SPDX-License-Identifier: Apache-2.0
"""The data plane: memory that processes share, and what moves through it.

Compiled. It knows nothing of the rooms above it.
"""

import sys

from shmnd.ring.process.peer import Link, PeerAdapter
from shmnd.ring.queues.completion_queue import CompletionCore, Result
from shmnd.ring.queues.queue_pair import QueuePair
from shmnd.ring.queues.shared_receive_queue import ReceiveCore
from shmnd.ring.shared_memory.arena import Arena, Block
from shmnd.ring.shared_memory.registry import Registry, Sge
from shmnd.ring.shared_memory.segment import Segment

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
]


def _require_gil() -> None:
    """Refuse an interpreter that goes on without the GIL after these modules have asked for it.

    What a thread does with a queue pair, a completion queue or the tables of an adapter is one
    step for the others because of the GIL; without it they would see the halves.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "shmnd relies on the GIL, and this interpreter is told to do without it; run it "
            "without PYTHON_GIL=0 and -X gil=0"
        )


_require_gil()
