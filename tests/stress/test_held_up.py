# SPDX-License-Identifier: Apache-2.0
"""A queue pair that is closed while its peer still copies: the rest of its end comes by itself."""

import ctypes
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import shmnd
from processes.kit import join, listening
from shmnd.runtime.progress import ProgressEngine

WAIT = 30
SIDES = 128, 896
"""Where the two sides lie in a link, and the word in each that names the memory in use."""
HAZARD = 384
PUSHING = 1 << 32
STALL = 10.0
"""Seconds after which a copy of the peer is not waited for any longer."""


def hazard_words() -> list[ctypes.c_uint64]:
    """Of all links that this process maps."""
    maps = Path("/proc/self/maps").read_text()
    links = re.findall(r"^([0-9a-f]+)-\S+ rw\S+ .*memfd:shmnd-link", maps, re.MULTILINE)
    return [
        ctypes.c_uint64.from_address(int(begin, 16) + side + HAZARD)
        for begin in links
        for side in SIDES
    ]


def connected(
    kept: ExitStack, **options: float
) -> tuple[shmnd.Adapter, shmnd.CompletionQueue, shmnd.QueuePair, shmnd.QueuePair]:
    """Return an adapter, a queue, and two queue pairs that are connected to each other."""
    adapter = kept.enter_context(shmnd.open_adapter("127.0.0.1", **options))
    cq = kept.enter_context(adapter.create_completion_queue(16))
    near, far = (
        kept.enter_context(adapter.create_queue_pair(cq, cq, context=name))
        for name in ("near", "far")  # of one context, both would have to have the same reason
    )
    listener = kept.enter_context(listening(adapter))
    for connector in join(listener, near, far):
        kept.enter_context(connector)
    return adapter, cq, near, far


def test_the_end_waits_for_a_copy_of_the_peer_and_close_does_not() -> None:
    with ExitStack() as kept:
        adapter, cq, _, receiver = connected(kept)
        receiver.receive(None, "outstanding")

        engine: ProgressEngine = adapter._engine
        words = hazard_words()
        assert words
        for word in words:
            word.value = PUSHING
        receiver.close()
        assert len(engine.pending_operations._unfinished) == 1
        for word in words:
            word.value = 0
        end = time.monotonic() + WAIT
        while engine.pending_operations._unfinished and time.monotonic() < end:
            cq.wait(timeout=0.01)
        assert not engine.pending_operations._unfinished


@pytest.mark.slow
def test_an_invalidate_waits_for_a_copy_once_and_says_for_what() -> None:
    """Ten seconds: for the Invalidate, and none for the end of its connection."""
    with ExitStack() as kept:
        adapter, cq, owner, _ = connected(kept)
        region = kept.enter_context(adapter.create_memory_region())
        region.register(adapter.allocate(64)).result(WAIT)
        window = kept.enter_context(adapter.create_memory_window())
        owner.bind(region, window, region.address, 64, flags=shmnd.OpFlag.ALLOW_READ)
        assert cq.wait_one(WAIT).status is shmnd.Status.SUCCESS

        words = hazard_words()
        for word in words:
            word.value = window.remote_token
        owner.invalidate(window, "invalidate")
        try:
            result = cq.wait_one(2 * STALL - 1)
        finally:
            for word in words:
                word.value = 0
        assert (result.status, result.request_context) == (shmnd.Status.IO_TIMEOUT, "invalidate")
        assert result.detail.endswith(", did not end a copy within 10 s")


def test_a_send_that_waited_ends_with_the_copy_that_was_not_ended() -> None:
    """It is the oldest request of the connection that the Deregister ends, and no cause."""
    with ExitStack() as kept:
        adapter, cq, owner, _ = connected(kept, rnr_timeout=60)
        region = kept.enter_context(adapter.create_memory_region())
        region.register(adapter.allocate(64)).result(WAIT)
        owner.send(None, "waits for a Receive")
        words = hazard_words()
        for word in words:
            word.value = region.local_token
        try:
            released = region.deregister()
            result = cq.wait_one(2 * STALL - 1)
        finally:
            for word in words:
                word.value = 0
        released.result(WAIT)
        assert result.status is shmnd.Status.IO_TIMEOUT
        assert result.detail.endswith(", did not end a copy within 10 s")
