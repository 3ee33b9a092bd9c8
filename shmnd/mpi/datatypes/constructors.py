# SPDX-License-Identifier: Apache-2.0
"""How derived datatypes are made: for each constructor of MPI its pieces and its contents.

A constructor returns a new state, or raises an error of MPI for an argument it does not take.
Contents are as `Get_contents` returns them: integers, addresses, and, where one does not fit an
`int` of C, all of them as counts instead.
"""

from collections.abc import Sequence
from operator import index
from typing import Final

from shmnd.mpi import constants
from shmnd.mpi.datatypes import array_parts, predefined
from shmnd.mpi.datatypes.type_state import KINDS, TypeState, bound, derived, describe, duplicate
from shmnd.mpi.datatypes.type_state import pair as make_pair
from shmnd.mpi.objects.errors import Exception as MPIException

_INT_MAX: Final = 0x7FFFFFFF
Types = tuple[TypeState, ...]


def _count(call: str, name: str, value: int) -> int:
    value = index(value)
    if value < 0:
        raise MPIException(constants.ERR_COUNT, f"Datatype.{call}: {name} is {value}, below 0")
    return value


def _list(values: Sequence[int]) -> list[int]:
    return [index(value) for value in values]


def _contents(
    state: TypeState, ints: Sequence[int], addrs: Sequence[int], types: Types, small: int = 0
) -> TypeState:
    """Return a type with its contents noted; the last `small` integers are never counts."""
    if all(-_INT_MAX - 1 <= number <= _INT_MAX for number in ints):
        return describe(state, tuple(ints), tuple(addrs), (), types)
    counts = ints[: len(ints) - small]
    return describe(state, tuple(ints[len(counts) :]), (), (*counts, *addrs), types)


def dup(old: TypeState) -> TypeState:
    """Return a duplicate."""
    state = duplicate(old, constants.COMBINER_DUP, ("DUP", {}))
    return describe(state, (), (), (), (old,))


def contiguous(old: TypeState, count: int) -> TypeState:
    """Return a type of `count` items one after the other."""
    count = _count("Create_contiguous", "count", count)
    decoded = ("CONTIGUOUS", {"count": count})
    pieces = [(0, 1, count, 0, old)]
    return _contents(derived(constants.COMBINER_CONTIGUOUS, decoded, pieces), [count], [], (old,))


def vector(old: TypeState, count: int, blocklength: int, stride: int) -> TypeState:
    """Return a type of blocks that are `stride` items apart."""
    count = _count("Create_vector", "count", count)
    length = _count("Create_vector", "blocklength", blocklength)
    stride = index(stride)
    decoded = ("VECTOR", {"count": count, "blocklength": length, "stride": stride})
    pieces = [(0, count, length, stride * old.extent, old)]
    state = derived(constants.COMBINER_VECTOR, decoded, pieces)
    return _contents(state, [count, length, stride], [], (old,))


def hvector(old: TypeState, count: int, blocklength: int, stride: int) -> TypeState:
    """Return a type of blocks that are `stride` bytes apart."""
    count = _count("Create_hvector", "count", count)
    length = _count("Create_hvector", "blocklength", blocklength)
    stride = index(stride)
    decoded = ("HVECTOR", {"count": count, "blocklength": length, "stride": stride})
    state = derived(constants.COMBINER_HVECTOR, decoded, [(0, count, length, stride, old)])
    return _contents(state, [count, length], [stride], (old,))


def _blocks(
    call: str, blocklengths: Sequence[int], displacements: Sequence[int]
) -> tuple[list[int], list[int]]:
    lengths, places = _list(blocklengths), _list(displacements)
    if len(lengths) != len(places):
        raise ValueError(
            f"Datatype.{call}: {len(lengths)} blocklengths and {len(places)} displacements"
        )
    for length in lengths:
        _count(call, "a blocklength", length)
    return lengths, places


