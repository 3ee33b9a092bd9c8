# SPDX-License-Identifier: Apache-2.0
"""Shared memory as a user's program fills it and reads it, right and wrong."""

import numpy
import numpy.typing

import shmnd
from shmnd import nd1


def fill(adapter: shmnd.Adapter, connection: shmnd.Connection, old: nd1.Adapter) -> None:
    """Put bytes and numbers into slices."""
    memory = adapter.allocate(4096)
    memory[:5] = b"hello"
    memory[5:10] = bytearray(5)
    memory[10:12] = memoryview(b"ab")
    memory[12] = 7
    memory[100:200][:5] = b"slice"
    memory[:3] = [1, 2, 3]
    connection.memory[:4] = b"data"
    old.allocate(64)[:4] = b"data"
    numbers: numpy.typing.NDArray[numpy.float64] = memory.view(numpy.float64)
    numbers[0] = 0.5
    text: bytes = memory[:5].tobytes() + bytes(memory[5:8])
    first: int = int(memory[0])
    plain: numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]] = memory
    print(text, first, plain.sum())
    word: str = memory[:5].tobytes()  # error
    print(word)


def take(adapter: shmnd.Adapter, region: shmnd.MemoryRegion) -> None:
    """Pass memory to another function."""
    memory = adapter.attach("/results", writable=False)
    region.register(memory, shmnd.MrFlag.ALLOW_REMOTE_READ).result()
    region.register(memory[64:128])
    adapter.allocate("4096")  # error
