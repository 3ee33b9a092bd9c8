# SPDX-License-Identifier: Apache-2.0
"""Version 1 of the interface as a subject: the same traffic through `shmnd.nd1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import shmnd.nd1 as nd

from ..loops.nd1_lane import Nd1Lane
from .own import HOST, Shmnd, ShmndEnd

if TYPE_CHECKING:
    from ..loops.lane import Depths, Queues
    from ..measure.question import Question


class ShmndNd1(Shmnd):
    """Two processes on version 1, every message posted and reaped from Python."""

    name: ClassVar[str] = "shmnd nd1"
    end: ClassVar[str] = ".subjects.nd1:Nd1End"
    engine: ClassVar[str] = "nd1"


class Nd1End(ShmndEnd):
    """One of the two processes."""

    def open(self, namespace: str | None) -> Any:
        """Return a new adapter of version 1."""
        return nd.Provider().open_adapter(HOST, namespace=namespace)

    def listen(self) -> Any:
        """Return a new listen."""
        return self.adapter.listen()

    def lane(self, question: Question, depths: Depths, queues: Queues, place: int) -> Any:
        """Make this side of a connection."""
        return Nd1Lane(self.adapter, question, depths, queues, place)
