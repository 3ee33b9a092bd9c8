# SPDX-License-Identifier: Apache-2.0
"""Refuses values that a type cannot keep: numpy wraps and cuts them, and drops masks."""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

import numpy as np

from shmnd.common.arguments import shown
from shmnd.common.interruption import pass_on
from shmnd.ipc.errors import TypeMismatch

__all__ = ["has_mask", "range_of", "require_fit", "require_unmasked"]

_MOST_TIME: Final = 2**63 - 1
"""The most units of a time; numpy takes the number below its negative for no time."""


def has_mask(kind: type) -> bool:
    """Return whether values of a kind are masked arrays.

    Where no program has loaded their module there are none; to load it takes long.
    """
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and issubclass(kind, masked)


def require_unmasked(value: Any, call: str) -> None:
    """Raise if items of a value are masked: numpy drops the mask where it makes an array of it."""
    if "numpy.ma" in sys.modules and _is_masked(value):
        raise TypeMismatch(
            f"{call}: items of the value are masked, and a plain array has no mask; pass "
            "value.filled(number), or use type object"
        )


def _is_masked(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        return any(has_mask(kind) or issubclass(kind, (list, tuple)) for kind in kinds) and any(
            map(_is_masked, value)
        )
    return has_mask(type(value)) and b"\1" in np.ma.getmask(value).tobytes()  # or of a field


def require_fit(found: Any, dtype: np.dtype[Any], call: str) -> None:
    """Raise unless an array keeps its values in a type: numpy wraps and cuts them.

    OverflowError for numbers beyond the range of whole ones, of truth values and of times,
    TypeMismatch for values that are not numbers or times of the type at all. Real numbers may lose
    digits. Fields go by their names.
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
    if kind == "O" and wanted in "biu" and all(type(each) is int for each in found.flat):
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
    """Raise where numpy would cut or wrap a value to make a time or a span of time."""
    kind = found.dtype.kind
    if dtype.kind not in "mM" or not found.size:
        return
    if kind == "O":
        for each in found.flat:
            _require_object_fits(each, dtype, call)
    elif kind in "iu":
        _require_count_fits((int(found.min()), int(found.max())), dtype, call)
    elif kind not in f"SU{dtype.kind}":
        first = found.ravel()[0]
        raise TypeMismatch(f"{call}: {first} is not a time of type {dtype}; convert it")
    else:
        _require_same_time(found, dtype, call)


def _require_object_fits(value: Any, dtype: np.dtype[Any], call: str) -> None:
    """Raise unless a type keeps the time that an object is: it may be a number, a text or None."""
    if type(value) is int:
        _require_count_fits((value,), dtype, call)
        return
    found = np.asarray(value)
    if found.dtype.kind == "O":
        _require_same_time(found, dtype, call)
    else:
        _require_time_fits(found, dtype, call)


def _require_count_fits(numbers: tuple[int, ...], dtype: np.dtype[Any], call: str) -> None:
    for number in numbers:
        if not -_MOST_TIME <= number <= _MOST_TIME:
            raise OverflowError(
                f"{call}: {shown(number)} is outside {-_MOST_TIME}..{_MOST_TIME}, the range of "
                f"{dtype}; take a coarser unit at both ends"
            )


def _require_same_time(found: Any, dtype: np.dtype[Any], call: str) -> None:
    """Raise unless times are the same in a type's unit; the caller reports other values."""
    try:
        made = found.astype(dtype)
        wholes = [found.astype(f"{dtype.kind}8")]  # in the unit that its texts and objects have
        if dtype.kind == "M" and found.dtype.kind in "SU":
            wholes.append(found.astype("M8[s]"))  # where the unit of one is too fine for another
    except (ValueError, TypeError) as exc:
        pass_on(exc)
        return
    for whole in wholes:
        changed = made.astype(whole.dtype).view("i8") != whole.view("i8")
        if not changed.any():
            continue
        first = found[changed].tolist()[0] if found.dtype.kind in "OSU" else whole[changed][0]
        if np.can_cast(whole.dtype, dtype, "safe"):
            raise OverflowError(
                f"{call}: {first} is outside the range of {dtype}; take a coarser unit at both ends"
            )
        raise TypeMismatch(f"{call}: {first} has a part of a unit of {dtype}; convert it")


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
