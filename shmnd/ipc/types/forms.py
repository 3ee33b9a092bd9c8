# SPDX-License-Identifier: Apache-2.0
"""The types of topics: the layout of a sample, and how values go in and come out.

A form describes itself by a text (`form.text`); two ends agree when their texts are equal.
"""

from __future__ import annotations

import json
import struct
from dataclasses import is_dataclass
from typing import Any, Final

import numpy as np

from shmnd.common.interruption import pass_on
from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.types.filling import fill_record
from shmnd.ipc.types.layouts import (
    Array,
    Arrays,
    arrays_dtype,
    dataclass_dtype,
    dtype_from_layout,
    dtype_of,
    layout_of,
    plain,
)  # fmt: skip
from shmnd.ipc.types.objects import unpacked
from shmnd.ipc.types.record import Record

__all__ = [
    "TopicType",
    "described_as",
    "description",
    "form_from_text",
    "form_of",
    "require_same",
    "undescribed",
]

FIXED: Final = 1
BYTES: Final = 2
OBJECT: Final = 3
DESCRIBED: Final = 4
MOST_DIMENSIONS: Final = 32
_MOST_DESCRIPTION: Final = 0xFFFF
"""Bytes: a line of the board has 16 bits for their number."""
_MOST_SHOWN: Final = 80
"""Characters of a description that makes no sense."""


class TopicType:
    """The type of a topic, as `type` of its ends has it. It is accepted wherever a type is.

    Two are equal if ends of these types agree. It can be pickled.
    """

    kind: int = FIXED
    """What the lines say of its samples."""
    dtype: np.dtype[Any] | None = None
    """The dtype of a sample; None of bytes, of objects, and where each sample says what it is."""
    shape: tuple[int, ...] | None = None
    """The shape of a sample; None where the samples may have any."""
    nbytes: int = 0
    is_record: bool = False

    def __init__(self, text: str) -> None:
        self.text: Final = text

    @staticmethod
    def from_description(description: object) -> TopicType:
        """Return the type that has such a `description`.

        ValueError where it makes no sense, as in a file that is damaged.
        """
        try:
            return _form_from(json.dumps(description))
        except Exception as exc:  # whatever parsers of such a text raise
            pass_on(exc)
            raise ValueError(
                f"ipc.TopicType: the description {_cut(description)} makes no sense: {exc}"
            ) from exc

    @property
    def description(self) -> Any:
        """The type as JSON has it: text or a dict, as in `ipc.topics`."""
        return json.loads(self.text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicType):
            return NotImplemented
        # A record and a structured type have the same fields at the same places.
        records = self.is_record and other.is_record and self.dtype == other.dtype
        return self.text == other.text or records

    def __hash__(self) -> int:
        if self.is_record and self.dtype is not None:
            return hash(json.dumps(layout_of(self.dtype)))
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return form_from_text, (self.text,)

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


