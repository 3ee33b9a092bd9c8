# SPDX-License-Identifier: Apache-2.0
"""Values that programs send, as arrays and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmnd.ipc.errors import TypeMismatch

__all__ = ["as_array", "as_bytes"]


def as_array(value: Any, form: Any, call: str) -> Any:
    """Return a value as an array of a topic's type."""
    try:
        found = np.asarray(value)
    except ValueError as exc:
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
    return np.require(found, form.dtype, "C")


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
