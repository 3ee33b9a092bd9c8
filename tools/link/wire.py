# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire: keys, samples with their descriptions, and values of services."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from shmnd.ipc.types import forms
from shmnd.ipc.types.plain_values import is_plain_array

from ..sample_kinds import ARRAY

__all__ = [
    "BEGIN",
    "END",
    "PREFIX",
    "Message",
    "array_of",
    "key",
    "pack",
    "pack_value",
    "parts",
    "unpack",
    "unpack_value",
]

PREFIX: Final = "shmnd/link/1"
END: Final = 0
"""Kind of the message behind the last sample of a publisher."""
BEGIN: Final = 255
"""Kind of the message before the first sample that a link gets of a publisher."""
_HEAD: Final = struct.Struct("<BxHQI")
_MOST_DEPTH: Final = 32
_CALL: Final = "link"


def key(word: str, *names: str) -> str:
    """Return a key of a word and names of any characters."""
    coded = (base64.urlsafe_b64encode(name.encode()).decode().rstrip("=") for name in names)
    return "/".join((PREFIX, word, *(f"={code}" for code in coded)))


def parts(text: str) -> tuple[str, ...]:
    """Return the word and the names of a key; ValueError for any other text."""
    if not text.startswith(PREFIX + "/"):
        raise ValueError(f"{text!r} is not a key of a link")
    word, *coded = text[len(PREFIX) + 1 :].split("/")
    if not all(code.startswith("=") for code in coded):
        raise ValueError(f"{text!r} is not a key of a link")
    padded = (code[1:] + "=" * (-(len(code) - 1) % 4) for code in coded)
    return (word, *(base64.urlsafe_b64decode(code).decode() for code in padded))


@dataclass(frozen=True, slots=True)
class Message:
    """The description of a sample, sent with its bytes."""

    kind: int
    """The kind of a sample, or BEGIN or END."""
    sequence: int
    """The number of the sample; with BEGIN and END, that of the next one."""
    header: bytes | None = None
    meta: bytes = b""
    """The dtype and the shape of an array."""


def pack(message: Message) -> bytes:
    """Return a message as bytes."""
    header = message.header or b""
    head = _HEAD.pack(message.kind, len(message.meta), message.sequence, len(header))
    return head + message.meta + header


def unpack(data: bytes) -> Message:
    """Return the message of some bytes; ValueError when they make no sense."""
    try:
        kind, meta, sequence, header = _HEAD.unpack_from(data)
    except struct.error as exc:
        raise ValueError(f"a message of {len(data)} bytes has no head") from exc
    if len(data) != _HEAD.size + meta + header:
        raise ValueError(f"a message of {len(data)} bytes announces {_HEAD.size + meta + header}")
    middle = _HEAD.size + meta
    return Message(kind, sequence, data[middle:] or None, data[_HEAD.size : middle])


def array_of(message: Message, payload: bytes) -> Any:
    """Return the array of a sample, over the payload; ValueError when the two disagree."""
    dtype, shape = forms.undescribed(message.meta)
    if any(dim > len(payload) + 1 for dim in shape) and 0 not in shape:
        raise ValueError(f"an array of shape {shape} in {len(payload)} bytes")
    if int(np.prod(shape, dtype=object)) * dtype.itemsize != len(payload):
        raise ValueError(f"an array of {dtype} of shape {shape} in {len(payload)} bytes")
    if not payload:
        return np.empty(shape, dtype)
    return np.frombuffer(payload, dtype).reshape(shape)


# -- values of services: only plain data, as a pickle would run code of its sender


def pack_value(value: Any) -> bytes:
    """Return a value as bytes. TypeError for one that is not data alone."""
    buffers: list[bytes] = []
    text = json.dumps(_plain(value, buffers, 0)).encode()
    lengths = struct.pack(f"<{len(buffers) + 2}Q", len(buffers), len(text), *map(len, buffers))
    return b"".join((lengths, text, *buffers))


def unpack_value(data: bytes) -> Any:
    """Return the value of some bytes; ValueError when they make no sense."""
    try:
        count, length = struct.unpack_from("<2Q", data)
        lengths = struct.unpack_from(f"<{count}Q", data, 16) if count <= len(data) // 8 else None
        if lengths is None or 16 + 8 * count + length + sum(lengths) != len(data):
            raise ValueError("a value whose lengths make no sense")
        at = 16 + 8 * count
        tree = json.loads(data[at : at + length])
        at += length
        buffers = []
        for each in lengths:
            buffers.append(data[at : at + each])
            at += each
        return _value(tree, buffers)
    except (struct.error, IndexError, KeyError, TypeError, RecursionError) as exc:
        raise ValueError(f"a value that makes no sense: {exc}") from exc


def _plain(value: Any, buffers: list[bytes], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise TypeError(f"a value nested more than {_MOST_DEPTH} deep cannot go over a link")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        buffers.append(bytes(value))
        return ["bytes", len(buffers) - 1]
    number = isinstance(value, np.generic) and not value.dtype.hasobject
    if number or is_plain_array(value):
        array = np.require(value, requirements="C")
        buffers.append(forms.description(array, _CALL))
        buffers.append(array.tobytes())
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return [kind, len(buffers) - 2]
    if isinstance(value, dict):
        pairs = [[_plain(k, buffers, depth + 1), _plain(v, buffers, depth + 1)]
                 for k, v in value.items()]  # fmt: skip
        return ["dict", pairs]
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [_plain(each, buffers, depth + 1) for each in value]]
    raise TypeError(
        f"{type(value).__name__}: this cannot go over a link: a pickle runs code of its sender; "
        "send arrays, bytes, numbers, text, and lists, tuples and dicts of these"
    )


def _value(tree: Any, buffers: list[bytes]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, inner = tree
    if kind == "bytes":
        return buffers[inner]
    if kind in ("array", "scalar"):
        array = array_of(Message(ARRAY, 0, None, buffers[inner]), buffers[inner + 1])
        return array.copy() if kind == "array" else array[()]
    if kind == "dict":
        return {_value(k, buffers): _value(v, buffers) for k, v in inner}
    if kind == "list":
        return [_value(each, buffers) for each in inner]
    if kind == "tuple":
        return tuple(_value(each, buffers) for each in inner)
    raise ValueError(f"a value of kind {kind!r}")
