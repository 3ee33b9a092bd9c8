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

from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.types.filling import fill_record
from shmnd.ipc.types.layouts import (
    Array,
    Arrays,
    arrays_dtype,
    dataclass_dtype,
    dtype_from_layout,
    layout_of,
    plain,
)  # fmt: skip
from shmnd.ipc.types.objects import unpacked
from shmnd.ipc.types.record import Record

__all__ = [
    "Form",
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


class Form:
    """A type of a topic. `kind` is what the lines say of its samples."""

    kind: int = FIXED
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int = 0
    is_record: bool = False

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.loans: Final[dict[int, Any]] = {}
        """Layouts of loans that were asked for by a whole number."""

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
        return _described_with(self, meta)


class _Fixed(Form):
    def __init__(self, array: Array) -> None:
        super().__init__(json.dumps({"array": [layout_of(array.dtype), list(array.shape)]}))
        self.dtype = array.dtype
        self.shape = array.shape
        self.nbytes = int(np.prod(array.shape, dtype=object)) * array.dtype.itemsize

    def __repr__(self) -> str:
        return f"Array({str(self.dtype)!r}, {self.shape})"


class _Record(Form):
    """A record: one element of a structured type; the fields of `Arrays` begin at cache lines."""

    is_record = True

    def __init__(self, dtype: np.dtype[Any], name: str) -> None:
        super().__init__(json.dumps({"record": layout_of(dtype)}))
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


class _Structured(Form):
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
        return _Record(arrays_dtype(type_), "Arrays")
    if is_dataclass(type_) and isinstance(type_, type):
        return _Record(dataclass_dtype(type_, call), type_.__name__)
    try:
        dtype = np.dtype(type_)
    except TypeError:
        raise TypeError(
            f"{call}: type {type_!r} is none; pass a numpy dtype, ipc.Array, ipc.Arrays, a "
            "dataclass of numbers and arrays, bytes, object or None"
        ) from None
    if dtype.names is not None:
        return _Structured(plain(dtype, call))
    if dtype.subdtype is not None:
        return _Fixed(Array(*dtype.subdtype))
    return _Dtype(plain(dtype, call))


def form_from_text(text: object) -> Form:
    """Return the form that a publisher announced; ValueError when the text makes no sense."""
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
        return _Record(dtype_from_layout(inner), "record")
    if what == "structured":
        return _Structured(dtype_from_layout(inner))
    raise ValueError(f"type {text!r} makes no sense")


def require_same(ours: Form, theirs: Form, who: str, call: str, topic: str) -> None:
    """Raise TypeMismatch, which shows both, unless the two agree.

    A record and a structured type agree if they have the same fields at the same places.
    """
    records = ours.is_record and theirs.is_record and ours.dtype == theirs.dtype
    if ours.text != theirs.text and not records:
        raise TypeMismatch(
            f"{call}: topic {topic!r} has type {ours!r} here, and {theirs!r} at {who}; open both "
            "ends with one type"
        )


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
    text = dtype.str if dtype.names is None else json.dumps(layout_of(dtype))
    code = text.encode()
    if len(code) + 8 * len(shape) + 3 > _MOST_DESCRIPTION:
        raise ValueError(
            f"{call}: the description of an array of {len(dtype.names or ())} fields takes "
            f"{len(code)} bytes; a sample has room for {_MOST_DESCRIPTION}, with the shape"
        )
    return struct.pack(f"<HB{len(shape)}Q", len(code), len(shape), *shape) + code


def _described_with(form: Form, meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
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


def require_user(form: Form, neighbour: Any, name: str) -> None:
    """Raise TypeMismatch where a sample of another user could hold a pickle."""
    if form.kind in (OBJECT, DESCRIBED) and not neighbour.same_user:
        raise TypeMismatch(
            f"Subscriber: topic {name!r} carries pickled objects, and process {neighbour.pid} "
            "belongs to another user: a pickle runs code of its sender; publish arrays, records "
            "or bytes, and name their type at both ends"
        )
