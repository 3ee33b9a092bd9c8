# SPDX-License-Identifier: Apache-2.0
"""Arrays in numpy's format (`np.save`), read from a file of which any byte may be wrong.

`np.load` takes memory for the shape that a header names before it reads, refuses headers of a few
hundred fields, and prints warnings for some damaged ones.
"""

from __future__ import annotations

import ast
import math
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from io import BufferedReader

__all__ = ["read_array", "read_exactly"]

_MAGIC: Final = b"\x93NUMPY"
_LENGTHS: Final = {1: (2, "latin1"), 2: (4, "latin1"), 3: (4, "utf-8")}
"""Of each version of the format: bytes of the length of a header, and its encoding."""
_MOST_HEADER: Final = 1 << 18
_MOST_DIMENSIONS: Final = 32
_KEYS: Final = {"descr", "fortran_order", "shape"}


def read_array(file: BufferedReader, end: int) -> Any:
    """Return the array that begins here; ValueError unless it ends at `end` or before.

    Memory is taken for bytes that the file has, and no object is unpickled.
    """
    at = file.tell()
    try:
        return _array(file, end)
    except (ValueError, MemoryError) as exc:
        raise ValueError(f"no array begins at byte {at:,}: {exc}") from exc


def _array(file: BufferedReader, end: int) -> Any:
    left = end - file.tell()
    head = read_exactly(file, 8, left)
    if head[:6] != _MAGIC or head[6] not in _LENGTHS:
        raise ValueError(f"its first bytes are {head!r}")
    width, encoding = _LENGTHS[head[6]]
    length = int.from_bytes(read_exactly(file, width, left - 8), "little")
    if length > _MOST_HEADER:
        raise ValueError(f"its description has {length:,} bytes")
    dtype, shape, fortran = _described(read_exactly(file, length, left), encoding)
    nbytes = math.prod(shape) * dtype.itemsize
    left = max(0, end - file.tell())
    if nbytes > left:
        raise ValueError(f"it has {nbytes:,} bytes, of which {left:,} are there")
    if nbytes == 0:
        return np.zeros(shape, dtype)
    data = np.empty(nbytes, np.uint8)
    if file.readinto(data.data) != nbytes:
        raise ValueError("the file ends within it")
    flat = data.view(dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def read_exactly(file: BufferedReader, nbytes: int, left: int) -> bytes:
    """Return the next bytes of a file that has `left` more."""
    found = file.read(nbytes) if nbytes <= left else b""
    if len(found) < nbytes:
        raise ValueError("the file ends")
    return found


@lru_cache(64)
def _described(header: bytes, encoding: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return the type, the shape and the order of a header; ValueError where it is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler, about odd literals
            found = ast.literal_eval(header.decode(encoding))
            if not isinstance(found, dict) or found.keys() != _KEYS:
                raise ValueError("other keys")
            dtype = np.lib.format.descr_to_dtype(found["descr"])
    except Exception as exc:  # whatever a parser of damaged text raises
        raise ValueError(
            f"its description makes no sense ({type(exc).__name__}: {str(exc)[:80]})"
        ) from exc
    shape, fortran = found["shape"], found["fortran_order"]
    whole = isinstance(shape, tuple) and all(type(each) is int and each >= 0 for each in shape)
    if not whole or len(shape) > _MOST_DIMENSIONS or not isinstance(fortran, bool):
        raise ValueError(f"its shape is {str(shape)[:80]}")
    if dtype.hasobject or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise ValueError(f"its type is {str(dtype)[:80]}")
    return dtype, shape, fortran
