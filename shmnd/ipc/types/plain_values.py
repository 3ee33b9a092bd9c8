# SPDX-License-Identifier: Apache-2.0
"""Values that programs send, as arrays and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmnd.common.interruption import pass_on
from shmnd.ipc.errors import TypeMismatch
from shmnd.ipc.types.filling import rows_of
from shmnd.ipc.types.fitting import has_mask, require_fit, require_unmasked

__all__ = ["array_of", "as_array", "as_bytes", "as_dtype", "is_plain_array"]


def as_array(value: Any, form: Any, call: str) -> Any:
    """Return a value as an array of a topic's type."""
    found = array_of(value, form.dtype, form.shape, call)
    array = as_dtype(value, found, form.dtype, call, form)
    if form.shape is not None and found.shape != form.shape:
        raise ValueError(
            f"{call}: the value has shape {found.shape}, the topic {form!r}; reshape it"
        )
    return array if array.flags.c_contiguous else np.require(array, requirements="C")


def array_of(value: Any, dtype: Any, shape: tuple[int, ...] | None, call: str) -> Any:
    """Return a value as an array of a type of its own; as rows of `dtype` where that has fields."""
    if dtype.names is not None and not hasattr(value, "__array__"):
        return rows_of(value, dtype, shape, call)
    require_unmasked(value, call)
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as exc:
        pass_on(exc)
        raise TypeMismatch(f"{call}: the value cannot be an array: {exc}") from exc


def as_dtype(
    value: Any, found: Any, dtype: np.dtype[Any], call: str, topic: object | None = None
) -> Any:
    """Return `found`, the array of a value, in a type; TypeMismatch unless it can be that.

    Numbers of Python have no type of their own, so those that fit are converted; times are
    made of all that is one. The error names the topic, if it is one of a topic.
    """
    if found.dtype == dtype:
        return found
    plain = dtype.kind in "mM" or (
        isinstance(value, (int, float, list, tuple))
        and (dtype.kind in "biu" or not found.dtype.hasobject)
    )
    if found.dtype.names != dtype.names or not (
        plain or np.can_cast(found.dtype, dtype, "same_kind")
    ):
        hint = f"convert it first, value.astype({str(dtype)!r})"
        if found.dtype.kind in "OUS":
            text = dtype.kind in "SU"
            hint = f"pass {'text' if text else 'numbers'}, or use type object"
        wanted = f"and not {dtype}" if topic is None else f"the topic {topic!r}"
        raise TypeMismatch(f"{call}: the value has dtype {found.dtype}, {wanted}; {hint}")
    require_fit(found, dtype, call)
    try:
        return found.astype(dtype, copy=False)
    except (ValueError, TypeError) as exc:  # a text that is not a date
        pass_on(exc)
        raise TypeMismatch(f"{call}: {exc}") from exc


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
    return isinstance(value, np.ndarray) and not value.dtype.hasobject and not has_mask(type(value))
