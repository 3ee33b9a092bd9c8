# SPDX-License-Identifier: Apache-2.0
"""Flags as a user's program passes them, right and wrong."""

import shmnd
from shmnd import MrFlag, OpFlag, RequestType


def post(qp: shmnd.QueuePair, sge: shmnd.Sge, place: object, number: int) -> None:
    """Post requests with any context, and with the flags that belong there."""
    qp.send(sge)
    qp.send([sge, sge], place, flags=OpFlag.INLINE | OpFlag.SILENT_SUCCESS)
    qp.send(None, number, flags=number)
    qp.send((), RequestType.SEND, flags=0x20)
    qp.send(sge, post)
    qp.read(sge, 4096, 7, ("read", number), flags=OpFlag.READ_FENCE)
    qp.write(sge, 4096, 7, None, flags=0)
    qp.receive(sge, place)


def mistake(qp: shmnd.QueuePair, sge: shmnd.Sge) -> None:
    """Post requests with flags in the place of a context, and of another kind."""
    qp.send(sge, OpFlag.INLINE)  # error
    qp.send(sge, None, OpFlag.INLINE)  # error
    qp.send(sge, flags=MrFlag.ALLOW_LOCAL_WRITE)  # error
    qp.send(sge, flags="INLINE")  # error
    qp.read(sge, 4096, 7, OpFlag.READ_FENCE)  # error
    qp.write(sge, 4096, 7, MrFlag.ALLOW_REMOTE_WRITE)  # error
    qp.send(b"hello")  # error


def remember(region: shmnd.MemoryRegion, memory: bytearray) -> None:
    """Register memory with the flags of memory, and with those of requests."""
    region.register(memory, MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ)
    region.register(memory, 1)
    region.register(memory, OpFlag.ALLOW_READ)  # error
