# SPDX-License-Identifier: Apache-2.0
"""Communicators of one group, and the ways to make special ones of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Self

from shmnd.common.native import direct_calls
from shmnd.mpi import constants
from shmnd.mpi.collectives.pickled import ObjectScans
from shmnd.mpi.collectives.scans import ScanCalls
from shmnd.mpi.communicators.comm import NEWS, Comm
from shmnd.mpi.communicators.comm_state import CommState
from shmnd.mpi.communicators.from_groups import Making
from shmnd.mpi.communicators.group import Group, require_group
from shmnd.mpi.objects.errhandler import handle_new, raise_error
from shmnd.mpi.objects.handle import constant
from shmnd.mpi.objects.info import INFO_NULL, Info, require_info
from shmnd.mpi.objects.unsupported import left_out
from shmnd.mpi.transport import engine
from shmnd.mpi.transport.outer_call import OuterCall

_FROM_GROUPS = 8
"""The context for news of communicators that have no parent."""


def counted_up(index: list[int], edges: int) -> list[int]:
    """Return the index of a graph without the zero before it.

    There is one, as in mpi4py, if the last number counts all edges; else the first node has none.
    """
    return index[1:] if index and index[0] == 0 and index[-1] == edges else index


class Intracomm(Comm, ScanCalls, ObjectScans):
    """Intracommunicator."""

    def __new__(cls, comm: Comm | None = None) -> Self:
        """Return another handle to the same communicator."""
        self = super().__new__(cls, comm)
        if self.ob is not None and self.ob.inter:
            raise TypeError(f"{cls.__name__}: the communicator has two groups; use Intercomm")
        return self

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """Create communicator from group."""
        state = self._communicating("Create_group")
        if require_group(group, "Comm.Create_group").ob is None:
            raise_error(self, constants.ERR_GROUP, "Comm.Create_group: the group is null")
        members = group.ob.ranks
        if engine.rank() not in members:
            return self._made(None, "Intracomm")
        with self._calling("Create_group"):
            context = self._news(state.context + NEWS, tag, members[0], members)
        return self._born(CommState(context, members), "Intracomm")

    @classmethod
    def Create_from_group(
        cls,
        group: Group,
        stringtag: str = "org.mpi4py",
        info: Info = INFO_NULL,
        errhandler: Any = None,
    ) -> Intracomm:
        """Create communicator from group."""
        call = "Intracomm.Create_from_group"
        engine.require_open(call)
        require_info(info, call)
        self = cls()
        with Making(self, errhandler, call) as making:
            members = making.ranks(group)
            with OuterCall(call, repr(stringtag), _FROM_GROUPS):
                return self._from_group(members, stringtag, errhandler)

    def _from_group(self, members: tuple[int, ...], stringtag: str, errhandler: Any) -> Intracomm:
        if not members:
            nothing: Intracomm = self._made(None, "Intracomm")
            return nothing
        tag = zlib.crc32(stringtag.encode()) & constants.TAG_LIMIT
        context = self._news(_FROM_GROUPS, tag, members[0], members)
        new: Intracomm = self._made(CommState(context, members), "Intracomm")
        handle_new(new, errhandler)
        return new

    # -- topologies --

    def _topo(self, call: str, kind: str, **given: Any) -> Any:
        with self._calling(call):
            return self._kinds[kind]._make(self, **given)

    def Create_cart(
        self,
        dims: Sequence[int],
        periods: Sequence[bool] | bool | None = None,
        reorder: bool = False,
    ) -> Any:
        """Create cartesian communicator."""
        return self._topo("Create_cart", "Cartcomm", dims=dims, periods=periods)

    def Create_graph(
        self, index: Sequence[int], edges: Sequence[int], reorder: bool = False
    ) -> Any:
        """Create graph communicator."""
        return self._topo("Create_graph", "Graphcomm", index=index, edges=edges)

    def Create_dist_graph_adjacent(
        self,
        sources: Sequence[int],
        destinations: Sequence[int],
        sourceweights: Sequence[int] | None = None,
        destweights: Sequence[int] | None = None,
        info: Info = INFO_NULL,
        reorder: bool = False,
    ) -> Any:
        """Create distributed graph communicator."""
        require_info(info, "Comm.Create_dist_graph_adjacent")
        return self._topo(
            "Create_dist_graph_adjacent",
            "Distgraphcomm",
            sources=sources,
            destinations=destinations,
            sourceweights=sourceweights,
            destweights=destweights,
        )

    def Create_dist_graph(
        self,
        sources: Sequence[int],
        degrees: Sequence[int],
        destinations: Sequence[int],
        weights: Sequence[int] | None = None,
        info: Info = INFO_NULL,
        reorder: bool = False,
    ) -> Any:
        """Create distributed graph communicator."""
        require_info(info, "Comm.Create_dist_graph")
        kind = self._kinds["Distgraphcomm"]
        with self._calling("Create_dist_graph"):
            return kind._gather(self, sources, degrees, destinations, weights)

    def Cart_map(self, dims: Sequence[int], periods: Sequence[bool] | None = None) -> int:
        """Determine optimal process placement on a cartesian topology."""
        total = 1
        for each in dims:
            total *= each
        rank = self.Get_rank()
        return rank if rank < total else constants.UNDEFINED

    def Graph_map(self, index: Sequence[int], edges: Sequence[int]) -> int:
        """Determine optimal process placement on a graph topology."""
        rank = self.Get_rank()
        nodes = len(counted_up([int(each) for each in index], len(edges)))
        return rank if rank < nodes else constants.UNDEFINED

    # -- two groups, other processes --

    def Create_intercomm(
        self, local_leader: int, peer_comm: Intracomm, remote_leader: int, tag: int = 0
    ) -> Any:
        """Create intercommunicator."""
        return self._kinds["Intercomm"]._make(self, local_leader, peer_comm, remote_leader, tag)

    def Spawn(self, *args: Any, **kwargs: Any) -> Any:
        """Spawn instances of a single MPI application."""
        raise left_out("Intracomm.Spawn")

    def Spawn_multiple(self, *args: Any, **kwargs: Any) -> Any:
        """Spawn instances of multiple MPI applications."""
        raise left_out("Intracomm.Spawn_multiple")

    def Accept(self, port_name: str, info: Info = INFO_NULL, root: int = 0) -> Any:
        """Accept a request to form a new intercommunicator."""
        raise left_out("Intracomm.Accept")

    def Connect(self, port_name: str, info: Info = INFO_NULL, root: int = 0) -> Any:
        """Make a request to form a new intercommunicator."""
        raise left_out("Intracomm.Connect")


def _predefined(name: str, context: int, ranks: tuple[int, ...]) -> Intracomm:
    comm = Intracomm()
    comm.ob = CommState(context, ranks)
    comm.ob.name = "MPI_" + name
    return constant(comm, name)


Comm._kinds["Intracomm"] = direct_calls(Intracomm)
COMM_WORLD = _predefined("COMM_WORLD", 0, tuple(range(engine.size())))
COMM_SELF = _predefined("COMM_SELF", 8, (engine.rank(),))
