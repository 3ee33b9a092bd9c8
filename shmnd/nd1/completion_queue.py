# SPDX-License-Identifier: Apache-2.0
"""The completion queue of version 1: returns to callers the results that they posted with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmnd.common.closing import made_by
from shmnd.common.native import direct_calls
from shmnd.completion_queue import CompletionQueue as CompletionQueue2
from shmnd.nd1.messages import ReapingCore

if TYPE_CHECKING:
    from shmnd.nd1.adapter_like import AdapterLike
    from shmnd.overlapped import OverlappedFile

__all__ = ["CompletionQueue"]


@direct_calls
@made_by("Adapter.create_completion_queue")
class CompletionQueue(ReapingCore, CompletionQueue2):
    """A queue of results for any number of endpoints, for either direction."""

    _depth_name = "entries"

    def __init__(self, nd1_adapter: AdapterLike, entries: int, file: OverlappedFile) -> None:
        CompletionQueue2.__init__(self, nd1_adapter._core, entries, file)
        self._nd1_adapter = nd1_adapter
        """The adapter that made it; it keeps its registrations alive."""

    def resize(self, entries: int) -> None:
        """Change how many results the queue holds. Nothing is lost; traffic may continue."""
        super().resize(entries)
