# SPDX-License-Identifier: Apache-2.0
"""Refuses values that a type cannot keep: numpy wraps and cuts them, and drops masks."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from shmnd.ipc.errors import TypeMismatch

__all__ = ["has_mask", "range_of", "require_fit", "require_unmasked"]


def has_mask(kind: type) -> bool:
    """Return whether values of a kind are masked arrays.

    Where no program has loaded their module there are none; to load it takes long.
    """
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and issubclass(kind, masked)


def require_unmasked(value: Any, call: str) -> None:
    """Raise if items of a value are masked: numpy drops the mask where it makes an array of it."""
    if has_mask(type(value)) and b"\1" in np.ma.getmask(value).tobytes():  # or of a field
        raise TypeMismatch(
            f"{call}: items of the value are masked, and a plain array has no mask; pass "
            "value.filled(number), or use type object"
        )


def require_fit(found: Any, dtype: np.dtype[Any], call: str) -> None:
    """Raise unless an array keeps its values in a type: numpy wraps and cuts them.

    OverflowError for numbers beyond the range of whole ones and of truth values, TypeMismatch for
    values that are not numbers of the type at all. Real numbers may lose digits. Fields go by their
    names.
    """
    if found.dtype == dtype:
        return
    if dtype.names is not None or found.dtype.names is not None:
        _require_fields_fit(found, dtype, call)
        return
    kind, wanted = found.dtype.kind, dtype.kind
    if wanted in "SU" and kind not in "SU" and found.size:
        raise TypeMismatch(f"{call}: {found.ravel().tolist()[0]!r} is not text; pass str(value)")
    if not found.size or wanted not in "biufc":
        _require_time_fits(found, dtype, call)
        return
    if kind == "O" and wanted in "iu" and all(type(each) is int for each in found.flat):
        kind = "i"  # beyond 64 bits
    if kind not in "biufc" or (kind == "c" and wanted != "c"):
        first = found.ravel().tolist()[0]
        raise TypeMismatch(f"{call}: {first!r} is not a number of type {dtype}; convert it")
    if wanted not in "biu" or kind == "b" or np.can_cast(found.dtype, dtype):
        return
    if kind == "f":
        cut = found[np.isfinite(found) & (found != np.trunc(found))]
        if cut.size:
            raise TypeMismatch(f"{call}: {cut[0]} is not a whole number, as those of {dtype} are")
    least, most = range_of(dtype)
    for number in (found[()],) if found.ndim == 0 else (found.min(), found.max()):
        finite = kind != "f" or np.isfinite(number)
        if not finite or not least <= int(number) <= most:
            raise OverflowError(
                f"{call}: {number} is outside {least}..{most}, the range of {dtype}; "
                "use a wider type at both ends"
            )


def _require_time_fits(found: Any, dtype: np.dtype[Any], call: str) -> None:
    """Raise where numpy would cut a number to make a time, or a date to make a span of time."""
    kind = found.dtype.kind
    cut = kind in "bfc" or (kind in "mM" and kind != dtype.kind)
    if cut and found.size and dtype.kind in "mM":
        first = found.ravel()[0]
        raise TypeMismatch(f"{call}: {first} is not a time of type {dtype}; convert it")


@functools.cache
def range_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the most number of a type of whole ones: numpy takes long to."""
    if dtype.kind == "b":
        return 0, 1
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def _require_fields_fit(found: Any, dtype: np.dtype[Any], call: str) -> None:
    if found.dtype.names != dtype.names:
        raise TypeMismatch(
            f"{call}: the value has dtype {found.dtype}, and not {dtype}; pass the same fields "
            "in the same order"
        )
    for name in dtype.names or ():
        require_fit(found[name], dtype[name].base, f"{call}: field {name}")
