# SPDX-License-Identifier: Apache-2.0
"""The types of topics: the layout of a sample, and how values go in and come out.

A form describes itself by a text (`form.text`); two ends agree when their texts are equal.
"""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import numpy as np

from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.record import Record, fill_record

__all__ = [
    "Array",
    "Arrays",
    "Form",
    "described_as",
    "description",
    "form_from_text",
    "form_of",
    "object_bytes",
    "packed",
    "require_same",
    "unpacked",
    "write_object",
]

FIXED: Final = 1
BYTES: Final = 2
OBJECT: Final = 3
DESCRIBED: Final = 4
_LINE: Final = 64
_SCALARS: Final = {float: "f8", int: "i8", bool: "?", complex: "c16"}
_MOST_BUFFERS: Final = 1 << 16


@dataclass(frozen=True)
class Array:
    """An array of a fixed shape: `Array('f4', (480, 640))`."""

    dtype: Any
    shape: Any = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _plain(np.dtype(self.dtype), "ipc.Array"))
        shape = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        whole = tuple(int(each) for each in shape)
        if any(each < 0 for each in whole) or len(whole) > 32:
            raise ValueError(f"ipc.Array: shape {self.shape!r} is none")
        object.__setattr__(self, "shape", whole)


class Arrays:
    """Several arrays in one sample: `Arrays(image=Array('u1', (480, 640)), at=Array('f8', 6))`."""

    def __init__(self, **arrays: Array) -> None:
        for name, each in arrays.items():
            if not isinstance(each, Array):
                raise TypeError(
                    f"ipc.Arrays: {name} is {each!r}; pass an ipc.Array, as Array('f4', (3, 4))"
                )
        if not arrays:
            raise ValueError("ipc.Arrays: no array is named")
        self.arrays: Final[dict[str, Array]] = dict(arrays)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={each!r}" for name, each in self.arrays.items())
        return f"Arrays({inner})"


