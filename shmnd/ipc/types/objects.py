# SPDX-License-Identifier: Apache-2.0
"""Objects as samples: a pickle, and the buffers of its arrays out of band."""

from __future__ import annotations

import pickle
import struct
from typing import Any, Final

import numpy as np

from shmnd.ipc.common.shared_words import LONG

__all__ = ["PackedObject", "alone", "object_bytes", "packed", "unpacked", "write_object"]

_LINE: Final = 64
_COUNT: Final = struct.Struct("<Q")
_ALONE: Final = struct.Struct("<QQ48x")
"""What precedes a pickle without buffers: a table of one number, its length, up to a cache line."""


class PackedObject:
    """An object as its sample holds it: a value to send on without making the object.

    `data` is `sample.array` of a sample of the kind 'object', or a copy of it. No code of the
    object runs here; ValueError for other bytes.
    """

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        view = memoryview(data)
        flat = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(bytes(view))
        _parts(flat)
        self.data: Final[memoryview] = flat

    def __repr__(self) -> str:
        return f"<PackedObject of {self.data.nbytes} bytes>"


def packed(value: object) -> tuple[bytes, list[memoryview], bytes]:
    """Return the pickle of an object, its buffers, and where they begin and end.

    The buffers lie behind the pickle, each at a cache line.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    if not buffers:
        return stream, [], _COUNT.pack(len(stream))
    views = [buffer.raw() for buffer in buffers]
    at, table = _up(len(stream)), [len(stream)]
    for view in views:
        table += [at, view.nbytes]
        at = _up(at + view.nbytes)
    return stream, views, struct.pack(f"<{len(table)}Q", *table)


def _up(nbytes: int) -> int:
    return (nbytes + _LINE - 1) // _LINE * _LINE


def unpacked(sample: Any) -> Any:
    """Return the object of a sample; its buffers are read-only views of the sample's memory."""
    stream, views = _parts(sample._memory())
    return pickle.loads(stream, buffers=views)


def _parts(memory: memoryview) -> tuple[bytes | memoryview, list[memoryview]]:
    """Return a copy of the pickle, and its buffers in place; ValueError where there is none."""
    # The table lies in front of the pickle, in memory of the publisher: read once, from a copy.
    count, nbytes = _ALONE.unpack(memory[: _ALONE.size]) if len(memory) >= _ALONE.size else (0, 0)
    if count == 1 and nbytes <= len(memory) - _ALONE.size:
        return _copy(memory[_ALONE.size : _ALONE.size + nbytes]), []
    count = _COUNT.unpack(memory[:8])[0] if len(memory) >= 8 else 0
    if not 0 < count <= len(memory) // 8 - 1 or not count % 2:
        raise ValueError("Sample: the table of an object makes no sense")
    table = struct.unpack(f"<{count}Q", bytes(memory[8 : 8 + 8 * count]))
    head = _up(8 + 8 * count)
    body = memory[head:]
    if table[0] > len(body):
        raise ValueError("Sample: the pickle of an object is longer than the sample")
    stream = _copy(body[: table[0]])
    views = []
    for at, nbytes in zip(table[1::2], table[2::2], strict=True):
        if at + nbytes > len(body):
            raise ValueError("Sample: a buffer of an object lies outside of it")
        views.append(body[at : at + nbytes])
    return stream, views


def _copy(view: memoryview) -> bytes | memoryview:
    """Return a copy of bytes."""
    if view.nbytes <= LONG:
        return bytes(view)
    # Other threads run meanwhile: numpy copies without the lock.
    return np.array(np.frombuffer(view, np.uint8)).data


def _write(memory: memoryview, view: memoryview | bytes) -> None:
    """Copy bytes into memory of the same length."""
    if len(memory) <= LONG:
        memory[:] = view
    else:
        np.copyto(np.frombuffer(memory, np.uint8), np.frombuffer(view, np.uint8))


def alone(stream: bytes) -> bytes:
    """Return an object without buffers, as `write_object` would write it."""
    return _ALONE.pack(1, len(stream)) + stream


def write_object(memory: memoryview, stream: bytes, views: list[memoryview], table: bytes) -> None:
    """Write an object to memory of `object_bytes`."""
    head = _up(8 + len(table))
    memory[:8] = struct.pack("<Q", len(table) // 8)
    memory[8 : 8 + len(table)] = table
    body = memory[head:]
    _write(body[: len(stream)], stream)
    places = struct.unpack(f"<{len(table) // 8}Q", table)[1::2]
    for at, view in zip(places, views, strict=True):
        _write(body[at : at + view.nbytes], view)


def object_bytes(stream: bytes, views: list[memoryview], table: bytes) -> int:
    """Return the bytes that an object takes."""
    places = struct.unpack(f"<{len(table) // 8}Q", table)
    end = places[-2] + places[-1] if views else len(stream)
    return _up(8 + len(table)) + end
