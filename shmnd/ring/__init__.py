# SPDX-License-Identifier: Apache-2.0
"""The data plane: memory that processes share, and the messages and completions in it.

Its modules are compiled and import no package above this one.
"""

import sys

from shmnd.ring.process.peer import Link, PeerAdapter
from shmnd.ring.queues.notifying import NotifyCore
from shmnd.ring.queues.polling import Result
from shmnd.ring.queues.queue_pair import QueuePair
from shmnd.ring.queues.shared_receive_queue import ReceiveCore
from shmnd.ring.shared_memory.arena import Arena, Block
from shmnd.ring.shared_memory.registry import Registry
from shmnd.ring.shared_memory.segment import Segment
from shmnd.ring.shared_memory.sge import Sge

__all__ = [
    "Arena",
    "Block",
    "Link",
    "NotifyCore",
    "PeerAdapter",
    "QueuePair",
    "ReceiveCore",
    "Registry",
    "Result",
    "Segment",
    "Sge",
]


def _require_gil() -> None:
    """Raise ImportError if the interpreter runs without the GIL although these modules need it.

    The GIL makes the operations of a thread on a queue pair, a completion queue or the tables of
    an adapter atomic for the other threads; without it they would see incomplete states.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "shmnd requires the GIL, which is disabled in this interpreter; run it "
            "without PYTHON_GIL=0 and -X gil=0"
        )


_require_gil()