class _Dtype(TopicType):
    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(json.dumps({"dtype": dtype.str}))
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"dtype {self.dtype!s}"

    def described(self, meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
        return _described_with(self, meta)


class _Fixed(TopicType):
    def __init__(self, array: Array) -> None:
        super().__init__(json.dumps({"array": [layout_of(array.dtype), list(array.shape)]}))
        self.dtype = array.dtype
        self.shape = array.shape
        self.nbytes = int(np.prod(array.shape, dtype=object)) * array.dtype.itemsize

    def __repr__(self) -> str:
        return f"Array({str(self.dtype)!r}, {self.shape})"


class _Record(TopicType):
    """A record: one element of a structured type; the fields of `Arrays` begin at cache lines."""

    is_record = True

    def __init__(self, dtype: np.dtype[Any], name: str) -> None:
        super().__init__(json.dumps({"record": layout_of(dtype)}))
        self.dtype = dtype
        self.shape = ()
        self.nbytes = dtype.itemsize
        self._name = name

    def __repr__(self) -> str:
        record: Any = self.dtype
        names = ", ".join(f"{name}: {record[name]}" for name in record.names or ())
        return f"{self._name}({names})"

    def value_of(self, sample: Any) -> Any:
        return Record(sample.array)

    def fill(self, array: Any, value: Any, call: str) -> None:
        fill_record(array, value, call)


class _Structured(TopicType):
    """A structured type of any shape: an array of records, or one record where it has none."""

    is_record = True

    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(json.dumps({"structured": layout_of(dtype)}))
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"dtype {self.dtype!s}"

    def described(self, meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
        return _described_with(self, meta)

    def value_of(self, sample: Any) -> Any:
        array = sample.array
        return array if array.ndim else Record(array)

    def fill(self, array: Any, value: Any, call: str) -> None:
        fill_record(array, value, call)


class _Bytes(TopicType):
    kind = BYTES

    def __init__(self) -> None:
        super().__init__('"bytes"')

    def __repr__(self) -> str:
        return "bytes"

    def value_of(self, sample: Any) -> Any:
        return sample._bytes()


class _Object(TopicType):
    kind = OBJECT

    def __init__(self) -> None:
        super().__init__('"object"')

    def __repr__(self) -> str:
        return "object"

    def value_of(self, sample: Any) -> Any:
        return unpacked(sample)


class _Any(TopicType):
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


_TYPES: Final = (
    "a numpy dtype, ipc.Array, ipc.Arrays, a dataclass of numbers and arrays, bytes, object or None"
)


def form_of(type_: Any, call: str) -> TopicType:
    """Return the form of a type; TypeError names the types that are accepted."""
    if type_ is None:
        return _Any()
    if type_ is bytes:
        return _Bytes()
    if type_ is object:
        return _Object()
    if isinstance(type_, TopicType):
        return type_
    if isinstance(type_, Array):
        return _Fixed(type_)
    if isinstance(type_, Arrays):
        return _Record(arrays_dtype(type_, call), "Arrays")
    if is_dataclass(type_) and isinstance(type_, type):
        return _Record(dataclass_dtype(type_, call), type_.__name__)
    dtype = dtype_of(type_, call, _TYPES)
    if dtype.names is not None:
        return _Structured(plain(dtype, call))
    if dtype.subdtype is not None:
        return _Fixed(Array(*dtype.subdtype))
    return _Dtype(plain(dtype, call))


def form_from_text(text: object) -> TopicType:
    """Return the form that a publisher announced; ValueError when the text makes no sense."""
    try:
        return _form_from(text)
    except Exception as exc:  # json and numpy raise many, RecursionError among them
        pass_on(exc)
        raise ValueError(f"type {text!r} makes no sense") from exc


def _form_from(text: object) -> TopicType:
    found = json.loads(str(text))
    if found in ("any", "bytes", "object"):
        return {"any": _Any, "bytes": _Bytes, "object": _Object}[found]()
    if not isinstance(found, dict) or len(found) != 1:
        raise ValueError(f"type {text!r} makes no sense")
    ((what, inner),) = found.items()
    if what == "dtype":
        return _Dtype(plain(np.dtype(str(inner)), "Subscriber"))
    if what == "array":
        return _Fixed(Array(dtype_from_layout(inner[0]), tuple(int(each) for each in inner[1])))
    if what == "record":
        return _Record(_with_fields(inner), "record")
    if what == "structured":
        return _Structured(_with_fields(inner))
    raise ValueError(f"type {text!r} makes no sense")


def _with_fields(layout: Any) -> np.dtype[Any]:
    dtype = plain(dtype_from_layout(layout), "Subscriber")
    if dtype.names is None:
        raise ValueError(f"{dtype} has no fields")
    return dtype


def require_same(ours: TopicType, theirs: TopicType, peer: str, call: str, topic: str) -> None:
    """Raise TypeMismatch, which shows both, unless the two agree.

    A record and a structured type agree if they have the same fields at the same places.
    """
    if ours != theirs:
        raise TypeMismatch(
            f"{call}: topic {topic!r} has type {ours!r} here, and {theirs!r} at {peer}; open both "
            "ends with one type"
        )


def _cut(description: object) -> str:
    text = repr(description)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


# -- arrays that say what they are --


def description(array: np.ndarray[Any, Any], call: str) -> bytes:
    """Return what a described array says of itself."""
    return described_as(array.dtype, array.shape, call)


def described_as(dtype: np.dtype[Any], shape: tuple[int, ...], call: str) -> bytes:
    """Return the description of an array of a type and a shape.

    ValueError when it has more dimensions or a longer description than a subscriber takes.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"{call}: {len(shape)} dimensions; at most {MOST_DIMENSIONS}")
    text = dtype.str if dtype.names is None else json.dumps(layout_of(plain(dtype, call)))
    code = text.encode()
    if len(code) + 8 * len(shape) + 3 > _MOST_DESCRIPTION:
        raise ValueError(
            f"{call}: the description of an array of {len(dtype.names or ())} fields takes "
            f"{len(code)} bytes; a sample has room for {_MOST_DESCRIPTION}, with the shape"
        )
    return struct.pack(f"<HB{len(shape)}Q", len(code), len(shape), *shape) + code


def _described_with(form: TopicType, meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the type and shape of a described array; ValueError unless it has the form's type."""
    dtype, shape = undescribed(meta)
    if dtype != form.dtype:
        raise ValueError(f"Sample: the publisher sent {dtype} on a topic of {form}")
    return dtype, shape


def undescribed(meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the type and shape of a description; ValueError when it makes no sense."""
    try:
        length, ndim = struct.unpack_from("<HB", meta)
        shape = struct.unpack_from(f"<{ndim}Q", meta, 3)
        code = meta[3 + 8 * ndim :].decode()
        if len(code) != length:
            raise ValueError("its length is wrong")
        dtype = dtype_from_layout(json.loads(code)) if code[0] == "[" else np.dtype(code)
        return plain(dtype, "Sample"), tuple(shape)
    except (struct.error, TypeError, IndexError, UnicodeDecodeError, KeyError) as exc:
        raise ValueError(f"Sample: the description of an array makes no sense: {exc}") from exc


def require_user(form: TopicType, neighbour: Any, name: str) -> None:
    """Raise TypeMismatch where a sample of another user could hold a pickle."""
    if form.kind in (OBJECT, DESCRIBED) and not neighbour.same_user:
        raise TypeMismatch(
            f"Subscriber: topic {name!r} carries pickled objects, and process {neighbour.pid} "
            "belongs to another user: a pickle runs code of its sender; publish arrays, records "
            "or bytes, and name their type at both ends"
        )
