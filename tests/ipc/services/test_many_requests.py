# SPDX-License-Identifier: Apache-2.0
"""Thousands of requests under way: no call goes through all of them, and no answer wakes all tasks.

Instructions of the interpreter are counted, and no time is measured.
"""

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd.ipc.service
from counting import steps_of
from interrupting import inside, interrupted
from shmnd import ipc

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0
BUFFER = 8192
MANY = 1000
WITHIN = inside(shmnd.ipc.service)


class Held:
    """A server that answers when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self._server = ipc.Server("many", buffer=BUFFER)
        self._thread = threading.Thread(target=self._server.serve, args=(self._answer,))
        self._thread.start()

    def _answer(self, request: Any) -> Any:
        self.go.wait(PATIENCE)
        return request.value

    def close(self) -> None:
        self.go.set()
        self._server.close()
        self._thread.join()


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.close()


@pytest.fixture
def client(held: Held) -> Iterator[ipc.Client]:
    with ipc.Client("many", buffer=BUFFER) as made:
        yield made


def test_a_question_costs_the_same_whatever_is_under_way(client: ipc.Client) -> None:
    client.fileno()
    pending = [client.send(number) for number in range(MANY)]
    assert steps_of(client.ready, "opcode") < 2 * MANY
    assert steps_of(pending[-1].done, "opcode") < 2 * MANY
    assert not pending[-1].done()


def test_each_answer_costs_the_same_whatever_is_under_way(held: Held, client: ipc.Client) -> None:
    client.fileno()
    pending = [client.send(number) for number in range(MANY)]
    held.go.set()
    results: list[int] = []

    def read_all() -> None:
        for each in pending:
            results.append(each.result(PATIENCE).value)
            client.ready()

    assert steps_of(read_all, "opcode") < 8000 * MANY
    assert results == list(range(MANY))


def test_tasks_wake_for_their_own_answers(held: Held, client: ipc.Client) -> None:
    """One answer at a time would wake each of the tasks that wait."""

    async def ask() -> list[int]:
        tasks = [asyncio.ensure_future(client.acall(number)) for number in range(MANY)]
        await asyncio.sleep(0)
        held.go.set()
        return [answer.value for answer in await asyncio.gather(*tasks)]

    found: list[int] = []
    steps = steps_of(lambda: found.extend(asyncio.run(ask())), "opcode")
    assert found == list(range(MANY))
    assert steps < 16000 * MANY


def test_the_task_that_takes_for_all_may_be_cancelled(held: Held, client: ipc.Client) -> None:
    async def ask() -> list[int]:
        tasks = [asyncio.ensure_future(client.acall(number)) for number in range(40)]
        for _ in range(5):
            await asyncio.sleep(0)
        for each in tasks[::2]:
            each.cancel()
        with pytest.raises(TimeoutError):
            await client.acall("late", 0.01)
        held.go.set()
        return [(await each).value for each in tasks[1::2]]

    assert asyncio.run(asyncio.wait_for(ask(), PATIENCE)) == list(range(40))[1::2]


def test_loops_of_several_threads(held: Held, client: ipc.Client) -> None:
    found: dict[int, list[int]] = {}
    pending = client.send(-1)

    def run(first: int) -> None:
        asyncio.run(ask(first))

    async def ask(first: int) -> None:
        async def shared() -> int:
            return int((await pending).value)

        own = (client.acall(number) for number in range(first, first + 200))
        answers = await asyncio.gather(*own)
        assert await asyncio.gather(shared(), shared()) == [-1, -1]
        found[first] = [answer.value for answer in answers]

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 200, 400)]
    for thread in threads:
        thread.start()
    held.go.set()
    assert pending.result(PATIENCE).value == -1
    for thread in threads:
        thread.join(PATIENCE)
    assert found == {first: list(range(first, first + 200)) for first in (0, 200, 400)}


def test_tasks_that_wait_learn_that_their_client_is_closed(client: ipc.Client) -> None:
    async def ask() -> list[Any]:
        tasks = [asyncio.ensure_future(client.acall(number)) for number in range(20)]
        for _ in range(5):
            await asyncio.sleep(0)
        client.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(asyncio.wait_for(ask(), PATIENCE))
    assert {type(each) for each in found} == {ipc.Closed}


def hold_requests(there: Any, number: int) -> None:
    """Take some requests and answer none."""
    with ipc.Server("dying", buffer=BUFFER) as server:
        kept = [server.receive(PATIENCE) for _ in range(number)]
        there.set()
        threading.Event().wait(PATIENCE)
        del kept


@pytest.mark.parametrize("of_tasks", [False, True])
def test_the_death_of_a_server_ends_only_the_requests_it_took(of_tasks: bool) -> None:
    there = FORK.Event()
    child = FORK.Process(target=hold_requests, args=(there, 300), daemon=True)
    child.start()
    with ipc.Client("dying", buffer=BUFFER) as client:

        async def ask_all() -> list[Any]:
            tasks = [asyncio.ensure_future(client.acall(number)) for number in range(400)]
            await asyncio.to_thread(there.wait, PATIENCE)
            child.kill()
            lost = await asyncio.gather(*tasks[:300], return_exceptions=True)
            assert not any(each.done() for each in tasks[300:])
            for each in tasks[300:]:
                each.cancel()
            return lost

        if of_tasks:
            found = asyncio.run(asyncio.wait_for(ask_all(), PATIENCE))
        else:
            pending = [client.send(number) for number in range(400)]
            assert there.wait(PATIENCE)
            child.kill()
            found = []
            for each in pending[:300]:
                with pytest.raises(ipc.PeerLost) as raised:
                    each.result(PATIENCE)
                found.append(raised.value)
            assert not any(each.done() for each in pending[300:])
        child.join()
    assert {type(each) for each in found} == {ipc.PeerLost}


def test_the_error_of_a_handler_is_not_taken_for_that_of_a_list_that_changes(
    client: ipc.Client,
) -> None:
    under_way = client._under_way
    kept = [client.send(number) for number in range(3)]
    for pending in kept:
        under_way.unseen[pending._number] = None
    ended = False

    def ask() -> None:
        nonlocal ended
        ended = False
        under_way.has_unseen()
        list(under_way._unclaimed())
        ended = True

    at, more = 0, True
    while more:
        more = interrupted(at, ask, WITHIN, RuntimeError)
        assert ended is not more, f"interrupted at place {at}"
        at += 1
    assert at > 5