def indexed(old: TypeState, blocklengths: Sequence[int], displacements: Sequence[int]) -> TypeState:
    """Return a type of blocks at displacements in items."""
    lengths, places = _blocks("Create_indexed", blocklengths, displacements)
    decoded = ("INDEXED", {"blocklengths": lengths, "displacements": places})
    pieces = [
        (place * old.extent, 1, length, 0, old)
        for length, place in zip(lengths, places, strict=True)
    ]
    state = derived(constants.COMBINER_INDEXED, decoded, pieces)
    return _contents(state, [len(lengths), *lengths, *places], [], (old,))


def hindexed(
    old: TypeState, blocklengths: Sequence[int], displacements: Sequence[int]
) -> TypeState:
    """Return a type of blocks at displacements in bytes."""
    lengths, places = _blocks("Create_hindexed", blocklengths, displacements)
    decoded = ("HINDEXED", {"blocklengths": lengths, "displacements": places})
    pieces = [(place, 1, length, 0, old) for length, place in zip(lengths, places, strict=True)]
    state = derived(constants.COMBINER_HINDEXED, decoded, pieces)
    return _contents(state, [len(lengths), *lengths], places, (old,))


def indexed_block(old: TypeState, blocklength: int, displacements: Sequence[int]) -> TypeState:
    """Return a type of blocks of one length at displacements in items."""
    length = _count("Create_indexed_block", "blocklength", blocklength)
    places = _list(displacements)
    decoded = ("INDEXED_BLOCK", {"blocklength": length, "displacements": places})
    pieces = [(place * old.extent, 1, length, 0, old) for place in places]
    state = derived(constants.COMBINER_INDEXED_BLOCK, decoded, pieces)
    return _contents(state, [len(places), length, *places], [], (old,))


def hindexed_block(old: TypeState, blocklength: int, displacements: Sequence[int]) -> TypeState:
    """Return a type of blocks of one length at displacements in bytes."""
    length = _count("Create_hindexed_block", "blocklength", blocklength)
    places = _list(displacements)
    decoded = ("HINDEXED_BLOCK", {"blocklength": length, "displacements": places})
    pieces = [(place, 1, length, 0, old) for place in places]
    state = derived(constants.COMBINER_HINDEXED_BLOCK, decoded, pieces)
    return _contents(state, [len(places), length], places, (old,))


def struct(blocklengths: Sequence[int], displacements: Sequence[int], types: Types) -> TypeState:
    """Return a type of blocks of several types at displacements in bytes."""
    lengths, places = _blocks("Create_struct", blocklengths, displacements)
    if len(types) != len(lengths):
        raise ValueError(
            f"Datatype.Create_struct: {len(lengths)} blocklengths and {len(types)} datatypes"
        )
    decoded = ("STRUCT", {"blocklengths": lengths, "displacements": places, "datatypes": types})
    pieces = [
        (place, 1, length, 0, old)
        for length, place, old in zip(lengths, places, types, strict=True)
    ]
    state = derived(constants.COMBINER_STRUCT, decoded, pieces)
    return _contents(state, [len(lengths), *lengths], places, types)


def subarray(
    old: TypeState,
    sizes: Sequence[int],
    subsizes: Sequence[int],
    starts: Sequence[int],
    order: int,
) -> TypeState:
    """Return a type of a part of an array; its extent is that of the whole array."""
    sizes, subsizes, starts = _list(sizes), _list(subsizes), _list(starts)
    found = array_parts.subarray(sizes, subsizes, starts, order, old.extent)
    whole = old.extent
    for size in sizes:
        whole *= size
    decoded = (
        "SUBARRAY",
        {"sizes": sizes, "subsizes": subsizes, "starts": starts, "order": order},
    )
    pieces = [(off, count, length, stride, old) for off, count, length, stride in found]
    state = bound(derived(constants.COMBINER_SUBARRAY, decoded, pieces), 0, whole)
    return _contents(state, [len(sizes), *sizes, *subsizes, *starts, order], [], (old,), 1)


