# SPDX-License-Identifier: Apache-2.0
"""Which items of an array a part of it has: subarrays, and shares of a distributed array.

Both come down to one question per dimension: the runs of indices that belong to the part. The
pieces are then those runs of the fastest dimension, at every combination of the others.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException

Piece = tuple[int, int, int, int]
"""Offset of the first block in bytes, number of blocks, their length in items, their distance."""

_DISTRIBUTIONS: Final = {
    constants.DISTRIBUTE_BLOCK: "DISTRIBUTE_BLOCK",
    constants.DISTRIBUTE_CYCLIC: "DISTRIBUTE_CYCLIC",
    constants.DISTRIBUTE_NONE: "DISTRIBUTE_NONE",
}


def _refuse(call: str, text: str) -> MPIException:
    return MPIException(constants.ERR_ARG, f"Datatype.{call}: {text}")


def _same_lengths(call: str, **arrays: Sequence[int]) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Datatype.{call}: sequences of different lengths: {lengths}")


def _ordered(order: int, call: str) -> bool:
    """Return whether the last dimension is the fastest."""
    if order not in (constants.ORDER_C, constants.ORDER_FORTRAN):
        raise _refuse(call, f"order {order}: expected ORDER_C or ORDER_FORTRAN")
    return order == constants.ORDER_C


def pieces(runs: list[list[tuple[int, int]]], sizes: list[int], extent: int) -> list[Piece]:
    """Return the pieces of a part; the first dimension is the slowest.

    `runs` has for each dimension (first index, number of indices).
    """
    strides = [extent] * len(sizes)
    for dim in range(len(sizes) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * sizes[dim + 1]
    if len(sizes) == 1:
        return [(first * extent, 1, number, 0) for first, number in runs[0]]
    found: list[Piece] = []
    outer = [[first + step for first, n in run for step in range(n)] for run in runs[:-2]]
    for indices in itertools.product(*outer):
        base = sum(index * stride for index, stride in zip(indices, strides, strict=False))
        for row, rows in runs[-2]:
            # Rows of one run are evenly apart; several runs of columns keep the order of rows.
            if len(runs[-1]) == 1:
                first, number = runs[-1][0]
                offset = base + row * strides[-2] + first * extent
                found.append((offset, rows, number, strides[-2]))
                continue
            for step in range(rows):
                offset = base + (row + step) * strides[-2]
                found.extend((offset + first * extent, 1, n, 0) for first, n in runs[-1])
    return found


def subarray(
    sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int, extent: int
) -> list[Piece]:
    """Return the pieces of a rectangular part of an array."""
    call = "Create_subarray"
    _same_lengths(call, sizes=sizes, subsizes=subsizes, starts=starts)
    if not sizes:
        raise _refuse(call, "an array of 0 dimensions")
    for dim, (size, part, start) in enumerate(zip(sizes, subsizes, starts, strict=True)):
        if not (part >= 0 and 0 <= start <= size - part):  # of an empty array too
            raise _refuse(
                call, f"dimension {dim}: {part} items from {start} on, in an array of {size}"
            )
    runs = [[(start, part)] for start, part in zip(starts, subsizes, strict=True)]
    if not _ordered(order, call):
        return pieces(runs[::-1], list(sizes)[::-1], extent)
    return pieces(runs, list(sizes), extent)


def _share(
    size: int, distribution: int, darg: int, procs: int, place: int
) -> list[tuple[int, int]]:
    """Return the runs of indices of one dimension that a process has."""
    call = "Create_darray"
    if distribution not in _DISTRIBUTIONS:
        raise _refuse(call, f"distribution {distribution}: expected one of DISTRIBUTE_*")
    if distribution == constants.DISTRIBUTE_NONE:
        if procs != 1:
            raise _refuse(call, f"DISTRIBUTE_NONE over {procs} processes; expected 1")
        return [(0, size)]
    default = darg == constants.DISTRIBUTE_DFLT_DARG
    if not default and darg < 1:
        raise _refuse(call, f"a distribution argument of {darg}; expected 1 or more")
    if distribution == constants.DISTRIBUTE_BLOCK:
        block = -(-size // procs) if default else darg
        if block * procs < size:
            raise _refuse(call, f"{procs} blocks of {block} are fewer than {size} items")
        first = place * block
        return [(first, max(0, min(block, size - first)))]
    block = 1 if default else darg
    return [
        (first, min(block, size - first)) for first in range(place * block, size, procs * block)
    ]


def darray(
    size: int,
    rank: int,
    gsizes: Sequence[int],
    distribs: Sequence[int],
    dargs: Sequence[int],
    psizes: Sequence[int],
    order: int,
    extent: int,
) -> list[Piece]:
    """Return the pieces of the share that a process has of a distributed array.

    Processes are numbered in the grid by rows, whatever the order of the array is.
    """
    call = "Create_darray"
    _same_lengths(call, gsizes=gsizes, distribs=distribs, dargs=dargs, psizes=psizes)
    total = 1
    for procs in psizes:
        total *= procs
    if not gsizes or total != size or not 0 <= rank < size or min(psizes) < 1:
        raise _refuse(call, f"rank {rank} of {size} processes in a grid of {list(psizes)}")
    if min(gsizes) < 0:
        raise _refuse(
            call, f"an array of {list(gsizes)} items; expected 0 or more in each dimension"
        )
    places: list[int] = []
    left = rank
    for procs in reversed(psizes):
        left, place = divmod(left, procs)
        places.insert(0, place)
    runs = [
        _share(*dimension)
        for dimension in zip(gsizes, distribs, dargs, psizes, places, strict=True)
    ]
    if not _ordered(order, call):
        return pieces(runs[::-1], list(gsizes)[::-1], extent)
    return pieces(runs, list(gsizes), extent)
