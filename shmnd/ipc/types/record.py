# SPDX-License-Identifier: Apache-2.0
"""Records: one element of a structured type, whose fields are there by attribute and by key."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.types.plain_values import require_fit, require_unmasked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Record", "fill_record"]


class Record:
    """A record in shared memory. A field that is an array is a view, a number is that number."""

    __slots__ = ("array",)

    array: Any

    def __init__(self, array: Any) -> None:
        object.__setattr__(self, "array", array)

    def __getitem__(self, name: str) -> Any:
        try:
            found = self.array[name]
        except ValueError:
            raise KeyError(name) from None
        if found.dtype.names is not None and found.ndim == 0:
            return Record(found)
        return found[()] if found.ndim == 0 else found

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.array.dtype.names:
            raise KeyError(name)
        field = self.array[name]
        if field.dtype.names is not None and field.ndim == 0:
            fill_record(field, value, "Record")
        else:
            field[...] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "array":  # which `__init__` sets
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"the record has no field {name!r}; it has {', '.join(self.array.dtype.names)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            self[name] = value
        except KeyError:
            raise AttributeError(
                f"the record has no field {name!r}; it has {', '.join(self.array.dtype.names)}"
            ) from None

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        names: tuple[str, ...] = self.array.dtype.names
        return names

    def items(self) -> list[tuple[str, Any]]:
        """Return the fields as pairs of name and value."""
        return [(name, self[name]) for name in self.keys()]

    def values(self) -> list[Any]:
        """Return the values of the fields."""
        return [self[name] for name in self.keys()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        found = self.array
        if dtype is not None and found.dtype != dtype:
            return found.astype(dtype)
        return np.array(found) if copy else found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record):
            return self.array.dtype == other.array.dtype and bool(
                all(np.array_equal(self[name], other[name]) for name in self.keys())
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equality may change: not hashable

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (np.array(self.array),)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"Record({inner})"


def fill_record(array: Any, value: Any, call: str) -> None:
    """Copy a dataclass instance, a mapping, a record or a structured array into a record."""
    if isinstance(value, Record):
        value = value.array
    if isinstance(value, (np.ndarray, np.void)) and value.dtype.names is not None:
        if value.size != 1:
            raise ValueError(f"{call}: the value has shape {value.shape}; pass one record")
        require_unmasked(value, call)
        value = np.asarray(value).reshape(())
        if value.dtype == array.dtype:
            array[...] = value
            return
        value = {name: value[name] for name in value.dtype.names}
    elif isinstance(value, tuple) and len(value) == len(array.dtype.names):
        value = dict(zip(array.dtype.names, value, strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if not hasattr(value, "keys"):
        raise TypeError(
            f"{call}: {type(value).__name__} is not a record; pass the dataclass or "
            f"a dict with {', '.join(array.dtype.names)}"
        )
    _fill_from(array, value, call)


def _fill_from(array: Any, value: Mapping[str, Any], call: str) -> None:
    names = set(array.dtype.names)
    given = set(value.keys())
    if names != given:
        raise TypeMismatch(
            f"{call}: the record has {sorted(names)}, the value {sorted(given)}; missing: "
            f"{sorted(names - given)}, unknown: {sorted(given - names)}"
        )
    for name in array.dtype.names:
        field = array[name]
        each = value[name]
        if field.dtype.names is not None and field.ndim == 0:
            fill_record(field, each, call)
            continue
        found = np.asarray(each)
        if found.shape != field.shape:
            raise ValueError(
                f"{call}: field {name} has shape {field.shape}, the value {found.shape}"
            )
        require_unmasked(each, f"{call}: field {name}")
        require_fit(found, field.dtype, f"{call}: field {name}")
        field[...] = found
