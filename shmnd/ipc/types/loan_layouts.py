# SPDX-License-Identifier: Apache-2.0
"""What a loan is of: the type, the shape and the bytes that a program asked for."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from shmnd.common.arguments import integer
from shmnd.ipc.common.limits import MOST_SAMPLE
from shmnd.ipc.errors import LoanLimit
from shmnd.ipc.types import forms
from shmnd.ipc.types.layouts import dtype_of, plain

__all__ = ["Layout", "layout_of"]

Layout = tuple[np.dtype[Any], tuple[int, ...], int, int, bytes | None, bool]
"""Type, shape, bytes, kind and description of a loan, and whether numpy takes it as it is."""
_CALL: Final = "Publisher.loan"
_DTYPE: Final = "a numpy dtype, as 'f4'"


def layout_of(form: forms.TopicType, shape: Any, dtype: Any) -> Layout:
    """Return all that a loan needs to know."""
    found, dims = _asked(form, shape, dtype)
    nbytes = prod(dims) * found.itemsize
    if nbytes > MOST_SAMPLE:
        raise LoanLimit(f"{_CALL}: {nbytes} bytes; a sample has at most {MOST_SAMPLE}")
    meta: bytes | None = None
    kind = form.kind
    if kind == forms.DESCRIBED or (len(dims) > 4 and form.shape is None) or _wide(dims):
        kind, meta = forms.DESCRIBED, forms.described_as(found, dims, _CALL)
    is_plain = nbytes > 0 and found.subdtype is None and not found.hasobject
    return found, dims, nbytes, kind, meta, is_plain


def _asked(form: forms.TopicType, shape: Any, dtype: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the type and the shape of a loan."""
    if form.kind == forms.OBJECT:
        raise TypeError(
            f"{_CALL}: an object has no memory to compute into; send it, and its arrays go out of "
            "band, or open the topic with a dtype"
        )
    if form.shape is not None:
        assert form.dtype is not None
        _require_dtype(form, dtype)
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
        items = dtype_of("u1" if dtype is None else dtype, _CALL, _DTYPE)
        return plain(items.base, _CALL), _dims(shape) + items.shape
    assert form.dtype is not None
    _require_dtype(form, dtype)
    return form.dtype, () if shape is None else _dims(shape)


def _require_dtype(form: forms.TopicType, dtype: Any) -> None:
    """Raise TypeError for a type that is given and is not that of the topic."""
    if dtype is not None and dtype_of(dtype, _CALL, _DTYPE) != form.dtype:
        raise TypeError(f"{_CALL}: dtype {dtype!r}, and the topic has type {form!r}")


def _wide(dims: tuple[int, ...]) -> bool:
    return len(dims) > 1 and max(dims) >= 1 << 32


def _dims(shape: Any) -> tuple[int, ...]:
    each = shape if isinstance(shape, (tuple, list)) else (shape,)
    found = []
    for dim in each:
        whole = integer(dim)
        if whole is None or whole < 0:
            raise ValueError(
                f"{_CALL}: shape {shape!r} cannot be used; pass whole numbers from 0 on"
            )
        found.append(whole)
    if len(found) > forms.MOST_DIMENSIONS:
        raise ValueError(f"{_CALL}: {len(found)} dimensions; at most {forms.MOST_DIMENSIONS}")
    return tuple(found)
