# SPDX-License-Identifier: Apache-2.0
"""Values that programs send, as arrays and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmnd.ipc.errors import TypeMismatch

__all__ = ["as_array", "as_bytes", "is_plain_array", "require_fit", "require_unmasked"]

_Masked = np.ma.MaskedArray


def as_array(value: Any, form: Any, call: str) -> Any:
    """Return a value as an array of a topic's type."""
    try:
        rows = isinstance(value, list) and form.dtype.names is not None
        found = np.asarray(value, form.dtype if rows else None)
    except (ValueError, TypeError) as exc:
        raise TypeMismatch(f"{call}: the value cannot be an array: {exc}") from exc
    array = as_dtype(value, found, form.dtype, call, form)
    if form.shape is not None and found.shape != form.shape:
        raise ValueError(
            f"{call}: the value has shape {found.shape}, the topic {form!r}; reshape it"
        )
    return array if array.flags.c_contiguous else np.require(array, requirements="C")


def as_dtype(
    value: Any, found: Any, dtype: np.dtype[Any], call: str, topic: object | None = None
) -> Any:
    """Return `found`, the array of a value, in a type; TypeMismatch unless it can be that.

    Numbers of Python have no type of their own, so those that fit are converted. The error names
    the topic, if it is one of a topic.
    """
    require_unmasked(value, call)
    if found.dtype == dtype:
        return found
    plain = isinstance(value, (int, float, list, tuple)) and (
        dtype.kind in "iu" or not found.dtype.hasobject
    )
    if found.dtype.names != dtype.names or not (
        plain or np.can_cast(found.dtype, dtype, "same_kind")
    ):
        hint = f"convert it first, value.astype({str(dtype)!r})"
        if found.dtype.kind in "OUS":
            hint = "pass numbers, or use type object"
        wanted = f"and not {dtype}" if topic is None else f"the topic {topic!r}"
        raise TypeMismatch(f"{call}: the value has dtype {found.dtype}, {wanted}; {hint}")
    require_fit(found, dtype, call)
    return found.astype(dtype, copy=False)


def require_unmasked(value: Any, who: str) -> None:
    """Raise if items of a value are masked: numpy drops the mask where it makes an array of it."""
    if isinstance(value, _Masked) and b"\1" in np.ma.getmask(value).tobytes():  # or of a field
        raise TypeMismatch(
            f"{who}: items of the value are masked, and a plain array has no mask; pass "
            "value.filled(number), or use type object"
        )


def require_fit(found: Any, dtype: np.dtype[Any], who: str) -> None:
    """Raise unless an array keeps its values in a type: numpy wraps and cuts them.

    OverflowError for numbers beyond the range of whole ones, TypeMismatch for values that are not
    numbers of the type at all. Real numbers may lose digits. Fields go by their names.
    """
    if found.dtype == dtype:
        return
    if dtype.names is not None or found.dtype.names is not None:
        _require_fields_fit(found, dtype, who)
        return
    kind, wanted = found.dtype.kind, dtype.kind
    if not found.size or wanted not in "biufc":
        return
    if kind == "O" and wanted in "iu" and all(type(each) is int for each in found.flat):
        kind = "i"  # beyond 64 bits
    if kind not in "biufc" or (kind == "c" and wanted != "c"):
        first = found.ravel().tolist()[0]
        raise TypeMismatch(f"{who}: {first!r} is not a number of type {dtype}; convert it")
    if wanted not in "iu" or kind == "b" or np.can_cast(found.dtype, dtype):
        return
    if kind == "f":
        cut = found[np.isfinite(found) & (found != np.trunc(found))]
        if cut.size:
            raise TypeMismatch(f"{who}: {cut[0]} is not a whole number, as those of {dtype} are")
    range_ = np.iinfo(dtype)
    for number in (found.min(), found.max()):
        finite = kind != "f" or np.isfinite(number)
        if not finite or not range_.min <= int(number) <= range_.max:
            raise OverflowError(
                f"{who}: {number} is outside {range_.min}..{range_.max}, the range of {dtype}; "
                "use a wider type at both ends"
            )


def _require_fields_fit(found: Any, dtype: np.dtype[Any], who: str) -> None:
    if found.dtype.names != dtype.names:
        raise TypeMismatch(
            f"{who}: the value has dtype {found.dtype}, and not {dtype}; pass the same fields "
            "in the same order"
        )
    for name in dtype.names or ():
        require_fit(found[name], dtype[name].base, f"{who}: field {name}")


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
        and not isinstance(value, _Masked)
    )
