# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises, or forks, in a task that waits by a wait set."""

import asyncio
import os
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from interrupting import Interrupted, handled_where, interrupted, interrupted_where
from shmnd import ipc

FILES = ("ipc/waitset.py", "common/streams.py")


def within(path: str) -> bool:
    return path.endswith(FILES)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_wait_that_is_interrupted_leaves_no_descriptors() -> None:
    loop = asyncio.new_event_loop()
    try:
        with ipc.Queue(2) as q, ipc.WaitSet(q) as waits:
            assert loop.run_until_complete(waits.await_ready(0.001)) == ()
            before = descriptors()
            at = 0
            while interrupted(
                at, lambda: loop.run_until_complete(waits.await_ready(0.001)), within
            ):
                assert descriptors() == before, f"place {at}"
                at += 1
            assert at > 10
            q.put("item")
            assert loop.run_until_complete(waits.await_ready(20)) == (q,)
    finally:
        loop.close()


def test_a_wait_that_is_interrupted_before_it_begins_causes_no_warning() -> None:
    """As a coroutine would that was made and never awaited."""

    def place(frame: FrameType, event: str) -> bool:
        return event == "call" and frame.f_code.co_name == "in_process"

    def wait() -> None:
        asyncio.run(waits.await_ready(0.001))

    with ipc.Queue(2) as q, ipc.WaitSet(q) as waits, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert interrupted_where(0, wait, place, Interrupted)
    assert not found


def test_a_child_leaves_the_loop_of_its_parent_alone() -> None:
    """The parent polls descriptors of the same numbers, in the same epoll."""
    me = os.getpid()
    reads, writes = os.pipe()

    def fork() -> None:
        child = os.fork()
        if child != 0:
            assert os.waitpid(child, 0)[1] == 0

    def place(frame: FrameType, event: str) -> bool:
        in_wait = frame.f_code.co_name == "_await" and within(frame.f_code.co_filename)
        return in_wait and event in ("call", "c_return")

    def wait() -> Any:
        try:
            return asyncio.run(waits.await_ready(0.01))
        except ipc.Closed:
            if os.getpid() == me:
                raise
            os._exit(0)
        finally:
            if os.getpid() != me:
                os._exit(1)

    with ipc.WaitSet(reads) as waits:
        at = 0
        while handled_where(at, wait, place, fork):
            at += 1
        assert at > 5
    os.close(reads)
    os.close(writes)
