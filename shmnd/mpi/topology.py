# SPDX-License-Identifier: Apache-2.0
"""Communicators whose ranks have neighbours: cartesian grids and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from shmnd.mpi import constants
from shmnd.mpi.comm import Comm
from shmnd.mpi.comm_state import CommState
from shmnd.mpi.constants import UNWEIGHTED, WEIGHTS_EMPTY
from shmnd.mpi.errhandler import raise_error
from shmnd.mpi.intracomm import Intracomm
from shmnd.mpi.neighbor import NeighborCalls, NeighborObjects


class Cart(NamedTuple):
    """A grid."""

    dims: tuple[int, ...]
    periods: tuple[int, ...]
    kind: int = constants.CART

    def coords(self, rank: int) -> list[int]:
        """Return where a rank lies."""
        found = []
        for extent in reversed(self.dims):
            found.append(rank % extent)
            rank //= extent
        return found[::-1]

    def rank(self, coords: Sequence[int]) -> int:
        """Return the rank at coordinates, PROC_NULL beyond an edge."""
        rank = 0
        for at, extent, periodic in zip(coords, self.dims, self.periods, strict=True):
            if not 0 <= at < extent and not periodic:
                return constants.PROC_NULL
            rank = rank * extent + at % extent
        return rank

    def shifted(self, rank: int, direction: int, by: int) -> int:
        """Return the rank `by` steps away."""
        coords = self.coords(rank)
        coords[direction] += by
        return self.rank(coords)

    def around(self, rank: int) -> tuple[list[int], list[int]]:
        """Return the neighbours that a rank receives from and sends to."""
        found = [
            self.shifted(rank, direction, by)
            for direction in range(len(self.dims))
            for by in (-1, 1)
        ]
        return found, found


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


class Cartcomm(Topocomm):
    """Cartesian topology intracommunicator."""

    @classmethod
    def _has(cls, topology: Any) -> bool:
        return isinstance(topology, Cart)

    @classmethod
    def _make(cls, parent: Intracomm, dims: Sequence[int], periods: Any) -> Cartcomm:
        parent._state("Create_cart")
        dims = [int(each) for each in dims]
        if periods is None:
            periods = False
        if isinstance(periods, bool):
            periods = [periods] * len(dims)
        periods = [int(bool(each)) for each in periods]
        if len(periods) != len(dims):
            raise ValueError(f"expecting {len(dims)} items, got {len(periods)}")
        total = 1
        for each in dims:
            total *= each
        size = parent.Get_size()
        if total > size or any(each <= 0 for each in dims):
            raise_error(
                parent,
                constants.ERR_DIMS,
                f"Comm.Create_cart: dims {dims} are {total} places, the communicator has {size}",
            )
        topology = Cart(tuple(dims), tuple(periods))
        new: Cartcomm = _first(cls, parent, total, topology)
        return new

    def Get_dim(self) -> int:
        """Return number of dimensions."""
        return len(self._topology("Get_dim").dims)

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.Get_dim()

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.Get_dim()

    def Get_topo(self) -> tuple[list[int], list[int], list[int]]:
        """Return information on the cartesian topology."""
        found = self._topology("Get_topo")
        return list(found.dims), list(found.periods), found.coords(self.Get_rank())

    @property
    def topo(self) -> tuple[list[int], list[int], list[int]]:
        """Topology information."""
        return self.Get_topo()

    @property
    def dims(self) -> list[int]:
        """Dimensions."""
        return self.Get_topo()[0]

    @property
    def periods(self) -> list[int]:
        """Periodicity."""
        return self.Get_topo()[1]

    @property
    def coords(self) -> list[int]:
        """Coordinates."""
        return self.Get_topo()[2]

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """Translate logical coordinates to ranks."""
        found = self._topology("Get_cart_rank")
        coords = list(coords)
        if len(coords) != len(found.dims):
            raise ValueError(f"expecting {len(found.dims)} items, got {len(coords)}")
        rank: int = found.rank(coords)
        if rank == constants.PROC_NULL:
            raise_error(
                self,
                constants.ERR_ARG,
                f"Cartcomm.Get_cart_rank: coords {coords} lie outside of {list(found.dims)}",
            )
        return rank

    def Get_coords(self, rank: int) -> list[int]:
        """Translate ranks to logical coordinates."""
        found = self._topology("Get_coords")
        if not 0 <= rank < self.Get_size():
            raise_error(
                self,
                constants.ERR_RANK,
                f"Cartcomm.Get_coords: rank {rank}, the grid has {self.Get_size()}",
            )
        coords: list[int] = found.coords(rank)
        return coords

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Return a process ranks for data shifting with `Comm.Sendrecv`."""
        found = self._topology("Shift")
        if not 0 <= direction < len(found.dims):
            raise_error(
                self,
                constants.ERR_DIMS,
                f"Cartcomm.Shift: direction {direction}, the grid has {len(found.dims)}",
            )
        rank = self.Get_rank()
        return found.shifted(rank, direction, -disp), found.shifted(rank, direction, disp)

    def Sub(self, remain_dims: Sequence[bool]) -> Cartcomm:
        """Return a lower-dimensional communicator topology."""
        found = self._topology("Sub")
        remain = [bool(each) for each in remain_dims]
        if len(remain) != len(found.dims):
            raise ValueError(f"expecting {len(found.dims)} items, got {len(remain)}")
        coords = found.coords(self.Get_rank())
        color = key = 0
        for at, extent, stays in zip(coords, found.dims, remain, strict=True):
            if stays:
                key = key * extent + at
            else:
                color = color * extent + at
        plain = self.Split(color, key)
        plain.ob.topology = Cart(
            tuple(n for n, stays in zip(found.dims, remain, strict=True) if stays),
            tuple(n for n, stays in zip(found.periods, remain, strict=True) if stays),
        )
        new: Cartcomm = self._made(plain.ob, "Cartcomm")
        return new


