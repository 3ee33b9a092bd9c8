# SPDX-License-Identifier: Apache-2.0
"""Tasks of two processes that await each other's messages, which come at every moment of a wait."""

import asyncio
import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmnd
from shmnd.runtime import pending

WAIT = 20.0
ROUNDS = 3000
WINDOW = 40e-6
"""Seconds for which a task polls; a message comes up to three of them after the last one."""


class _End:
    def __init__(self) -> None:
        self.adapter = shmnd.open_adapter("127.0.0.1")
        self.queue = self.adapter.create_completion_queue(64)
        self.queue.spin = WINDOW
        self.pair = self.adapter.create_queue_pair(self.queue, self.queue)
        self.connector = self.adapter.create_connector()
        self.pair.receive(None)

    async def arrival(self) -> None:
        told = self.queue.notify()
        while not (results := self.queue.get_results(1)):
            await told
            told = self.queue.notify()
        assert [result.status for result in results] == [shmnd.Status.SUCCESS]
        self.pair.receive(None)

    async def play(self, rounds: int, first: bool, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(rounds):
            if not first:
                await self.arrival()
            until = time.perf_counter() + chance.uniform(0, 3 * WINDOW)
            while time.perf_counter() < until:
                pass
            self.pair.send(None, flags=shmnd.OpFlag.SILENT_SUCCESS)
            if first:
                await self.arrival()


def _answer(pipe: Connection, seed: int) -> None:
    pending.LONGEST_SLEEP = WAIT * 10  # type: ignore[misc]  # a lost wake-up is not mended
    end = _End()
    with end.adapter.create_listener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        pipe.send(listener.get_local_address())
        listener.get_connection_request(end.connector).result(WAIT)
        end.connector.accept(end.pair).result(WAIT)
    asyncio.run(asyncio.wait_for(end.play(ROUNDS, False, seed), WAIT))
    pipe.recv()
    end.adapter.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_no_message_is_missed_between_the_polls_of_a_task_and_its_sleep(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "LONGEST_SLEEP", WAIT * 10)
    here, there = multiprocessing.Pipe()
    process: Any = multiprocessing.get_context("spawn").Process(target=_answer, args=(there, seed))
    process.start()
    try:
        end = _End()
        assert here.poll(WAIT)
        end.connector.connect(end.pair, here.recv()).result(WAIT)
        end.connector.complete_connect().result(WAIT)
        asyncio.run(asyncio.wait_for(end.play(ROUNDS, True, seed + 100), WAIT))
        here.send("over")
        process.join(WAIT)
        assert process.exitcode == 0
        end.adapter.close()
    finally:
        process.kill()
        process.join(WAIT)
        here.close()
        there.close()
