# SPDX-License-Identifier: Apache-2.0
"""Buffers that a program passes to a connection: the bytes to send, the memory to receive into."""

from __future__ import annotations

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
        view = memoryview(data)  # type: ignore[arg-type]  # a TypeError says that it has none
    except TypeError:
        hint = ": encode it first, text.encode()" if isinstance(data, str) else ""
        raise TypeError(
            f"{call}: data must be bytes or another buffer, not {type(data).__name__}{hint}"
        ) from None
    if not view.c_contiguous:
        raise ValueError(f"{call}: the buffer is not contiguous; copy it first, bytes(data)")
    return view.cast("B") if view.nbytes else memoryview(b"")


def writable(buffer: object, call: str) -> memoryview:
    """Return a view of the memory to receive into. Raise TypeError if it cannot be written."""
    try:
        view = memoryview(buffer)  # type: ignore[arg-type]  # a TypeError says that it has none
    except TypeError:
        raise TypeError(
            f"{call}: buffer must be writable memory such as a bytearray, "
            f"not {type(buffer).__name__}"
        ) from None
    if view.readonly or not view.c_contiguous:
        raise TypeError(f"{call}: the buffer is read-only or not contiguous; use a bytearray")
    return view.cast("B") if view.nbytes else memoryview(bytearray())