class Graphcomm(Topocomm):
    """General graph topology intracommunicator."""

    @classmethod
    def _has(cls, topology: Any) -> bool:
        return isinstance(topology, Graph)

    @classmethod
    def _make(cls, parent: Intracomm, index: Sequence[int], edges: Sequence[int]) -> Graphcomm:
        parent._state("Create_graph")
        index = [int(each) for each in index]
        if len(index) > 1 and index[0] == 0:
            index = index[1:]  # the form with the zero before it
        nodes = len(index)
        size = parent.Get_size()
        if nodes > size:
            raise_error(
                parent,
                constants.ERR_ARG,
                f"Comm.Create_graph: {nodes} nodes, the communicator has {size}",
            )
        new: Graphcomm = _first(cls, parent, nodes, Graph(tuple(index), tuple(edges)))
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
        ins, outs = tuple(sources or ()), tuple(destinations or ())
        in_weights, weighted_in = _weights(sourceweights, len(ins))
        out_weights, weighted_out = _weights(destweights, len(outs))
        weighted = weighted_in or weighted_out
        topology = DistGraph(
            ins, outs, in_weights if weighted else None, out_weights if weighted else None
        )
        new: Distgraphcomm = _first(cls, parent, parent.Get_size(), topology)
        return new

    @classmethod
    def _gather(
        cls, parent: Intracomm, sources: Any, degrees: Any, destinations: Any, weights: Any
    ) -> Distgraphcomm:
        """Make one of edges that any rank may name."""
        parent._state("Create_dist_graph")
        sources, degrees = list(sources), list(degrees)
        if len(degrees) != len(sources):
            raise ValueError(f"expecting {len(sources)} items, got {len(degrees)}")
        ends = list(destinations)
        values, weighted = _weights(weights, len(ends))
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
        new: Distgraphcomm = _first(cls, parent, parent.Get_size(), topology)
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


def _weights(given: Any, count: int) -> tuple[tuple[int, ...], bool]:
    """Return weights for `count` edges, and whether there are any."""
    if given is None or (isinstance(given, int) and given == UNWEIGHTED):
        return (1,) * count, False
    if isinstance(given, int) and given == WEIGHTS_EMPTY:
        given = ()
    weights = tuple(int(each) for each in given)
    if len(weights) != count:
        raise ValueError(f"expecting {count} items, got {len(weights)}")
    return weights, True


def _first(cls: type, parent: Intracomm, count: int, topology: Any) -> Any:
    """Return a communicator of the first `count` ranks with a topology, null on the others."""
    context = parent._agreed_contexts(1)
    ranks = parent.ob.group[:count]
    new = cls()
    if parent.Get_rank() < count:
        new.ob = CommState(context, ranks)
        new.ob.topology = topology
        new.ob.errhandler = parent.ob.errhandler
    return new


def compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Return a balanced distribution of processes per coordinate direction."""
    found = [0] * dims if isinstance(dims, int) else [int(each) for each in dims]
    fixed = 1
    for each in found:
        if each < 0:
            raise_error(None, constants.ERR_DIMS, f"Compute_dims: {each} is negative")
        fixed *= each or 1
    if nnodes < 1 or nnodes % fixed:
        raise_error(None, constants.ERR_DIMS, f"Compute_dims: {nnodes} nodes do not fit {found}")
    free = [i for i, each in enumerate(found) if each == 0]
    if not free and fixed != nnodes:
        raise_error(None, constants.ERR_DIMS, f"Compute_dims: {found} are not {nnodes} nodes")
    sizes = [1] * len(free)
    for factor in _factors(nnodes // fixed):
        smallest = min(range(len(sizes)), key=sizes.__getitem__)
        sizes[smallest] *= factor
    for i, each in zip(free, sorted(sizes, reverse=True), strict=True):
        found[i] = each
    return found


def _factors(number: int) -> list[int]:
    """Return the prime factors, the largest first."""
    found = []
    factor = 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found[::-1]


for _each in (Topocomm, Cartcomm, Graphcomm, Distgraphcomm):
    Comm._kinds[_each.__name__] = _each
