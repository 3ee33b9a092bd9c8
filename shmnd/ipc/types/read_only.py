# SPDX-License-Identifier: Apache-2.0
"""Arrays that their producer may not write, and their consumer may.

An array comes out of a queue in memory of its own, as out of `multiprocessing.Queue`. Pickle
protocol 5 makes a read-only array of a read-only one: a sample of a topic, say. So a pickler sees
the memory of such an array as that of one which may be written; it reads it alone.
"""

from __future__ import annotations

from pickle import PickleBuffer
from typing import Any

import numpy as np

__all__ = ["reduced"]

_PROTOCOL = 5


class _Shown:
    """The memory of a read-only array, as numpy takes it for that of another one."""

    def __init__(self, memory: memoryview) -> None:
        self._read = np.frombuffer(memory, np.uint8)
        self.__array_interface__ = {
            **self._read.__array_interface__,
            "data": (self._read.ctypes.data, False),
        }


def reduced(array: np.ndarray[Any, Any]) -> Any:
    """Return the reduction of an array as numpy does it, for pickle.

    The buffer of a read-only array is passed as one that may be written.
    """
    found = array.__reduce_ex__(_PROTOCOL)
    if array.flags.writeable or not isinstance(buffer := found[1][0], PickleBuffer):
        return found
    memory = buffer.raw()
    shown: Any = np.asarray(_Shown(memory)) if memory.nbytes else bytearray()
    return found[0], (PickleBuffer(shown), *found[1][1:])