class Form:
    """A type of a topic. `kind` is what the lines say of its samples."""

    kind: int = FIXED
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int = 0
    is_record: bool = False

    def __init__(self, text: str) -> None:
        self.text: Final = text

    def __repr__(self) -> str:
        return self.text

    def value_of(self, sample: Any) -> Any:
        """Return the value of a received sample."""
        return sample.array

    def described(self, meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return the type and shape of a sample that brings them along."""
        raise ValueError(f"Sample: the publisher sent a described array on a topic of {self}")

    def fill(self, array: Any, value: Any, call: str) -> None:
        """Copy a value into an array of this form."""
        array[...] = value


class _Dtype(Form):
    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(json.dumps({"dtype": dtype.str}))
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"dtype {self.dtype!s}"

    def described(self, meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
        dtype, shape = undescribed(meta)
        if dtype != self.dtype:
            raise ValueError(f"Sample: the publisher sent {dtype} on a topic of {self}")
        return dtype, shape


class _Fixed(Form):
    def __init__(self, array: Array) -> None:
        super().__init__(json.dumps({"array": [array.dtype.str, list(array.shape)]}))
        self.dtype = array.dtype
        self.shape = array.shape
        self.nbytes = int(np.prod(array.shape, dtype=object)) * array.dtype.itemsize

    def __repr__(self) -> str:
        return f"Array({str(self.dtype)!r}, {self.shape})"


class _Record(Form):
    """A record: one element of a structured type; the fields of `Arrays` begin at cache lines."""

    is_record = True

    def __init__(self, dtype: np.dtype[Any], name: str) -> None:
        super().__init__(json.dumps({"record": _layout(dtype)}))
        self.dtype = dtype
        self.shape = ()
        self.nbytes = dtype.itemsize
        self._name = name

    def __repr__(self) -> str:
        names = ", ".join(
            f"{name}: {field[0]}"
            for name, field in (self.dtype.fields or {}).items()  # type: ignore[union-attr]  # it has one
        )
        return f"{self._name}({names})"

    def value_of(self, sample: Any) -> Any:
        return Record(sample.array)

    def fill(self, array: Any, value: Any, call: str) -> None:
        fill_record(array, value, call)


class _Bytes(Form):
    kind = BYTES

    def __init__(self) -> None:
        super().__init__('"bytes"')

    def __repr__(self) -> str:
        return "bytes"

    def value_of(self, sample: Any) -> Any:
        return sample._bytes()


class _Object(Form):
    kind = OBJECT

    def __init__(self) -> None:
        super().__init__('"object"')

    def __repr__(self) -> str:
        return "object"

    def value_of(self, sample: Any) -> Any:
        return unpacked(sample)


class _Any(Form):
    """No type: each sample says what it is."""

    kind = DESCRIBED

    def __init__(self) -> None:
        super().__init__('"any"')

    def __repr__(self) -> str:
        return "None (each sample says what it is)"

    def described(self, meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
        return undescribed(meta)

    def value_of(self, sample: Any) -> Any:
        if sample._kind == BYTES:
            return sample._bytes()
        if sample._kind == OBJECT:
            return unpacked(sample)
        return sample.array


# -- what programs pass as a type --


def form_of(type_: Any, call: str) -> Form:
    """Return the form of a type; TypeError names the types that are accepted."""
    if type_ is None:
        return _Any()
    if type_ is bytes:
        return _Bytes()
    if type_ is object:
        return _Object()
    if isinstance(type_, Form):
        return type_
    if isinstance(type_, Array):
        return _Fixed(type_)
    if isinstance(type_, Arrays):
        return _Record(_arrays_dtype(type_), "Arrays")
    if is_dataclass(type_) and isinstance(type_, type):
        return _Record(_dataclass_dtype(type_, call), type_.__name__)
    try:
        dtype = np.dtype(type_)
    except TypeError:
        raise TypeError(
            f"{call}: type {type_!r} is none; pass a numpy dtype, ipc.Array, ipc.Arrays, a "
            "dataclass of numbers and arrays, bytes, object or None"
        ) from None
    if dtype.names is not None:
        return _Record(_plain(dtype, call), "dtype")
    if dtype.subdtype is not None:
        return _Fixed(Array(*dtype.subdtype))
    return _Dtype(_plain(dtype, call))


def form_from_text(text: object) -> Form:
    """Return the form that a publisher announced; ValueError when the text makes no sense."""
    found = json.loads(str(text))
    if found in ("any", "bytes", "object"):
        return {"any": _Any, "bytes": _Bytes, "object": _Object}[found]()
    if not isinstance(found, dict) or len(found) != 1:
        raise ValueError(f"type {text!r} makes no sense")
    ((what, inner),) = found.items()
    if what == "dtype":
        return _Dtype(_plain(np.dtype(str(inner)), "Subscriber"))
    if what == "array":
        return _Fixed(Array(str(inner[0]), tuple(int(each) for each in inner[1])))
    if what == "record":
        return _Record(_from_layout(inner), "record")
    raise ValueError(f"type {text!r} makes no sense")


def require_same(ours: Form, theirs: Form, who: str, call: str, topic: str) -> None:
    """Raise TypeMismatch, which shows both, unless the two agree."""
    if ours.text != theirs.text:
        raise TypeMismatch(
            f"{call}: topic {topic!r} has type {ours!r} here, and {theirs!r} at {who}; open both "
            "ends with one type"
        )


def _plain(dtype: np.dtype[Any], call: str) -> np.dtype[Any]:
    if dtype.hasobject:
        raise TypeError(
            f"{call}: dtype {dtype} holds references to objects, which mean nothing in another "
            "process; use type object"
        )
    if dtype.itemsize == 0:
        raise TypeError(f"{call}: dtype {dtype} has no size; say how long it is, as in 'S16'")
    return dtype


def _arrays_dtype(arrays: Arrays) -> np.dtype[Any]:
    names: list[str] = []
    formats, offsets, at = [], [], 0
    for name, each in arrays.arrays.items():
        field = np.dtype((each.dtype, each.shape))
        names.append(name)
        formats.append(field)
        offsets.append(at)
        at = (at + field.itemsize + _LINE - 1) // _LINE * _LINE
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at or 1})


def _dataclass_dtype(type_: type, call: str) -> np.dtype[Any]:
    hints = get_type_hints(type_, include_extras=True)
    parts: list[Any] = []
    for field in fields(type_):
        parts.append((field.name, _field_dtype(hints[field.name], field.name, type_, call)))
    if not parts:
        raise TypeError(f"{call}: {type_.__name__} has no fields")
    return np.dtype(parts, align=True)


def _field_dtype(hint: Any, name: str, type_: type, call: str) -> Any:
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, (Array, str, np.dtype)):
                return _field_dtype(extra, name, type_, call)
        return _field_dtype(get_args(hint)[0], name, type_, call)
    if isinstance(hint, Array):
        return np.dtype((hint.dtype, hint.shape))
    if hint in _SCALARS:
        return np.dtype(_SCALARS[hint])
    if is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_dtype(hint, call)
    try:
        if isinstance(hint, (str, np.dtype)) or issubclass(hint, np.generic):
            return _plain(np.dtype(hint), call)
    except TypeError:
        pass
    raise TypeError(
        f"{call}: field {name} of {type_.__name__} is {hint!r}; a record has numbers (int, float, "
        "bool, complex, numpy scalars), ipc.Array fields and dataclasses of these"
    )


def _layout(dtype: np.dtype[Any]) -> Any:
    """Return a structured type as JSON."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return ["of", _layout(base), list(shape)]
    if dtype.names is None:
        return dtype.str
    inner: Any = dtype.fields or {}
    return [
        "struct",
        [[name, _layout(inner[name][0]), inner[name][1]] for name in dtype.names],
        dtype.itemsize,
    ]


def _from_layout(layout: Any) -> np.dtype[Any]:
    if isinstance(layout, str):
        return _plain(np.dtype(layout), "Subscriber")
    if layout[0] == "of":
        return np.dtype((_from_layout(layout[1]), tuple(int(each) for each in layout[2])))
    names = [str(each[0]) for each in layout[1]]
    formats = [_from_layout(each[1]) for each in layout[1]]
    offsets = [int(each[2]) for each in layout[1]]
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": int(layout[2])}
    )


