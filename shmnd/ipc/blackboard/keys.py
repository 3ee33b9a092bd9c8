# SPDX-License-Identifier: Apache-2.0
"""The keys of a blackboard: where their values lie, and of which type they are."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmnd.common.arguments import integer, shown
from shmnd.ipc.common.members import MEMBERS
from shmnd.ipc.types.layouts import Arrays, arrays_dtype, dataclass_dtype, dtype_of
from shmnd.ipc.types.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BLACKBOARD",
    "Key",
    "check_version",
    "key_given",
    "no_key",
    "tuples",
    "type_of",
    "unsettled",
]

BLACKBOARD: Final = "ipc.blackboard"
MAGIC: Final = 0x6472616F626B636C
COUNT: Final = 8
ENTRIES: Final = 64
ENTRY: Final = 32
MOST_KEYS: Final = 4096
MOST_TEXT: Final = 60_000
FIRST: Final = ENTRIES + ENTRY * MOST_KEYS
WRITER: Final = MEMBERS
"""The byte of the table of members that the writer locks."""
TABLE: Final = "room_"
"""The prefix of the words of a record that lead to the table of members (`identity`)."""

_MOST_SHOWN: Final = 20
"""Keys that an error names."""
_MOST_LETTERS: Final = 100
"""The letters of a key that stands in such a list as it is."""


class Key:
    """Where a key lies, and of which type its value is."""

    def __init__(
        self,
        key: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        is_record: bool,
        offset: int = 0,
    ) -> None:
        self.key: Final = key
        self.dtype: Final = dtype
        self.shape: Final = shape
        self.is_record: Final = is_record
        """Whether a program meant a dataclass or `Arrays`; a structured dtype alone is none."""
        self.offset: Final = offset
        self.nbytes: Final = math.prod(shape) * dtype.itemsize
        self._is_words = dtype.kind in "iuf" and dtype.itemsize == dtype.alignment == 8

    def fresh(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return memory of whole words for one value, and the value in it.

        Each call that writes or reads has its own: the copies run without the interpreter's lock.
        """
        words = np.zeros((self.nbytes + 7) // 8, np.uint64)
        return words, np.ndarray(self.shape, self.dtype, words)

    def holds(self, value: object) -> bool:
        """Return whether a value is an array of the same type and shape, in whole words."""
        return (
            self._is_words
            and type(value) is np.ndarray
            and value.dtype == self.dtype
            and value.shape == self.shape
            and value.flags.c_contiguous
            and value.flags.aligned
        )

    def value_of(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the value in an array of `fresh`, as one that a topic of the type has."""
        return Record(array) if self.is_record else array[()]

    @property
    def text(self) -> bytes:
        """Name and type, as they stand in the shared memory."""
        described = {
            "key": self.key,
            "dtype": np.lib.format.dtype_to_descr(self.dtype),
            "shape": self.shape,
            "record": self.is_record,
        }
        return json.dumps(described).encode()

    def __str__(self) -> str:
        what = "a record of " if self.is_record else ""
        return f"{what}{self.dtype} of shape {self.shape}"


_DTYPE: Final = (
    "a numpy dtype, as '6f8', an ipc.Array, ipc.Arrays or a dataclass of numbers and arrays"
)


def type_of(wanted: Any, call: str, key: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return what a program means for a key: element type, shape, and whether it is a record."""
    call = f"{call}: key {shown(key)}"
    if isinstance(wanted, Arrays):
        return arrays_dtype(wanted, call), (), True
    if isinstance(wanted, type) and is_dataclass(wanted):
        return dataclass_dtype(wanted, call), (), True
    return *_array_type(wanted, call), False


def _array_type(wanted: Any, call: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if hasattr(wanted, "dtype") and hasattr(wanted, "shape"):  # an ipc.Array, or an array
        dtype, shape = dtype_of(wanted.dtype, call, _DTYPE), tuple(wanted.shape)
    elif is_dataclass(wanted):
        name = type(wanted).__name__
        raise TypeError(f"{call}: {shown(wanted)} is an object of {name}; pass the class, {name}")
    else:
        dtype, shape = dtype_of(wanted, call, _DTYPE), ()
    if dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape = shape + inner
    if dtype.hasobject or dtype.itemsize == 0:
        raise TypeError(f"{call}: {dtype} holds Python objects or nothing; pass plain numbers")
    return dtype, shape


def tuples(described: Any) -> Any:
    """Make of lists in JSON the tuples that numpy wants."""
    if not isinstance(described, list):
        return described
    made = []
    for field in described:
        parts = [tuples(part) if at == 1 else part for at, part in enumerate(field)]
        if isinstance(parts[0], list):
            parts[0] = tuple(parts[0])
        if len(parts) > 2:
            parts[2] = tuple(parts[2]) if isinstance(parts[2], list) else parts[2]
        made.append(tuple(parts))
    return made


def no_key(call: str, name: str, key: object, keys: Iterable[str]) -> KeyError:
    """Return the error of a key that is not there, with the first of those that are."""
    first = list(itertools.islice(keys, _MOST_SHOWN + 1))
    more = ", …" if len(first) > _MOST_SHOWN else ""
    texts = (each if len(each) <= _MOST_LETTERS else shown(each) for each in first[:_MOST_SHOWN])
    found = ", ".join(texts) + more
    return KeyError(f"{call}: blackboard {name!r} has no {shown(key)}; its keys: {found}")


def key_given(key: object, call: str) -> str:
    """Return a key that a program passed; TypeError unless it is a text."""
    if not isinstance(key, str):
        raise TypeError(f"{call}: key {shown(key)} is not a str, but {type(key).__name__}")
    return key


def check_version(after: object, call: str) -> None:
    """Raise TypeError unless this is a version to wait behind, or None."""
    if after is not None and integer(after) is None:
        raise TypeError(f"{call}: after {shown(after)} is not a version: a whole number, or None")


def unsettled(call: str, key: str, name: str, writer: int) -> RuntimeError:
    """Return the error of a value that no reading found whole."""
    return RuntimeError(
        f"{call}: {shown(key)} of blackboard {name!r} was written anew by process {writer} during "
        "each of many readings; write it less often, or read it with more processors"
    )
