# SPDX-License-Identifier: Apache-2.0
"""Types that programs pass, and the numpy types that samples of them have in memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import numpy as np

from shmnd.common.arguments import integer
from shmnd.common.interruption import pass_on

__all__ = [
    "Array", "Arrays", "arrays_dtype", "dataclass_dtype", "dtype_from_layout", "dtype_of",
    "layout_of", "plain",
]  # fmt: skip

_LINE: Final = 64
_AS: Final = "a numpy dtype, as Array('f4', (3, 4))"
_SHORTER: Final = "parts of less than 2 GiB in all, or larger arrays as samples of their own"
_SCALARS: Final = {float: "f8", int: "i8", bool: "?", complex: "c16"}


@dataclass(frozen=True)
class Array:
    """An array of a fixed shape: `Array('f4', (480, 640))`."""

    dtype: Any
    shape: Any = ()

    def __post_init__(self) -> None:
        dtype = dtype_of(self.dtype, "ipc.Array", _AS)
        object.__setattr__(self, "dtype", plain(dtype, "ipc.Array"))
        shape = self.shape if isinstance(self.shape, (tuple, list)) else (self.shape,)
        whole = [number for each in shape if (number := integer(each)) is not None and number >= 0]
        if len(whole) < len(shape) or len(whole) > 32:
            raise ValueError(
                f"ipc.Array: shape {self.shape!r} cannot be used; pass at most 32 whole numbers "
                "from 0 on"
            )
        object.__setattr__(self, "shape", tuple(whole))


class Arrays:
    """Several arrays in one sample: `Arrays(image=Array('u1', (480, 640)), at=Array('f8', 6))`."""

    def __init__(self, /, **arrays: Array) -> None:
        for name, each in arrays.items():
            if not isinstance(each, Array):
                raise TypeError(
                    f"ipc.Arrays: {name} is {each!r}; pass an ipc.Array, as Array('f4', (3, 4))"
                )
        if not arrays:
            raise ValueError(
                "ipc.Arrays: no array is named; pass some, as Arrays(at=Array('f8', 6))"
            )
        self.arrays: Final[dict[str, Array]] = dict(arrays)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={each!r}" for name, each in self.arrays.items())
        return f"Arrays({inner})"


def dtype_of(
    type_: Any, call: str, wanted: str, *, align: bool = False, shown: str = ""
) -> np.dtype[Any]:
    """Return the numpy type that a program means. What numpy raises names the call and the type.

    The type is `shown` as the program has passed it, where it is made of that.
    """
    try:
        found: np.dtype[Any] = np.dtype(type_, align=align)
        wanted = _SHORTER  # of one that numpy makes
        _require_whole(found)
    except (MemoryError, RecursionError):
        raise
    except Exception as exc:
        pass_on(exc)
        kind = ValueError if isinstance(exc, ValueError) else TypeError
        why = str(exc).rstrip(".")
        named = shown or repr(type_)
        raise kind(f"{call}: type {named} cannot be used: {why}; pass {wanted}") from exc
    return found


def _require_whole(dtype: np.dtype[Any]) -> None:
    """Raise for a record with a field beyond its end: numpy counts bytes in a C int, and wraps."""
    base = dtype.base
    for inner, at, *_ in (base.fields or {}).values():
        if not 0 <= at <= base.itemsize - inner.itemsize:
            raise ValueError("its fields take 2 GiB or more, which numpy does not lay out")
        _require_whole(inner)


def plain(dtype: np.dtype[Any], call: str) -> np.dtype[Any]:
    """Return a type of plain numbers; TypeError for one that holds references, or nothing."""
    if dtype.hasobject:
        raise TypeError(
            f"{call}: dtype {dtype} holds references to objects, which mean nothing in another "
            "process; use type object"
        )
    if dtype.itemsize == 0:
        raise TypeError(f"{call}: dtype {dtype} has no size; say how long it is, as in 'S16'")
    _require_text(dtype, call)
    return dtype


def _require_text(dtype: np.dtype[Any], call: str) -> None:
    """Raise TypeError for a field with a title that is not text: another process has no such."""
    for name, (inner, _, *title) in (dtype.base.fields or {}).items():
        if title and not isinstance(title[0], str):
            raise TypeError(
                f"{call}: field {name!r} of dtype {dtype} has the title {title[0]!r}, which is not "
                "text; pass a text, or no title"
            )
        _require_text(inner, call)


def arrays_dtype(arrays: Arrays, call: str) -> np.dtype[Any]:
    """Return the structured type of several arrays, each at a cache line of its own."""
    names: list[str] = []
    formats, offsets, at = [], [], 0
    for name, each in arrays.arrays.items():
        shown = f"{each!r} of {name!r}"
        field = dtype_of((each.dtype, each.shape), call, _SHORTER, shown=shown)
        names.append(name)
        formats.append(field)
        offsets.append(at)
        at = (at + field.itemsize + _LINE - 1) // _LINE * _LINE
    parts = {"names": names, "formats": formats, "offsets": offsets, "itemsize": at or 1}
    return dtype_of(parts, call, _SHORTER, shown=repr(arrays))


def dataclass_dtype(type_: type, call: str, within: tuple[type, ...] = ()) -> np.dtype[Any]:
    """Return the structured type of a dataclass; TypeError names the field that has none.

    `within` are the dataclasses of whose fields it is the type.
    """
    if type_ in within:
        raise TypeError(f"{call}: {type_.__name__} has itself as a field; a record has an end")
    try:
        hints = get_type_hints(type_, include_extras=True)
    except NameError as exc:
        raise TypeError(
            f"{call}: an annotation of {type_.__name__} cannot be resolved: {exc}; define that in "
            "the module, or leave out `from __future__ import annotations`"
        ) from exc
    within = (*within, type_)
    parts: list[Any] = []
    for field in fields(type_):
        parts.append((field.name, _field_dtype(hints[field.name], field.name, within, call)))
    if not parts:
        raise TypeError(f"{call}: {type_.__name__} has no fields")
    return dtype_of(parts, call, _SHORTER, align=True, shown=type_.__name__)


def _field_dtype(hint: Any, name: str, within: tuple[type, ...], call: str) -> Any:
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, (Array, str, np.dtype)):
                return _field_dtype(extra, name, within, call)
        return _field_dtype(get_args(hint)[0], name, within, call)
    if isinstance(hint, Array):
        shown = f"{hint!r} of field {name!r}"
        return dtype_of((hint.dtype, hint.shape), call, _SHORTER, shown=shown)
    if hint in _SCALARS:
        return np.dtype(_SCALARS[hint])
    if is_dataclass(hint) and isinstance(hint, type):
        return dataclass_dtype(hint, call, within)
    try:
        if isinstance(hint, (str, np.dtype)) or issubclass(hint, np.generic):
            return plain(np.dtype(hint), call)
    except (TypeError, ValueError) as exc:
        pass_on(exc)
    raise TypeError(
        f"{call}: field {name} of {within[-1].__name__} is {hint!r}; a record has numbers (int, "
        "float, bool, complex, numpy scalars), ipc.Array fields and dataclasses of these"
    )


def layout_of(dtype: np.dtype[Any]) -> Any:
    """Return a structured type as JSON: a field has a name, a type, an offset and a title or none.

    The titles are text, as in a type that `plain` has returned.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return ["of", layout_of(base), list(shape)]
    if dtype.names is None:
        return dtype.str
    inner: Any = dtype.fields or {}
    return [
        "struct",
        [[name, layout_of(inner[name][0]), *inner[name][1:]] for name in dtype.names],
        dtype.itemsize,
    ]


def dtype_from_layout(layout: Any) -> np.dtype[Any]:
    """Return the type that `layout_of` described."""
    if isinstance(layout, str):
        return plain(np.dtype(layout), "Subscriber")
    if layout[0] == "of":
        return np.dtype((dtype_from_layout(layout[1]), tuple(int(each) for each in layout[2])))
    names = [str(each[0]) for each in layout[1]]
    formats = [dtype_from_layout(each[1]) for each in layout[1]]
    offsets = [int(each[2]) for each in layout[1]]
    parts: dict[str, Any] = {"names": names, "formats": formats, "offsets": offsets}
    if any(len(each) > 3 for each in layout[1]):
        parts["titles"] = [str(each[3]) if len(each) > 3 else None for each in layout[1]]
    parts["itemsize"] = int(layout[2])
    found: np.dtype[Any] = np.dtype(parts)  # type: ignore[call-overload]  # it takes such a dict
    return found