# -- arrays that say what they are --


def description(array: np.ndarray[Any, Any]) -> bytes:
    """Return what a described array says of itself."""
    return described_as(array.dtype, array.shape)


def described_as(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the description of an array of a type and a shape."""
    text = dtype.str if dtype.names is None else json.dumps(_layout(dtype))
    code = text.encode()
    return struct.pack(f"<HB{len(shape)}Q", len(code), len(shape), *shape) + code


def undescribed(meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the type and shape of a description; ValueError when it makes no sense."""
    try:
        length, ndim = struct.unpack_from("<HB", meta)
        shape = struct.unpack_from(f"<{ndim}Q", meta, 3)
        code = meta[3 + 8 * ndim :].decode()
        if len(code) != length:
            raise ValueError("its length is wrong")
        dtype = _from_layout(json.loads(code)) if code[0] == "[" else np.dtype(code)
        return _plain(dtype, "Sample"), tuple(shape)
    except (struct.error, TypeError, IndexError, UnicodeDecodeError, KeyError) as exc:
        raise ValueError(f"Sample: the description of an array makes no sense: {exc}") from exc


# -- objects --


def packed(value: object) -> tuple[bytes, list[memoryview], bytes]:
    """Return the pickle of an object, its buffers, and where they begin and end.

    The buffers lie behind the pickle, each at a cache line.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
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
    memory = sample._memory()
    # The table lies in front of the pickle, in memory of the publisher: read once, from a copy.
    count = struct.unpack("<Q", bytes(memory[:8]))[0] if len(memory) >= 8 else 0
    if not 0 < count <= _MOST_BUFFERS or 8 + 8 * count > len(memory):
        raise ValueError("Sample: the table of an object makes no sense")
    table = struct.unpack(f"<{count}Q", bytes(memory[8 : 8 + 8 * count]))
    head = _up(8 + 8 * count)
    body = memory[head:]
    stream = bytes(body[: table[0]])
    views = []
    for at, nbytes in zip(table[1::2], table[2::2], strict=True):
        if at + nbytes > len(body):
            raise ValueError("Sample: a buffer of an object lies outside of it")
        views.append(body[at : at + nbytes])
    return pickle.loads(stream, buffers=views)


def write_object(memory: memoryview, stream: bytes, views: list[memoryview], table: bytes) -> None:
    """Write an object to memory of `object_bytes`."""
    head = _up(8 + len(table))
    memory[:8] = struct.pack("<Q", len(table) // 8)
    memory[8 : 8 + len(table)] = table
    body = memory[head:]
    body[: len(stream)] = stream
    places = struct.unpack(f"<{len(table) // 8}Q", table)[1::2]
    for at, view in zip(places, views, strict=True):
        body[at : at + view.nbytes] = view


def object_bytes(stream: bytes, views: list[memoryview], table: bytes) -> int:
    """Return the bytes that an object takes."""
    places = struct.unpack(f"<{len(table) // 8}Q", table)
    end = places[-2] + places[-1] if views else len(stream)
    return _up(8 + len(table)) + end
