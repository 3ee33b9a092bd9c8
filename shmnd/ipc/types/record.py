# SPDX-License-Identifier: Apache-2.0
"""Records: one element of a structured type, whose fields are there by attribute and by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shmnd.common.interruption import pass_on
from shmnd.ipc.types.filling import Row, set_field

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Record"]


class Record(Row):
    """A record in shared memory. A field that is an array is a view, a number is that number."""

    __slots__ = ()

    def __init__(self, array: Any) -> None:
        object.__setattr__(self, "array", array)

    def __getitem__(self, name: str) -> Any:
        try:
            found = self.array[name]
        except ValueError as exc:
            pass_on(exc)
            raise KeyError(name) from None
        if found.dtype.names is not None and found.ndim == 0:
            return Record(found)
        return found[()] if found.ndim == 0 else found

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.array.dtype.names:
            raise KeyError(name)
        set_field(self.array[name], value, f"Record: field {name}")

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
