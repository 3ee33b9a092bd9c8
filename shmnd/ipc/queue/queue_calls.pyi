# SPDX-License-Identifier: Apache-2.0
"""The compiled part of `put` and `get`: most calls do not wait, and end here."""

from collections import deque
from collections.abc import MutableMapping
from typing import Any

from shmnd.ipc.common.ringing import Bell
from shmnd.ipc.queue.queue_core import QueueCore

__all__ = ["QueueCalls"]

class QueueCalls:
    """`put` and `get` of a queue, as far as they do not wait."""

    _core: QueueCore
    _closed: bool
    _behind: deque[int]
    _bell: Bell | None
    _maxsize: int
    def _keep_from_children(self) -> None:
        """Have children refuse it: it belongs to an object of this process."""
    def put(self, obj: object, block: bool = True, timeout: float | None = None) -> None:
        """Append an object; `queue.Full` when there is no room in time, ValueError when closed."""
    def _put_noted(
        self,
        obj: object,
        block: bool,
        timeout: float | None,
        noted: tuple[MutableMapping[int, int], int],
        born: int = 0,
    ) -> None: ...
    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return the first item; `queue.Empty` when none comes in time."""
    def _get_into(
        self, box: list[Any], block: bool = True, timeout: float | None = None
    ) -> None: ...
