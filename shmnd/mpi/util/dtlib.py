# SPDX-License-Identifier: Apache-2.0
"""Datatypes of MPI for dtypes of numpy, and back.

A dtype with fields becomes a struct, one with a shape a subarray that is the whole array, a string
so many characters, and a date or a difference of dates an integer. Back, everything that is made of
blocks becomes fields at their offsets.
"""

from __future__ import annotations

from typing import Any

from shmnd.common.interruption import pass_on
from shmnd.mpi import MPI, constants
from shmnd.mpi.datatypes.datatype import Datatype, _typealign

__all__ = ["MPI", "from_numpy_dtype", "to_numpy_dtype"]  # as without one in mpi4py

_np_dtype: Any
try:
    from numpy import dtype as _np_dtype
except ImportError:
    _np_dtype = None


def from_numpy_dtype(dtype: Any) -> Datatype:
    """Convert NumPy datatype to MPI datatype.

    Raise ValueError for objects, for items of the other byte order, and for unnamed bytes.
    """
    if _np_dtype is None:
        raise RuntimeError("from_numpy_dtype: numpy is not installed")
    dtype = _np_dtype(dtype)
    if dtype.hasobject:
        raise ValueError(f"from_numpy_dtype({dtype!r}): objects have no datatype")
    if not dtype.isnative:
        raise ValueError(f"from_numpy_dtype({dtype!r}): the byte order is not that of this machine")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        part = from_numpy_dtype(base)
        made = part.Create_subarray(shape, shape, [0] * len(shape))
        part.Free()
        return made
    if dtype.fields is not None:
        fields = [dtype.fields[name][:2] for name in dtype.names]
        parts = [from_numpy_dtype(field) for field, _ in fields]
        struct = Datatype.Create_struct([1] * len(parts), [offset for _, offset in fields], parts)
        for part in parts:
            part.Free()
        if struct.Get_extent() == (0, dtype.itemsize):
            return struct
        made = struct.Create_resized(0, dtype.itemsize)
        struct.Free()
        return made
    return _like_an_item(dtype)


def _like_an_item(dtype: Any) -> Datatype:
    """Return a datatype like a dtype without parts."""
    if dtype.kind in "SU" and dtype.itemsize:
        letter = Datatype.fromcode(dtype.char)
        number = dtype.itemsize // letter.extent
        return letter.Dup() if number == 1 else letter.Create_contiguous(number)
    if dtype.kind in "Mm":
        return Datatype.fromcode("i8").Dup()
    for code in (dtype.char, dtype.str[1:]):
        try:
            found = Datatype.fromcode(code)
        except ValueError as exc:
            pass_on(exc)
            continue
        if found.extent == dtype.itemsize and dtype.kind != "V":
            return found.Dup()
    raise ValueError(f"from_numpy_dtype({dtype!r}): no datatype is like it")


def _array(base: Any, shape: tuple[int, ...]) -> Any:
    return (base, shape) if _np_dtype is None else _np_dtype((base, shape))


def _aligned(datatype: Datatype) -> int:
    """Return the alignment that a type of C with these items would have."""
    known = _typealign(datatype)
    if known is not None:
        return known
    base, name, params = datatype.decode()
    parts = params["datatypes"] if name == "STRUCT" else [base]
    if name == "VALUE_INDEX":
        parts = [params["value"], params["index"]]
    found = max((_aligned(part) for part in parts), default=1)
    _done(*parts)
    return found


def _done(*parts: Datatype) -> None:
    """Free what `decode` returned."""
    for part in parts:
        part.free()


def _fields(datatype: Datatype, fields: list[tuple[int, int, Datatype]]) -> Any:
    """Return a dtype of blocks: (offset, number of items or 0 for one alone, type)."""
    bases = [to_numpy_dtype(part) for _, _, part in fields]
    formats = [
        _array(base, (number,)) if number else base
        for base, (_, number, _) in zip(bases, fields, strict=True)
    ]
    offsets = [offset for offset, _, _ in fields]
    aligns = [_aligned(part) for _, _, part in fields]
    sizes = [
        part.extent if _np_dtype is None else base.itemsize
        for base, (_, _, part) in zip(bases, fields, strict=True)
    ]
    last = max(
        (
            offset + max(number, 1) * size
            for size, (offset, number, _) in zip(sizes, fields, strict=True)
        ),
        default=0,
    )
    itemsize = datatype.extent if datatype.extent >= last else last
    aligned = itemsize % max(aligns, default=1) == 0 and all(
        offset % align == 0 for offset, align in zip(offsets, aligns, strict=True)
    )
    return _record(formats, offsets, itemsize, aligned)