def darray(
    old: TypeState,
    size: int,
    rank: int,
    gsizes: Sequence[int],
    distribs: Sequence[int],
    dargs: Sequence[int],
    psizes: Sequence[int],
    order: int,
) -> TypeState:
    """Return a type of a share of a distributed array; its extent is that of the whole array."""
    gsizes, distribs, dargs = _list(gsizes), _list(distribs), _list(dargs)
    psizes = _list(psizes)
    found = array_parts.darray(size, rank, gsizes, distribs, dargs, psizes, order, old.extent)
    whole = old.extent
    for items in gsizes:
        whole *= items
    decoded = (
        "DARRAY",
        {
            "size": size,
            "rank": rank,
            "gsizes": gsizes,
            "distribs": distribs,
            "dargs": dargs,
            "psizes": psizes,
            "order": order,
        },
    )
    pieces = [(off, count, length, stride, old) for off, count, length, stride in found]
    state = bound(derived(constants.COMBINER_DARRAY, decoded, pieces), 0, whole)
    ints = [size, rank, len(gsizes), *gsizes, *distribs, *dargs, *psizes, order]
    return _contents(state, ints, [], (old,))


def resized(old: TypeState, lb: int, extent: int) -> TypeState:
    """Return a type with bounds set by hand."""
    lb, extent = index(lb), index(extent)
    decoded = ("RESIZED", {"lb": lb, "extent": extent})
    state = bound(derived(constants.COMBINER_RESIZED, decoded, [(0, 1, 1, 0, old)]), lb, extent)
    return describe(state, (), (lb, extent), (), (old,))


_by_digits: Final[dict[tuple[str, int, int], TypeState]] = {}


def f90(kind: str, p: int, r: int, types: dict[str, TypeState]) -> TypeState:
    """Return the type of Fortran with so many digits and so large an exponent.

    One and the same state is returned for one choice of both.
    """
    call = f"Create_f90_{kind.lower()}"
    undefined = constants.UNDEFINED
    if kind == "INTEGER":
        names = [name for digits, name in predefined.F90_INTEGERS if r <= digits]
        decoded: dict[str, int] = {"r": r}
    else:
        decoded = {"p": p, "r": r}
        names = [
            real if kind == "REAL" else complex_
            for digits, exponent, real, complex_ in predefined.F90_REALS
            if (p == undefined or p <= digits) and (r == undefined or r <= exponent)
        ]
    if not names or (p == undefined and r == undefined):
        given = {name: "UNDEFINED" if n == undefined else n for name, n in decoded.items()}
        asked = ", ".join(f"{name}={n}" for name, n in given.items())
        most = "r=18" if kind == "INTEGER" else "p=33, r=4931; one of both may be UNDEFINED"
        text = f"Datatype.{call}: no type for {asked}; at most {most}"
        raise MPIException(constants.ERR_ARG, text)
    state = _by_digits.get((kind, p, r))
    if state is None:
        combiner = getattr(constants, f"COMBINER_F90_{kind}")
        state = duplicate(types[names[0]], combiner, (f"F90_{kind}", decoded))
        describe(state, tuple(decoded.values()), (), (), ())
        state.predefined = True
        _by_digits[kind, p, r] = state
    return state


_INDICES: Final = frozenset(
    KINDS[kind] for kind in ("I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64")
)
_VALUES: Final = _INDICES | {KINDS[kind] for kind in ("F16", "F32", "F64", "F80")}


def are_value_and_index(value: TypeState, place: TypeState) -> bool:
    """Return whether there may be pairs of these two types: of a number and an integer."""
    named = value.predefined and place.predefined
    return named and value.basic in _VALUES and place.basic in _INDICES


def value_index(value: TypeState, place: TypeState) -> TypeState:
    """Return a type of a value and an index."""
    state = make_pair("", value, place, constants.COMBINER_VALUE_INDEX)
    state.predefined = False
    return describe(state, (), (), (), (value, place))
