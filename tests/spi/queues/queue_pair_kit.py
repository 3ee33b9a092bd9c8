# SPDX-License-Identifier: Apache-2.0
"""Requests, faults and checks that the tests of queue pairs share."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmnd import OpFlag, Status
from spi.harness import (
    Buffer,
    End,
    contexts,
    statuses,
)
from spi.pair import Pair

SIZES = [0, 1, 47, 48, 49, 63, 64, 65, 1000, 4096, 65536, 1 << 20]


MakePair = Callable[..., Pair]


@functools.cache
def pattern(length: int) -> bytes:
    """Bytes that show a shift or a tear: no two neighbouring kilobytes are alike."""
    places = np.arange(length)
    return (places * 7 + (places >> 10) + 1).astype("u1").tobytes()


def too_long(end: End, buffer: Buffer) -> list[Any]:
    """One byte more than a request may move, whatever the memory behind it."""
    limit = end.info.max_transfer_length
    return [buffer.raw_sge(0, limit), buffer.raw_sge(0, 1)]


def too_many(buffer: Buffer, limit: int) -> list[Any]:
    return [buffer.sge(0, 1)] * (limit + 1)


def post(end: End, request: str, buffer: Buffer, **changes: Any) -> None:
    """Post a request of any type that would succeed on a connected pair, but for the changes."""
    if request == "send":
        arguments: dict[str, Any] = {"sge": buffer.sge()}
    elif request in ("read", "write"):
        arguments = {"sge": None, "remote_address": 0, "remote_token": 0}
    else:
        arguments = {"memory_window": end.adapter.create_memory_window()}
    if request == "bind":
        arguments |= {
            "memory_region": buffer.mr,
            "address": buffer.address,
            "length": buffer.length,
            "flags": OpFlag.ALLOW_READ,
        }
    getattr(end.qp, request)(**(arguments | changes))


def ended(pair: Pair, failed: End, other: End) -> None:
    """Fail with something posted on both sides, and see what the tables say about the rest."""
    failed.qp.receive(None, "late")
    other.qp.receive(None, "later")
    assert statuses(pair.reap(failed)) == [Status.CANCELED]
    assert statuses(pair.reap(other)) == [Status.CANCELED]


def watched(other: End) -> Any:
    """Two Receives and a NotifyDisconnect, which a fault at the far side must end."""
    other.qp.receive(None, "first")
    other.qp.receive(None, "second")
    return other.connector.notify_disconnect()


def saw_the_end(pair: Pair, other: End, notice: Any) -> None:
    canceled = pair.reap(other, 2)
    assert statuses(canceled) == [Status.CANCELED] * 2
    assert contexts(canceled) == ["first", "second"]
    assert pair.settle(notice, other) == Status.SUCCESS


LOCAL_FAULTS: dict[str, Callable[[Buffer], Any]] = {
    "end_beyond_the_region": lambda buffer: buffer.raw_sge(1, buffer.length),
    "start_before_the_region": lambda buffer: buffer.raw_sge(-1, 4),
    "far_away": lambda buffer: buffer.raw_sge(1 << 40, 4),
    "token_never_given_out": lambda buffer: buffer.raw_sge(0, 4, 0xFFFFFFFE),
    "token_zero": lambda buffer: buffer.raw_sge(0, 4, 0),
}


each_local_fault = pytest.mark.parametrize("fault", LOCAL_FAULTS.values(), ids=LOCAL_FAULTS.keys())
