# SPDX-License-Identifier: Apache-2.0
"""What communicators of every topology share: neighbours, and how such a communicator is made."""

from __future__ import annotations

from typing import Any, Self

from shmnd.common.native import direct_calls
from shmnd.mpi.collectives.neighbors import NeighborCalls, NeighborObjects
from shmnd.mpi.communicators.comm import Comm
from shmnd.mpi.communicators.comm_state import CommState
from shmnd.mpi.communicators.contexts import agreed_contexts
from shmnd.mpi.communicators.intracomm import Intracomm
from shmnd.mpi.objects.errhandler import for_new


class Topocomm(Intracomm, NeighborCalls, NeighborObjects):
    """Topology intracommunicator."""

    def __new__(cls, comm: Comm | None = None) -> Self:
        """Return another handle to the same communicator."""
        self = super().__new__(cls, comm)
        if self.ob is not None and not self._has(self.ob.topology):
            raise TypeError(f"{cls.__name__}: the communicator has no topology of this kind")
        return self

    @classmethod
    def _has(cls, topology: Any) -> bool:
        return topology is not None

    def _topology(self, call: str) -> Any:
        return self._state(call).topology

    @property
    def degrees(self) -> tuple[int, int]:
        """Number of incoming and outgoing neighbors."""
        return self.indegree, self.outdegree

    @property
    def indegree(self) -> int:
        """Number of incoming neighbors."""
        return len(self.inedges)

    @property
    def outdegree(self) -> int:
        """Number of outgoing neighbors."""
        return len(self.outedges)

    @property
    def inoutedges(self) -> tuple[list[int], list[int]]:
        """Incoming and outgoing neighbors."""
        return self.inedges, self.outedges

    @property
    def inedges(self) -> list[int]:
        """Incoming neighbors."""
        return list(self._topology("inedges").around(self.Get_rank())[0])

    @property
    def outedges(self) -> list[int]:
        """Outgoing neighbors."""
        return list(self._topology("outedges").around(self.Get_rank())[1])


def on_first_ranks(cls: type, parent: Intracomm, count: int, topology: Any) -> Any:
    """Return a communicator of the first `count` ranks with a topology, null on the others."""
    context = agreed_contexts(parent, 1)
    ranks = parent.ob.group[:count]
    new = cls()
    if parent.Get_rank() < count:
        new.ob = CommState(context, ranks)
        new.ob.topology = topology
        new.ob.errhandler = for_new(parent.ob.errhandler)
    return new


Comm._kinds["Topocomm"] = direct_calls(Topocomm)
