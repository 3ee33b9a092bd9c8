# SPDX-License-Identifier: Apache-2.0
"""Buffers that a program passes to a connection: the bytes to send, the memory to receive into."""

from __future__ import annotations

from typing import Any

from shmnd.common.objects import REMEDY, holds_objects
from shmnd.messaging.fragments import LONGEST, Outgoing

__all__ = ["outgoing", "writable"]


def outgoing(data: object, call: str) -> Outgoing:
    """Return a message to be sent. Raise ValueError for one that is too long."""
    view = memoryview(data) if type(data) is bytes else _bytes_of(data, call)
    if view.nbytes > LONGEST:
        raise ValueError(f"{call}: {view.nbytes} bytes; a message has at most {LONGEST}")
    return Outgoing(view)


def _bytes_of(data: object, call: str) -> memoryview:
    """Return a view of a message's bytes. Raise TypeError for an object without a buffer."""
    try:
        view = _viewed(data)
    except TypeError:
        hint = ": encode it first, text.encode()" if isinstance(data, str) else ""
        raise TypeError(
            f"{call}: data must be bytes or another buffer, not {type(data).__name__}{hint}"
        ) from None
    if not view.c_contiguous:
        raise ValueError(f"{call}: the buffer is not contiguous; copy it first, bytes(data)")
    _require_bytes(view, data, call)
    return view.cast("B") if view.nbytes else memoryview(b"")


def writable(buffer: object, call: str) -> memoryview:
    """Return a view of the memory to receive into. Raise TypeError if it cannot be written."""
    try:
        view = _viewed(buffer)
    except TypeError:
        raise TypeError(
            f"{call}: buffer must be writable memory such as a bytearray, "
            f"not {type(buffer).__name__}"
        ) from None
    if view.readonly or not view.c_contiguous:
        raise TypeError(f"{call}: the buffer is read-only or not contiguous; use a bytearray")
    _require_bytes(view, buffer, call)
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _viewed(buffer: Any) -> memoryview:
    try:
        return memoryview(buffer)
    except ValueError:  # numpy: the items, such as dates, have no format
        flags = getattr(buffer, "flags", None)
        if flags is None or not flags.c_contiguous:
            raise
        return memoryview(buffer.reshape(-1).view("u1"))


def _require_bytes(view: memoryview, buffer: object, call: str) -> None:
    if holds_objects(view.format, buffer):
        raise TypeError(f"{call}: {type(buffer).__name__} of {REMEDY}")