def _record(formats: list[Any], offsets: list[int], itemsize: int, aligned: bool) -> Any:
    made = {"formats": formats, "offsets": offsets, "itemsize": itemsize, "aligned": aligned}
    if _np_dtype is None:
        return made
    names = [f"f{place}" for place in range(len(formats))]
    return _np_dtype({"names": names, **made}, align=aligned)


def _blocks(name: str, params: dict[str, Any], extent: int) -> list[tuple[int, int]] | None:
    """Return offsets and lengths of the blocks of a type, or None for other types."""
    if name in ("VECTOR", "HVECTOR"):
        stride = params["stride"] * (extent if name == "VECTOR" else 1)
        return [(place * stride, params["blocklength"]) for place in range(params["count"])]
    if name.removeprefix("H") in ("INDEXED", "INDEXED_BLOCK"):
        places = [
            place * (1 if name.startswith("H") else extent) for place in params["displacements"]
        ]
        lengths = params.get("blocklengths") or [params["blocklength"]] * len(places)
        return list(zip(places, lengths, strict=True))
    return None


def _named(datatype: Datatype) -> Any:
    """Return the dtype of a named type."""
    state = datatype.ob
    if state.pair_value:
        value, index = (to_numpy_dtype(part[4]) for part in _pair(datatype))
        return _record([value, index], [0, state.pair_off], datatype.extent, True)
    return datatype.tocode() if _np_dtype is None else _np_dtype(datatype.typestr)


def _pair(datatype: Datatype) -> list[tuple[int, int, int, int, Datatype]]:
    from shmnd.mpi.datatypes.datatype import wrapped

    return [(*piece[:4], wrapped(piece[4])) for piece in datatype.ob.parts()]


def to_numpy_dtype(datatype: Datatype) -> Any:
    """Convert MPI datatype to NumPy datatype.

    Raise ValueError for types that no dtype describes.
    """
    if not datatype:
        raise ValueError("to_numpy_dtype: the datatype is null")
    if datatype.is_predefined or datatype.ob.pair_value:
        return _named(datatype)
    base, name, params = datatype.decode()
    try:
        if name == "DUP":
            return to_numpy_dtype(base)
        if name == "CONTIGUOUS":
            return _array(to_numpy_dtype(base), (params["count"],))
        if name == "STRUCT":
            parts = zip(
                params["displacements"], params["blocklengths"], params["datatypes"], strict=True
            )
            return _fields(
                datatype, [(at, length if length != 1 else 0, part) for at, length, part in parts]
            )
        if name == "SUBARRAY" and params["sizes"] == params["subsizes"]:
            turn = -1 if params["order"] == constants.ORDER_FORTRAN else 1
            return _array(to_numpy_dtype(base), tuple(params["sizes"])[::turn])
        if name == "RESIZED":
            return _resized(datatype, base, params)
        blocks = _blocks(name, params, base.extent)
        if blocks is not None:
            return _fields(datatype, [(at, length, base) for at, length in blocks])
    finally:
        _done(base, *params.get("datatypes", ()))
    raise ValueError(f"to_numpy_dtype: no dtype is like a datatype made by {name}")


def _resized(datatype: Datatype, base: Datatype, params: dict[str, Any]) -> Any:
    """Return the dtype of a struct with another itemsize."""
    old = to_numpy_dtype(base)
    if params["lb"] == 0 and params["extent"] == base.extent:
        return old
    fields = getattr(old, "fields", None)
    if params["lb"] != 0 or fields is None or params["extent"] < base.true_ub:
        raise ValueError(
            f"to_numpy_dtype: no dtype has items {params['extent']} bytes apart, from "
            f"{params['lb']} on"
        )
    formats = [fields[each][0] for each in old.names]
    offsets = [fields[each][1] for each in old.names]
    aligned = old.isalignedstruct and params["extent"] % old.alignment == 0
    return _record(formats, offsets, datatype.extent, aligned)
