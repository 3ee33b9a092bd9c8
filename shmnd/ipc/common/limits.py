# SPDX-License-Identifier: Apache-2.0
"""Checks of what programs pass to ends, and how large the memory of an object may become."""

from __future__ import annotations

import json
import os
import resource
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.arguments import integer
from shmnd.common.interruption import pass_on

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COMMIT_UNIT", "MOST_SAMPLE", "attributes_of", "checked_name", "most_memory", "number"]

MOST_SAMPLE: Final = 7 << 35
"""Bytes of a sample; SHMND_MOST_SAMPLE of slots.h."""
_MOST_NAME: Final = 255
_PARTS: Final = 16
"""A program maps several objects; a server and a client of one service map four times."""
_LEAST_LIMITED: Final = 1 << 26
COMMIT_UNIT: Final = 1 << 16
"""Memory is committed in pieces of this size: one that reached beyond the end would be refused."""


def most_memory(least: int, most: int) -> int:
    """Return the bytes that the memory of an object may grow to: as many as the machine has.

    It is mapped whole. So it gets a part of the address space where that is limited (ulimit -v).
    It is one file, and gets half of the longest one (ulimit -f): the other half has to hold what
    describes it.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = max(least, min(machine, most))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        found = min(found, max(limit // _PARTS, _LEAST_LIMITED))
    longest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if longest != resource.RLIM_INFINITY:
        found = min(found, longest // 2)
    return found // COMMIT_UNIT * COMMIT_UNIT


def checked_name(name: object, call: str) -> str:
    """Return a name that others can find."""
    if not isinstance(name, str):
        raise TypeError(f"{call}: name {name!r} is not a str, but {type(name).__name__}")
    shown = repr(name) if len(name) < 60 else f"{name[:60]!r}…"
    try:
        nbytes = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(
            f"{call}: name {shown} has half of a surrogate pair, which UTF-8 cannot encode"
        ) from None
    if not 0 < nbytes <= _MOST_NAME or "\0" in name:
        raise ValueError(
            f"{call}: name {shown} has {nbytes} bytes; a name has 1 to {_MOST_NAME}, none of "
            "them zero"
        )
    return name


def number(call: str, what: str, value: object, least: int, most: int) -> int:
    """Return a whole number within bounds."""
    found = integer(value)
    if found is None:
        raise TypeError(f"{call}: {what} {value!r} is not a whole number")
    if not least <= found <= most:
        raise ValueError(f"{call}: {what} {found} is outside {least}..{most}")
    return found


def attributes_of(attributes: Mapping[str, Any] | None, call: str) -> dict[str, Any]:
    """Return attributes as others see them: JSON with text as keys."""
    if attributes is None:
        return {}
    try:
        text = json.dumps(dict(attributes))
    except (TypeError, ValueError) as exc:
        pass_on(exc)
        raise TypeError(
            f"{call}: attributes {attributes!r} cannot be written as JSON: {exc}"
        ) from None
    found: dict[str, Any] = json.loads(text)
    return found
