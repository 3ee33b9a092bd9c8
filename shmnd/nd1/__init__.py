# SPDX-License-Identifier: Apache-2.0
"""Version 1 of the interface (INDEndpoint and its family), as a face over version 2.

Results are the caller's own objects; registered memory is named by handles; remote memory is
reached through bound windows alone; endpoints are made by connectors.
"""

from shmnd.nd1.adapter import Adapter
from shmnd.nd1.completion_queue import CompletionQueue
from shmnd.nd1.connector import Connector
from shmnd.nd1.endpoint import Endpoint
from shmnd.nd1.info import ADAPTER_INFO_SIZE, ND_VERSION_1, AdapterInfo
from shmnd.nd1.listen import Listen
from shmnd.nd1.memory_window import MemoryWindow
from shmnd.nd1.messages import MwDescriptor, Result, Sge
from shmnd.nd1.provider import Provider

__all__ = [
    "ADAPTER_INFO_SIZE",
    "ND_VERSION_1",
    "Adapter",
    "AdapterInfo",
    "CompletionQueue",
    "Connector",
    "Endpoint",
    "Listen",
    "MemoryWindow",
    "MwDescriptor",
    "Provider",
    "Result",
    "Sge",
]


def __dir__() -> list[str]:
    """Return the names of the interface alone."""
    return sorted({*(name for name in globals() if name.startswith("_")), *__all__})
