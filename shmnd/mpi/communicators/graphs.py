# SPDX-License-Identifier: Apache-2.0
"""Communicators whose ranks are the nodes of a graph: known whole, or each rank its own edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shmnd.common.native import direct_calls
from shmnd.mpi import constants
from shmnd.mpi.communicators.comm import Comm
from shmnd.mpi.communicators.integers import integer, integers
from shmnd.mpi.communicators.intracomm import Intracomm, counted_up
from shmnd.mpi.communicators.topology import Topocomm, on_first_ranks
from shmnd.mpi.constants import UNWEIGHTED, WEIGHTS_EMPTY
from shmnd.mpi.objects.errhandler import raise_error


class Graph(NamedTuple):
    """A graph that every rank knows whole."""

    ends: tuple[int, ...]
    edges: tuple[int, ...]
    kind: int = constants.GRAPH

    def of(self, rank: int) -> list[int]:
        """Return the neighbours of a rank."""
        first = self.ends[rank - 1] if rank else 0
        return list(self.edges[first : self.ends[rank]])

    def around(self, rank: int) -> tuple[list[int], list[int]]:
        """Return the neighbours that a rank receives from and sends to."""
        return self.of(rank), self.of(rank)


class DistGraph(NamedTuple):
    """The edges of one rank."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    source_weights: tuple[int, ...] | None
    dest_weights: tuple[int, ...] | None
    kind: int = constants.DIST_GRAPH

    def around(self, rank: int) -> tuple[list[int], list[int]]:
        """Return the neighbours that the rank receives from and sends to."""
        return list(self.sources), list(self.destinations)


class Graphcomm(Topocomm):
    """General graph topology intracommunicator."""

    @classmethod
    def _has(cls, topology: Any) -> bool:
        return isinstance(topology, Graph)

    @classmethod
    def _make(cls, parent: Intracomm, index: Sequence[int], edges: Sequence[int]) -> Graphcomm:
        parent._state("Create_graph")
        index = counted_up(integers(index, "Comm", "Create_graph", "index"), len(edges))
        nodes = len(index)
        size = parent.Get_size()
        if nodes > size:
            raise_error(
                parent,
                constants.ERR_ARG,
                f"Comm.Create_graph: {nodes} nodes, the communicator has {size}",
            )
        known = edges[: index[-1] if index else 0]
        edges = tuple(integers(known, "Comm", "Create_graph", "edges"))
        _check_edges(parent, edges, nodes, "Create_graph", constants.ERR_ARG)
        if index != sorted(index) or any(each < 0 for each in index) or index[-1:] > [len(edges)]:
            raise_error(
                parent,
                constants.ERR_ARG,
                f"Comm.Create_graph: index {index} does not count {len(edges)} edges up",
            )
        new: Graphcomm = on_first_ranks(cls, parent, nodes, Graph(tuple(index), edges))
        return new

    def Get_dims(self) -> tuple[int, int]:
        """Return the number of nodes and edges."""
        found = self._topology("Get_dims")
        return len(found.ends), len(found.edges)

    @property
    def dims(self) -> tuple[int, int]:
        """Number of nodes and edges."""
        return self.Get_dims()

    @property
    def nnodes(self) -> int:
        """Number of nodes."""
        return self.Get_dims()[0]

    @property
    def nedges(self) -> int:
        """Number of edges."""
        return self.Get_dims()[1]

    def Get_topo(self) -> tuple[list[int], list[int]]:
        """Return index and edges."""
        found = self._topology("Get_topo")
        return list(found.ends), list(found.edges)

    @property
    def topo(self) -> tuple[list[int], list[int]]:
        """Topology information."""
        return self.Get_topo()

    @property
    def index(self) -> list[int]:
        """Index."""
        return self.Get_topo()[0]

    @property
    def edges(self) -> list[int]:
        """Edges."""
        return self.Get_topo()[1]

    def Get_neighbors_count(self, rank: int) -> int:
        """Return number of neighbors of a process."""
        return len(self.Get_neighbors(rank))

    @property
    def nneighbors(self) -> int:
        """Number of neighbors."""
        return self.Get_neighbors_count(self.Get_rank())

    def Get_neighbors(self, rank: int) -> list[int]:
        """Return list of neighbors of a process."""
        found = self._topology("Get_neighbors")
        rank = integer(rank, "Graphcomm", "Get_neighbors", "rank")
        if not 0 <= rank < len(found.ends):
            raise_error(
                self,
                constants.ERR_RANK,
                f"Graphcomm.Get_neighbors: rank {rank}, the graph has {len(found.ends)} nodes",
            )
        neighbors: list[int] = found.of(rank)
        return neighbors

    @property
    def neighbors(self) -> list[int]:
        """Neighbors."""
        return self.Get_neighbors(self.Get_rank())


