# SPDX-License-Identifier: Apache-2.0
"""One thread posts on a queue pair while another one polls the queue of a second queue pair.

Both queue pairs are of one adapter and connected to a second process, so the two threads share what
belongs to the adapter and to the peer. Each takes the results of its own queue.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from processes.kit import Child
from shmnd import MrFlag

WAIT = 20.0
DEPTH, SIZE, COUNT = 16, 64, 4000

PEER = f"""
DEPTH, SIZE, COUNT = {DEPTH}, {SIZE}, {COUNT}
adapter = shmnd.open_adapter(rnr_timeout={WAIT})
memory = adapter.allocate(2 * DEPTH * SIZE)
region = adapter.create_memory_region()
region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result()
listener = listening(adapter)
queue = adapter.create_completion_queue(4 * DEPTH)
say(listener.get_local_address()[1])
kept = []
for name in "posted", "polled":
    pair = adapter.create_queue_pair(
        queue, queue, context=name, receive_depth=DEPTH, initiator_depth=DEPTH)
    if name == "posted":
        for place in range(DEPTH):
            pair.receive(region.sge(place * SIZE, SIZE), place)
    connector = adapter.create_connector()
    listener.get_connection_request(connector).result({WAIT})
    connector.accept(pair).result({WAIT})
    kept.append((pair, connector))
posted, polled = (pair for pair, _ in kept)
came, sent, done, wrong = 0, 0, 0, []
while came < COUNT or done < COUNT:
    while sent < COUNT and sent - done < DEPTH:
        place = (DEPTH + sent % DEPTH) * SIZE
        memory[place : place + SIZE] = list(sent.to_bytes(4, "little") * (SIZE // 4))
        polled.send(region.sge(place, SIZE), sent)
        sent += 1
    for result in queue.wait(timeout={WAIT}):
        result.raise_if_failed()
        if result.queue_pair_context == "polled":
            done += 1
            continue
        place = result.request_context * SIZE
        if bytes(memory[place : place + SIZE]) != came.to_bytes(4, "little") * (SIZE // 4):
            wrong.append(came)
        came += 1
        posted.receive(region.sge(place, SIZE), result.request_context)
say(wrong)
hear()
adapter.close()
"""


class Side:
    """A queue pair of this process, with a queue and memory of its own."""

    def __init__(self, adapter: shmnd.Adapter, port: int) -> None:
        self.memory = adapter.allocate(DEPTH * SIZE)
        self.region = adapter.create_memory_region()
        self.region.register(self.memory, MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        self.queue = adapter.create_completion_queue(4 * DEPTH)
        self.pair = adapter.create_queue_pair(
            self.queue, self.queue, receive_depth=DEPTH, initiator_depth=DEPTH
        )
        self.connector = adapter.create_connector()
        self.connector.connect(self.pair, ("127.0.0.1", port)).result(WAIT)

    def place(self, number: int) -> slice:
        return slice(number % DEPTH * SIZE, (number % DEPTH + 1) * SIZE)

    def sge(self, number: int) -> shmnd.Sge:
        return self.region.sge(number % DEPTH * SIZE, SIZE)


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side, Child]]:
    with Child(PEER) as child, shmnd.open_adapter(rnr_timeout=WAIT) as adapter:
        port = child.hear()
        posted = Side(adapter, port)
        posted.connector.complete_connect().result(WAIT)
        polled = Side(adapter, port)
        for number in range(DEPTH):
            polled.pair.receive(polled.sge(number), number)
        polled.connector.complete_connect().result(WAIT)
        yield posted, polled, child


def content(number: int) -> bytes:
    return number.to_bytes(4, "little") * (SIZE // 4)


def post_all(side: Side, _: Callable[[shmnd.CompletionQueue], Any]) -> None:
    """Send every number; take the results of this queue alone, when it is full."""
    done = 0
    for number in range(COUNT):
        while number - done >= DEPTH:
            done = take_sent(side, done)
        side.memory[side.place(number)] = list(content(number))
        side.pair.send(side.sge(number), number)
    while done < COUNT:
        done = take_sent(side, done)


def take_sent(side: Side, done: int) -> int:
    results = side.queue.wait(timeout=WAIT)
    assert results, f"{done} of {COUNT} were sent"
    for result in results:
        assert result.raise_if_failed().request_context == done
        done += 1
    return done


def poll_all(side: Side, poll: Callable[[shmnd.CompletionQueue], Any]) -> None:
    """Receive every number, in order."""
    came = 0
    while came < COUNT:
        for result in poll(side.queue):
            assert result.raise_if_failed().request_context == came
            assert bytes(side.memory[side.place(came)]) == content(came)
            side.pair.receive(side.sge(came), came + DEPTH)
            came += 1


def waited(queue: shmnd.CompletionQueue) -> list[shmnd.Result]:
    results = queue.wait(timeout=WAIT)
    assert results, "nothing came"
    return results


def asleep(queue: shmnd.CompletionQueue) -> list[shmnd.Result]:
    queue.spin = 0
    return waited(queue)


@pytest.mark.parametrize(
    "poll",
    [shmnd.CompletionQueue.get_results, waited, asleep],
    ids=["get_results", "wait", "asleep"],
)
def test_one_thread_posts_and_another_polls_a_second_queue(
    sides: tuple[Side, Side, Child], poll: Callable[[shmnd.CompletionQueue], Any]
) -> None:
    posted, polled, child = sides
    failed: list[BaseException] = []

    def attempt(call: Any, side: Side) -> None:
        try:
            call(side, poll)
        except BaseException as exc:
            failed.append(exc)

    threads = [
        threading.Thread(target=attempt, args=each, daemon=True)
        for each in ((post_all, posted), (poll_all, polled))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * WAIT)
        assert not thread.is_alive() or failed, "it stands still"
    assert not failed, failed
    assert child.hear() == [], "numbers that came out of order, or with other bytes"
