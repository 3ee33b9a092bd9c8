# SPDX-License-Identifier: Apache-2.0
"""Values of programs, copied into records and into rows of them.

numpy would cut numbers, repeat single ones as fields, and name no field in its errors.
"""

from __future__ import annotations

import functools
import math
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmnd.common.interruption import pass_on
from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.types.fitting import range_of, require_fit, require_unmasked

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Row", "fields_of", "fill_record", "rows_of", "set_field"]

_MOST_DIMENSIONS: Final = 32


class Row:
    """One element of a structured type."""

    __slots__ = ("array",)

    array: Any


def fill_record(array: Any, value: Any, call: str) -> None:
    """Copy a dataclass instance, a mapping, a tuple, a record or a row into a record."""
    if isinstance(value, Row):
        value = value.array
    if isinstance(value, (np.ndarray, np.void)) and value.dtype == array.dtype:
        require_unmasked(value, call)
        array[...] = _single(value, call)
        return
    values = fields_of(value, array.dtype.names, call)
    if _are_plain(values.values(), array.dtype):
        array[()] = tuple(values.values())  # all at once: field by field takes ten times as long
        return
    for name, each in values.items():
        _fill_field(array[name], each, f"{call}: field {name}")


def _are_plain(values: Iterable[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether numpy keeps these values in a record as they are: numbers of Python alone."""
    ranges = _ranges_of(dtype)
    if ranges is None:
        return False
    for value, (kind, least, most) in zip(values, ranges, strict=True):
        if type(value) is not kind or not least <= value <= most:
            return False
    return True


@functools.lru_cache
def _ranges_of(dtype: np.dtype[Any]) -> list[tuple[type, Any, Any]] | None:
    """Return the type and the range of the numbers of each field; None unless all have numbers."""
    ranges: list[tuple[type, Any, Any]] = []
    for name in dtype.names or ():
        field = dtype[name]
        if field.kind == "f":
            ranges.append((float, -math.inf, math.inf))
        elif field.kind == "b":
            ranges.append((bool, False, True))
        elif field.kind in "iu":
            ranges.append((int, *range_of(field)))
        else:
            return None
    return ranges


@functools.lru_cache
def _names_of_fields(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass, which takes as long as all the rest."""
    return tuple(field.name for field in fields(cls))


def set_field(field: Any, value: Any, call: str) -> None:
    """Copy a value into a field as numpy does, which repeats single values, but cut none."""
    if field.dtype.names is not None and field.ndim == 0:
        fill_record(field, value, call)
        return
    rows = field.dtype.names is not None and isinstance(value, (list, tuple))
    require_unmasked(value, call)
    found = rows_of(value, field.dtype, None, call) if rows else np.asarray(value)
    require_fit(found, field.dtype, call)
    field[...] = found


def rows_of(value: Any, dtype: Any, shape: tuple[int, ...] | None, call: str) -> Any:
    """Return an array of records with the rows of a value.

    Without a shape each list is a dimension, and a tuple is one row. Where the shape is known,
    so many levels of lists and tuples are dimensions.
    """
    dims, rows = _flat(value, None if shape is None else len(shape), call)
    array = np.zeros(len(rows), dtype)
    _fill_rows(array, rows, call)
    return array.reshape(dims)


def _flat(value: Any, depth: int | None, call: str, level: int = 0) -> tuple[Any, list[Any]]:
    """Return the dimensions and the rows of lists within lists."""
    if depth == level or not _is_level(value, depth):
        if depth not in (None, level):
            raise TypeMismatch(f"{call}: {_what(value)} is not a list of rows")
        return (), [value]
    if level == _MOST_DIMENSIONS:
        raise TypeMismatch(f"{call}: lists within lists; at most {_MOST_DIMENSIONS} dimensions")
    inner = list(value)
    if depth == level + 1 or (depth is None and not any(_is_level(each, None) for each in inner)):
        return (len(inner),), inner
    parts = [_flat(each, depth, call, level + 1) for each in inner]
    for dims, _ in parts:
        if dims != parts[0][0]:
            raise TypeMismatch(
                f"{call}: rows in lists of unequal length: shape {parts[0][0]} and {dims}"
            )
    dims = parts[0][0] if parts else (0,) * ((depth or 1) - level - 1)
    return (len(inner), *dims), [row for _, rows in parts for row in rows]


def _is_level(value: Any, depth: int | None) -> bool:
    """Return whether a value has rows in it; a tuple is one itself where no shape is known."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and (depth is not None or value.dtype.names is not None)
    return isinstance(value, list if depth is None else (list, tuple))


def _fill_rows(array: Any, rows: list[Any], call: str) -> None:
    """Fill records field by field, which is many times faster than row by row."""
    names = array.dtype.names
    try:
        if all(type(row) is tuple and len(row) == len(names) for row in rows):
            columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
        else:
            found = [fields_of(row, names, call) for row in rows]
            columns = {name: tuple(each[name] for each in found) for name in names}
        for name, column in columns.items():
            _fill_column(array[name], column, f"{call}: field {name}")
    except (ValueError, TypeError, OverflowError) as exc:
        pass_on(exc)
        # One by one: the error names the row, or there is none where a column had two kinds.
        for at, row in enumerate(rows):
            fill_record(array[at, ...], row, f"{call}: row {at}")


def _fill_column(field: Any, column: tuple[Any, ...], call: str) -> None:
    """Fill a field of all rows; any error where that takes more than one step."""
    if field.dtype.names is not None and field.ndim == 1:
        _fill_rows(field, list(column), call)
        return
    require_unmasked(column, call)
    found = np.asarray(column)
    if found.dtype.kind == "f" and field.dtype.kind in "iu":
        raise ValueError  # the digits of whole numbers may be lost already
    if found.dtype.kind in "SUmM" and len(set(map(type, column))) > 1:
        raise ValueError  # numpy made texts of numbers, or took them for the unit of other times
    _copy(field, found, call)


def _fill_field(field: Any, each: Any, call: str) -> None:
    if field.dtype.names is not None and field.ndim == 0:
        fill_record(field, each, call)
    elif field.dtype.names is not None and not hasattr(each, "__array__"):
        _copy(field, rows_of(each, field.dtype, field.shape, call), call)
    else:
        require_unmasked(each, call)
        try:
            found = np.asarray(each)
        except (ValueError, TypeError) as exc:
            pass_on(exc)
            raise TypeMismatch(f"{call}: the value cannot be an array: {exc}") from exc
        _copy(field, found, call)


def _copy(field: Any, found: Any, call: str) -> None:
    if found.shape != field.shape:
        raise ValueError(f"{call} has shape {field.shape}, the value {found.shape}")
    require_fit(found, field.dtype, call)
    try:
        field[...] = found
    except (ValueError, TypeError) as exc:
        pass_on(exc)
        raise TypeMismatch(f"{call}: {exc}") from exc


def fields_of(value: Any, names: tuple[str, ...], call: str) -> dict[str, Any]:
    """Return the fields of a value, in the order of the record."""
    if isinstance(value, Row):
        value = value.array
    if isinstance(value, (np.ndarray, np.void)) and value.dtype.names is not None:
        require_unmasked(value, call)
        one = _single(value, call)
        value = {name: one[name] for name in one.dtype.names}
    elif isinstance(value, tuple):
        if len(value) != len(names):
            raise TypeMismatch(
                f"{call}: a tuple of {len(value)} is not a record; it has {', '.join(names)}"
            )
        return dict(zip(names, value, strict=True))
    elif is_dataclass(value) and not isinstance(value, type):
        own = _names_of_fields(type(value))
        if own == names:
            return {name: getattr(value, name) for name in names}
        value = {name: getattr(value, name) for name in own}
    if type(value) is dict and tuple(value) == names:
        return value.copy()
    if isinstance(value, type) or not hasattr(value, "keys"):
        raise TypeMismatch(
            f"{call}: {_what(value)} is not a record; pass the dataclass or "
            f"a dict with {', '.join(names)}"
        )
    given = set(value.keys())
    if given != set(names):
        wanted = set(names)
        raise TypeMismatch(
            f"{call}: the record has {sorted(wanted)}, the value {sorted(given, key=str)}; missing:"
            f" {sorted(wanted - given)}, unknown: {sorted(given - wanted, key=str)}"
        )
    return {name: value[name] for name in names}


def _single(value: Any, call: str) -> Any:
    if value.size != 1:
        raise ValueError(f"{call}: the value has shape {value.shape}; pass one record")
    return np.asarray(value).reshape(())


def _what(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
