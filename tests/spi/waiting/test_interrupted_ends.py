# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises while operations end: each of them ends all the same.

It is delivered once, and a task that awaits it continues, at the next poll or close at the latest.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import shmnd
import shmnd.nd1
from interrupting import Alarm, inside, interrupted
from shmnd import Adapter, CompletionQueue, NdError, Overlapped, OverlappedFile, QueuePair, Status
from spi.harness import WAIT

WITHIN = inside(shmnd)
OPERATIONS = 3

Act = Callable[["Scene"], object]


class Scene:
    """Operations that wait at one queue, and a thread whose tasks await them."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.file: OverlappedFile = adapter.create_overlapped_file()
        self.cq: CompletionQueue = adapter.create_completion_queue(8, overlapped_file=self.file)
        self.qp: QueuePair = adapter.create_queue_pair(self.cq, self.cq)
        self.operations = [self.cq.notify() for _ in range(OPERATIONS)]
        self.continued: list[Overlapped] = []
        self._asleep = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._await_all()))
        self._thread.start()
        assert self._asleep.wait(WAIT)

    async def _await_all(self) -> None:
        tasks = [asyncio.create_task(self._await_one(each)) for each in self.operations]
        while not all(each._waiters for each in self.operations):
            await asyncio.sleep(0)
        self._asleep.set()
        await asyncio.wait(tasks, timeout=WAIT)
        for task in tasks:
            task.cancel()

    async def _await_one(self, operation: Overlapped) -> None:
        try:
            await operation
        except NdError:
            pass
        self.continued.append(operation)

    def join(self) -> None:
        self._thread.join()


def complete(scene: Scene) -> None:
    scene.qp.receive(None)
    scene.qp.flush()
    scene.adapter._engine.progress()


def cancel(scene: Scene) -> None:
    scene.cq.cancel_overlapped_requests()


def close(scene: Scene) -> None:
    scene.cq.close()


def close_adapter(scene: Scene) -> None:
    scene.adapter.close()


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (complete, Status.SUCCESS),
        (cancel, Status.CANCELED),
        (close, Status.CANCELED),
        (close_adapter, Status.CANCELED),
    ],
)
def test_operations_whose_end_is_interrupted_all_end(act: Act, status: Status) -> None:
    with shmnd.open_adapter():  # keeps the progress engine alive
        for at in itertools.count():
            scene = Scene(shmnd.open_adapter())
            more = interrupted(at, partial(act, scene), WITHIN, Alarm)
            act(scene)
            scene.join()
            told: list[Any] = [] if act is close_adapter else scene.file.poll()
            scene.adapter.close()
            where = f"interrupted at place {at}"
            assert {each.status for each in scene.operations} == {status}, where
            assert len(scene.continued) == OPERATIONS, where
            assert not scene.cq._pending, where
            if act is not close_adapter:
                assert len(told) == OPERATIONS, where
                assert set(told) == set(scene.operations), where
            if not more:
                break
    assert at > 2 * OPERATIONS, "there were places to interrupt"