class Distgraphcomm(Topocomm):
    """Distributed graph topology intracommunicator."""

    @classmethod
    def _has(cls, topology: Any) -> bool:
        return isinstance(topology, DistGraph)

    @classmethod
    def _make(
        cls,
        parent: Intracomm,
        sources: Any,
        destinations: Any,
        sourceweights: Any,
        destweights: Any,
    ) -> Distgraphcomm:
        parent._state("Create_dist_graph_adjacent")
        call = "Create_dist_graph_adjacent"
        ins = tuple(integers(() if sources is None else sources, "Comm", call, "sources"))
        outs = tuple(
            integers(() if destinations is None else destinations, "Comm", call, "destinations")
        )
        _check_edges(parent, (*ins, *outs), parent.Get_size(), call, constants.ERR_RANK)
        in_weights, weighted_in = _weights(sourceweights, len(ins), call)
        out_weights, weighted_out = _weights(destweights, len(outs), call)
        weighted = weighted_in or weighted_out
        topology = DistGraph(
            ins, outs, in_weights if weighted else None, out_weights if weighted else None
        )
        new: Distgraphcomm = on_first_ranks(cls, parent, parent.Get_size(), topology)
        return new

    @classmethod
    def _gather(
        cls, parent: Intracomm, sources: Any, degrees: Any, destinations: Any, weights: Any
    ) -> Distgraphcomm:
        """Make one of edges that any rank may name."""
        parent._state("Create_dist_graph")
        call = "Create_dist_graph"
        sources = integers(sources, "Comm", call, "sources")
        degrees = integers(degrees, "Comm", call, "degrees")
        ends = integers(destinations, "Comm", call, "destinations")
        if len(degrees) != len(sources):
            raise ValueError(
                f"Comm.{call}: degrees: expecting {len(sources)} items, got {len(degrees)}"
            )
        _check_edges(parent, (*sources, *ends), parent.Get_size(), call, constants.ERR_RANK)
        if min(degrees, default=0) < 0 or sum(degrees) != len(ends):
            raise ValueError(f"Comm.{call}: degrees {degrees} and {len(ends)} destinations")
        values, weighted = _weights(weights, len(ends), call)
        edges = []
        at = 0
        for source, degree in zip(sources, degrees, strict=True):
            for _ in range(degree):
                edges.append((source, ends[at], values[at] if values else 1))
                at += 1
        every = [edge for part in parent.allgather((edges, weighted)) for edge in part[0]]
        rank = parent.Get_rank()
        ins = [(source, weight) for source, end, weight in every if end == rank]
        outs = [(end, weight) for source, end, weight in every if source == rank]
        topology = DistGraph(
            tuple(each[0] for each in ins),
            tuple(each[0] for each in outs),
            tuple(each[1] for each in ins) if weighted else None,
            tuple(each[1] for each in outs) if weighted else None,
        )
        new: Distgraphcomm = on_first_ranks(cls, parent, parent.Get_size(), topology)
        return new

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        """Return adjacency information for a distributed graph topology."""
        found = self._topology("Get_dist_neighbors_count")
        return (
            len(found.sources),
            len(found.destinations),
            found.source_weights is not None,
        )

    def Get_dist_neighbors(
        self,
    ) -> tuple[list[int], list[int], tuple[list[int], list[int]] | None]:
        """Return adjacency information for a distributed graph topology."""
        found = self._topology("Get_dist_neighbors")
        weights = None
        if found.source_weights is not None:
            weights = (list(found.source_weights), list(found.dest_weights))
        return list(found.sources), list(found.destinations), weights


def _check_edges(
    parent: Intracomm, edges: tuple[int, ...], nodes: int, call: str, error_class: int
) -> None:
    """Raise an error for an edge to no node of the graph; PROC_NULL is allowed."""
    for each in edges:
        if not 0 <= each < nodes and each != constants.PROC_NULL:
            raise_error(
                parent,
                error_class,
                f"Comm.{call}: an edge with {each}; the nodes are 0 to {nodes - 1}",
            )


def _weights(given: Any, count: int, call: str) -> tuple[tuple[int, ...], bool]:
    """Return weights for `count` edges, and whether there are any."""
    if given is None or (isinstance(given, int) and given == UNWEIGHTED):
        return (1,) * count, False
    if isinstance(given, int) and given == WEIGHTS_EMPTY:
        given = ()
    weights = tuple(integers(given, "Comm", call, "weights"))
    if len(weights) != count:
        raise ValueError(f"Comm.{call}: weights: expecting {count} items, got {len(weights)}")
    return weights, True


for _each in (Graphcomm, Distgraphcomm):
    Comm._kinds[_each.__name__] = direct_calls(_each)
