# SPDX-License-Identifier: Apache-2.0
"""Loans: memory of a publisher that a program computes a sample into."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from shmnd.common.arguments import integer
from shmnd.ipc.errors import Closed
from shmnd.ipc.types import forms
from shmnd.ipc.types.record import Record

if TYPE_CHECKING:
    from shmnd.ipc.topic.writer import Loaned, WriterCore

__all__ = ["Loan"]

_CALL = "Publisher.loan"
_ROOM = 64
_MOST_LAYOUTS = 64


class Loan:
    """A sample that is being made. `send` publishes it without a copy; `drop` gives it back.

    Leaving a `with` block unsent drops it, and so does its end.
    """

    __slots__ = ("_array", "_kind", "_loaned", "_meta", "_shape", "_writer")

    def __init__(self, writer: WriterCore, form: forms.Form, shape: Any, dtype: Any) -> None:
        writer._require_open(_CALL)
        # Programs ask for the same again and again.
        layout = form.loans.get(shape) if type(shape) is int and dtype is None else None
        if layout is None:
            layout = _layout(form, shape, dtype)
        found, dims, nbytes, kind, meta, flat = layout
        self._kind = kind
        self._meta = meta
        self._writer = writer
        self._shape = dims
        self._loaned: Loaned = writer._loan(nbytes, _ROOM + (0 if meta is None else len(meta)))
        memory = cast("Any", self._loaned)
        if flat:  # takes a third of the time of the general way
            self._array: Any = np.frombuffer(memory, found)
        else:
            self._array = np.ndarray(dims, found, buffer=memory if nbytes else None)

    @property
    def array(self) -> Any:
        """The memory: a writable array, or a record with its fields by attribute and by key."""
        if self._loaned.is_spent:
            raise Closed("Loan.array: the loan is spent: it was sent or dropped before")
        if self._array.dtype.names is not None and self._array.ndim == 0:
            return Record(self._array)
        return self._array

    @property
    def nbytes(self) -> int:
        """The bytes of the sample."""
        return self._loaned.nbytes

    def send(self, header: Any = None, timeout: float | None = None) -> int:
        """Publish it; return its sequence number. The memory is the subscribers' from then on.

        TimeoutError when a subscriber that blocks has no room for so long: it is not spent then.
        """
        extra = 0 if header is None else memoryview(header).nbytes
        loaned = self._loaned
        meta = self._meta
        room = extra + (0 if meta is None else len(meta))
        if extra > _ROOM and not loaned.is_spent and self._is_short(room):
            larger = self._writer._loan(loaned.nbytes, room)
            memoryview(larger)[:] = memoryview(loaned)
            loaned.drop()
            self._loaned = loaned = larger
        sent = self._writer._send_loan(loaned, self._kind, self._shape, meta, header, timeout)
        # Written through an array that the program has kept, it would change under subscribers.
        self._array.flags.writeable = False
        return sent

    def _is_short(self, room: int) -> bool:
        """Return whether the slot lacks room for a long header."""
        return self._loaned.nbytes + room > self._writer._capacity(self._loaned)

    def drop(self) -> None:
        """Return it unsent. Harmless when it is spent."""
        self._loaned.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.drop()

    def __repr__(self) -> str:
        state = "spent" if self._loaned.is_spent else "to be filled"
        return f"<Loan of {self._loaned.nbytes} bytes on {self._writer.topic!r}, {state}>"


def _layout(form: forms.Form, shape: Any, dtype: Any) -> tuple[Any, ...]:
    """Return all that a loan needs to know, and keep it for the next one."""
    found, dims = _asked(form, shape, dtype)
    nbytes = prod(dims) * found.itemsize
    meta: bytes | None = None
    kind = form.kind
    if kind == forms.DESCRIBED or (len(dims) > 4 and form.shape is None) or _wide(dims):
        kind, meta = forms.DESCRIBED, forms.described_as(found, dims)
    flat = len(dims) == 1 and nbytes > 0 and found.subdtype is None
    layout = found, dims, nbytes, kind, meta, flat
    if type(shape) is int and dtype is None and len(form.loans) < _MOST_LAYOUTS:
        form.loans[shape] = layout
    return layout


def _asked(form: forms.Form, shape: Any, dtype: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the type and the shape of a loan."""
    if form.kind == forms.OBJECT:
        raise TypeError(
            f"{_CALL}: an object has no memory to compute into; send it, and its arrays go out of "
            "band, or open the topic with a dtype"
        )
    if form.shape is not None:
        assert form.dtype is not None
        if dtype is not None and np.dtype(dtype) != form.dtype:
            raise TypeError(f"{_CALL}: dtype {dtype!r}, and the topic has type {form!r}")
        if shape is not None and _dims(shape) not in (form.shape, (form.nbytes,)):
            raise ValueError(f"{_CALL}: shape {shape!r}, and the topic has type {form!r}")
        return form.dtype, form.shape
    if form.kind == forms.BYTES:
        if shape is None:
            raise TypeError(f"{_CALL}: say how many bytes: loan(nbytes)")
        return np.dtype("u1"), _dims(shape)
    if form.kind == forms.DESCRIBED:
        if shape is None:
            raise TypeError(f"{_CALL}: say which array, as loan((480, 640), 'u1')")
        return np.dtype("u1" if dtype is None else dtype), _dims(shape)
    assert form.dtype is not None
    if dtype is not None and np.dtype(dtype) != form.dtype:
        raise TypeError(f"{_CALL}: dtype {dtype!r}, and the topic has type {form!r}")
    return form.dtype, () if shape is None else _dims(shape)


def _wide(dims: tuple[int, ...]) -> bool:
    return len(dims) > 1 and max(dims) >= 1 << 32


def _dims(shape: Any) -> tuple[int, ...]:
    each = shape if isinstance(shape, (tuple, list)) else (shape,)
    found = []
    for dim in each:
        whole = integer(dim)
        if whole is None or whole < 0:
            raise ValueError(f"{_CALL}: shape {shape!r} is none; pass whole numbers from 0 on")
        found.append(whole)
    if len(found) > 32:
        raise ValueError(f"{_CALL}: {len(found)} dimensions; at most 32")
    return tuple(found)
