# SPDX-License-Identifier: Apache-2.0
"""Communicators whose ranks lie in a cartesian grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shmnd.common.native import direct_calls
from shmnd.mpi import constants
from shmnd.mpi.communicators.comm import Comm
from shmnd.mpi.communicators.integers import integer, integers
from shmnd.mpi.communicators.intracomm import Intracomm
from shmnd.mpi.communicators.topology import Topocomm, on_first_ranks
from shmnd.mpi.objects.errhandler import raise_error


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


class Cartcomm(Topocomm):
    """Cartesian topology intracommunicator."""

    @classmethod
    def _has(cls, topology: Any) -> bool:
        return isinstance(topology, Cart)

    @classmethod
    def _make(cls, parent: Intracomm, dims: Sequence[int], periods: Any) -> Cartcomm:
        parent._state("Create_cart")
        dims = integers(dims, "Comm", "Create_cart", "dims")
        if periods is None:
            periods = False
        if isinstance(periods, bool):
            periods = [periods] * len(dims)
        periods = [int(bool(each)) for each in periods]
        if len(periods) != len(dims):
            raise ValueError(
                f"Comm.Create_cart: periods: expecting {len(dims)} items, got {len(periods)}"
            )
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
        new: Cartcomm = on_first_ranks(cls, parent, total, topology)
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
        coords = integers(coords, "Cartcomm", "Get_cart_rank", "coords")
        if len(coords) != len(found.dims):
            raise ValueError(
                f"Cartcomm.Get_cart_rank: coords: expecting {len(found.dims)} items, "
                f"got {len(coords)}"
            )
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
        rank = integer(rank, "Cartcomm", "Get_coords", "rank")
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
        direction = integer(direction, "Cartcomm", "Shift", "direction")
        disp = integer(disp, "Cartcomm", "Shift", "disp")
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
            raise ValueError(
                f"Cartcomm.Sub: remain_dims: expecting {len(found.dims)} items, got {len(remain)}"
            )
        coords = found.coords(self.Get_rank())
        color = key = 0
        for at, extent, stays in zip(coords, found.dims, remain, strict=True):
            if stays:
                key = key * extent + at
            else:
                color = color * extent + at
        with self._calling("Sub"):
            plain = self.Split(color, key)
        plain.ob.topology = Cart(
            tuple(n for n, stays in zip(found.dims, remain, strict=True) if stays),
            tuple(n for n, stays in zip(found.periods, remain, strict=True) if stays),
        )
        new: Cartcomm = self._made(plain.ob, "Cartcomm")
        return new


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
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


Comm._kinds["Cartcomm"] = direct_calls(Cartcomm)
