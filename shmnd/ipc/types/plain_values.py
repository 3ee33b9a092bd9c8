# SPDX-License-Identifier: Apache-2.0
"""Values that programs send, as arrays and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmnd.ipc.errors import TypeMismatch

__all__ = ["as_array", "as_bytes", "is_plain_array", "require_fit"]


def as_array(value: Any, form: Any, call: str) -> Any:
    """Return a value as an array of a topic's type."""
    try:
        rows = isinstance(value, list) and form.dtype.names is not None
        found = np.asarray(value, form.dtype if rows else None)
    except (ValueError, TypeError) as exc:
        raise TypeMismatch(f"{call}: the value cannot be an array: {exc}") from exc
    plain = isinstance(value, (int, float, list, tuple)) and not found.dtype.hasobject
    if not plain and not np.can_cast(found.dtype, form.dtype, "same_kind"):
        hint = f"convert it first, value.astype({str(form.dtype)!r})"
        if found.dtype.kind in "OUS":
            hint = "pass numbers, or open the topic with type object"
        raise TypeMismatch(f"{call}: the value has dtype {found.dtype}, the topic {form!r}; {hint}")
    if form.shape is not None and found.shape != form.shape:
        raise ValueError(
            f"{call}: the value has shape {found.shape}, the topic {form!r}; reshape it"
        )
    require_fit(found, form.dtype, call)
    return np.require(found, form.dtype, "C")


def require_fit(found: Any, dtype: np.dtype[Any], who: str) -> None:
    """Raise OverflowError for whole numbers that a type cannot hold: numpy wraps them."""
    if not (found.dtype.kind in "iu" and dtype.kind in "iu" and found.size):
        return
    if np.can_cast(found.dtype, dtype):
        return
    range_ = np.iinfo(dtype)
    for number in (int(found.min()), int(found.max())):
        if not range_.min <= number <= range_.max:
            raise OverflowError(
                f"{who}: {number} is outside {range_.min}..{range_.max}, the range of {dtype}; "
                "use a wider type at both ends"
            )


def as_bytes(value: Any, call: str) -> memoryview:
    """Return the bytes of a value."""
    try:
        view = memoryview(value)
    except TypeError:
        hint = (
            "encode it first, text.encode()" if isinstance(value, str) else "pass bytes or an array"
        )
        raise TypeMismatch(
            f"{call}: {type(value).__name__} is not a buffer, and the topic has type bytes; {hint}"
        ) from None
    return view.cast("B") if view.c_contiguous and view.nbytes else memoryview(bytes(view))


def is_plain_array(value: Any) -> bool:
    """Return whether a value is an array without more than its items: no objects, no mask."""
    return (
        isinstance(value, np.ndarray)
        and not value.dtype.hasobject
        and not isinstance(value, np.ma.MaskedArray)
    )
