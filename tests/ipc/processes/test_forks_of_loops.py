# SPDX-License-Identifier: Apache-2.0
"""Children that are forked off while a loop of their parent has something to send or to return.

What the parent has not sent yet is sent by the parent alone, in memory that the child leaves alone;
what it took from a queue is its own.
"""

import asyncio
import os
import select
import sys
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from shmnd import ipc

PATIENCE = 20.0
VALUES = list(range(8))
ROOM = 4


class Unwound(BaseException):
    """What a child raises to leave the loop of its parent."""


@pytest.fixture
def name() -> str:
    return f"loops-{uuid.uuid4().hex}"


def fork() -> bool:
    """Return whether this is the child; its parent waits until that has ended."""
    child = os.fork()
    if child != 0:
        ready = os.pidfd_open(child)
        ended = select.select([ready], [], [], PATIENCE)[0]
        os.close(ready)
        if not ended:
            os.kill(child, 9)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0, f"the child has ended with {code}"
    return child == 0


def run(main: Callable[[], Any], in_child: Callable[[], object] = lambda: None) -> Any:
    """Run a loop; a child that leaves it by Unwound does something and ends."""
    me, code = os.getpid(), 1
    try:
        return asyncio.run(main())
    except Unwound:
        in_child()
        code = 0
    finally:
        if os.getpid() != me:
            os._exit(code)


def refused(pending: Any) -> None:
    try:
        pending.result(0.2)
    except ipc.Closed:
        raise Unwound from None


def unwind(pending: Any) -> None:
    raise Unwound


@pytest.mark.parametrize("leave", [refused, unwind])
def test_a_parent_sends_each_request_once(name: str, leave: Callable[[Any], None]) -> None:
    async def main() -> list[Any]:
        with ipc.Server(name, buffer=ROOM) as server, ipc.Client(name, buffer=ROOM) as client:
            pending = [client.send(value) for value in VALUES[:-2]]
            await asyncio.sleep(0)  # the task that sends those without room has begun
            assert pending[-1]._unsent
            got = [server.receive(PATIENCE).value]
            if fork():
                leave(pending[-1])
            pending += [client.send(value) for value in VALUES[-2:]]
            got += [(await server.areceive(PATIENCE)).value for _ in VALUES[1:]]
            with pytest.raises(TimeoutError):
                await server.areceive(0.01)
            return got

    assert run(main) == VALUES


def test_an_item_that_the_parent_took_is_not_kept_for_a_child() -> None:
    with ipc.Queue(4) as q:
        q.put("item")
        came: list[bool] = []

        def handler(frame: FrameType, event: str, what: object) -> None:
            if event == "call" and frame.f_code.co_name == "_wake_next" and not came:
                sys.setprofile(None)
                came.append(True)
                if fork():
                    raise Unwound

        async def main() -> Any:
            sys.setprofile(handler)
            try:
                return await q.aget(PATIENCE)
            finally:
                sys.setprofile(None)

        def in_child() -> None:
            assert q.empty()

        assert run(main, in_child) == "item"
        assert came == [True]
