# SPDX-License-Identifier: Apache-2.0
"""The data plane: memory that processes share, and the messages and completions in it.

Its modules are compiled and import no package above this one. Each is loaded when a name of it is
first asked for: a program that needs a segment alone, as the launcher of ranks, loads no queues.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from shmnd.common import require_gil

if TYPE_CHECKING:
    from shmnd.ring.process.peer import Link, PeerAdapter
    from shmnd.ring.queues.notifying import NotifyCore
    from shmnd.ring.queues.queue_pair import QueuePair
    from shmnd.ring.queues.results import Result
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

_HOME: Final = {
    "Arena": "shared_memory.arena",
    "Block": "shared_memory.arena",
    "Link": "process.peer",
    "NotifyCore": "queues.notifying",
    "PeerAdapter": "process.peer",
    "QueuePair": "queues.queue_pair",
    "ReceiveCore": "queues.shared_receive_queue",
    "Registry": "shared_memory.registry",
    "Result": "queues.results",
    "Segment": "shared_memory.segment",
    "Sge": "shared_memory.sge",
}


require_gil()


def __getattr__(name: str) -> object:
    """Return an object of the data plane, and load its module when it is first asked for."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
