# SPDX-License-Identifier: Apache-2.0
"""The offers of the ranks of a window, and the text of why one of them has no memory for it."""

import os
from collections.abc import Callable
from errno import EMFILE, ENFILE, ESRCH
from typing import Any

from shmnd.common.descriptors import file_of
from shmnd.common.shortages import remedy_of_call

__all__ = ["exchange_offers", "is_shortage", "open_held", "reason_of"]


def exchange_offers(comm: Any, make: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the offer of this rank, and a list with what each rank lets the others know of its
    own: the address, the bytes, the unit, and whether the memory may lie apart.
    """
    own: list[Any] = []

    def offer() -> tuple[int, int, int, bool]:
        own.append(make())
        memory = own[0].memory
        apart = own[0].info.get("alloc_shared_noncontig") == "true"
        there = (0, own[0].nbytes) if memory is None else (memory.address, memory.nbytes)
        return *there, own[0].unit, apart

    known = comm._allgather_of(offer)
    return own[0], known


def open_held(process: int, descriptor: int, file: tuple[int, int]) -> int:
    """Return a descriptor of the segment that another rank holds, to read and write.

    Another process may have the number of a rank that has died. To open its files may do
    something: they may be a terminal, a pipe or a device.
    """
    found = os.open(f"/proc/{process}/fd/{descriptor}", os.O_PATH | os.O_CLOEXEC)
    try:
        if file_of(found) != file:
            raise ProcessLookupError(ESRCH, f"process {process} does not hold the segment")
        return os.open(f"/proc/self/fd/{found}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(found)


def is_shortage(failure: Exception) -> bool:
    """Return whether memory ran out, and not descriptors."""
    why = getattr(failure.__cause__, "errno", None)
    return isinstance(failure, MemoryError) and why not in (EMFILE, ENFILE)


def reason_of(failure: Exception) -> str:
    """Return the text of an error, with the limit that was met."""
    limit = remedy_of_call(failure) if isinstance(failure, OSError) else ""
    return f"{type(failure).__name__}: {failure}{limit}"
