# SPDX-License-Identifier: Apache-2.0
"""Requests and rights that the tests of endpoints share."""

from collections.abc import Callable
from typing import Any

import shmnd.nd1 as nd
from nd1.ends import End, Memory, Pair
from spi.harness import WAIT

READ, WRITE = 0x8, 0x10


FEW = {"inbound_entries": 2, "outbound_entries": 2, "inbound_sge": 1, "outbound_sge": 1}


def done(end: End, post: Callable[..., Any], *args: Any) -> nd.Result:
    """Post a request and give its result, completed."""
    result = nd.Result()
    post(result, *args)
    assert end.reap() == [result]
    return result


def target(pair: Pair, flags: int = READ | WRITE, size: int = 256) -> tuple[Memory, Any, Any]:
    """A window of the passive side: its memory, itself, its descriptor."""
    memory = pair.passive.memory(size)
    return memory, *pair.window(pair.passive, memory, flags)


def broken(pair: Pair) -> None:
    """The connection has ended on both sides."""
    for end in (pair.active, pair.passive):
        end.connector.notify_disconnect().result(WAIT)
