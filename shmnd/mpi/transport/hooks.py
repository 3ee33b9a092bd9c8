# SPDX-License-Identifier: Apache-2.0
"""What the objects ask of the engine: rank and size, time, progress, the ways to end.

The objects do not import the engine. It registers its functions here when it is imported; until
then a process is one rank of one, and ends alone.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

from shmnd.common.interruption import pass_on

Buffer = bytearray | memoryview


def flush_output(last: str = "") -> None:
    """Write what the streams of a process that ends have in their buffers, and a last text.

    It ends also where a stream takes nothing: closed, replaced, on a full disk, or without a
    reader.
    """
    for name, text in (("stdout", ""), ("stderr", last)):
        stream: Any = getattr(sys, name, None)
        try:
            if text:
                stream.write(text)
            stream.flush()
        except Exception as error:
            pass_on(error)


def end_process(code: int) -> NoReturn:
    """End the process at once, but for its output."""
    try:
        flush_output()
    finally:
        os._exit(code)


_asked: Final[dict[str, Callable[..., Any]]] = {
    "rank": lambda: 0,
    "size": lambda: 1,
    "abort": end_process,
    "finalize": lambda: None,
    "progress": lambda: None,
    "wtime": time.perf_counter,
    "allocate": bytearray,
}


def provide(**functions: Callable[..., Any]) -> None:
    """Register functions of the engine under their names: `rank`, `size`, `abort` and so on.

    Raise KeyError for a name that nothing asks for.
    """
    for name, function in functions.items():
        if name not in _asked:
            raise KeyError(f"provide({name}=...): nothing asks for it; known: {sorted(_asked)}")
        _asked[name] = function


def rank() -> int:
    """Return the rank of this process among all of the job."""
    return int(_asked["rank"]())


def size() -> int:
    """Return the number of ranks of the job."""
    return int(_asked["size"]())


def wtime() -> float:
    """Return seconds since a fixed moment in the past."""
    return float(_asked["wtime"]())


def abort(code: int) -> NoReturn:
    """End all ranks of the job; this process with `code`."""
    _asked["abort"](code)
    os._exit(code)


def abort_with_line(code: int, title: str) -> NoReturn:
    """Abort the job after a line with the rank, the code and the communicator."""
    try:
        flush_output(f"[rank {rank()}] MPI_Abort({code}) of {title}\n")
    finally:
        abort(code)


def finalize() -> None:
    """Leave the job in order."""
    _asked["finalize"]()


def progress() -> None:
    """Make progress with all operations, without waiting."""
    _asked["progress"]()


def allocate(nbytes: int) -> Buffer:
    """Return an object with so much writable memory, where the engine likes to have messages."""
    memory: Buffer = _asked["allocate"](nbytes)
    return memory
