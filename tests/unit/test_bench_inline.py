# SPDX-License-Identifier: Apache-2.0
"""`-I` reaches the requests of every loop: what is inline needs no registered memory."""

import dataclasses
import threading
from collections.abc import Iterator

import pytest

from shmnd import Sge
from shmnd_bench.how import How
from shmnd_bench.lane import Lane
from shmnd_bench.own import ShmndEnd
from shmnd_bench.question import Kind, Question
from shmnd_bench.worker import CLIENT, SERVER

INLINE = How(inline=64)
KINDS = (Kind.PINGPONG, Kind.WRITE, Kind.STREAM, Kind.WRITE_STREAM)


class Pair:
    """Both ends of a benchmark in one process, the server on a thread."""

    def __init__(self, engine: str) -> None:
        options = {"engine": engine, "namespace": None}
        self.client, self.server = (ShmndEnd(role, options) for role in (CLIENT, SERVER))

    def join(self, question: Question) -> tuple[Lane, Lane]:
        offer = self.server.offer(question)
        thread = threading.Thread(target=self.server.join, args=(question, offer))
        thread.start()
        self.client.join(question, offer)
        thread.join()
        return self.client._lanes[question][0], self.server._lanes[question][0]

    def run(self, question: Question) -> None:
        thread = threading.Thread(target=self.server.run, args=(question, 20, False))
        thread.start()
        self.client.run(question, 20, False)
        thread.join()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        del self.client, self.server


@pytest.fixture(params=["python", "native"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(request.param)
    yield pair
    pair.close()


def take_registration(lane: Lane) -> None:
    """Let what the lane sends lie in memory that is registered nowhere."""
    lane.outgoing = Sge(lane.outgoing.address, lane.outgoing.length, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 64])
def test_short_messages_are_inline(pair: Pair, kind: Kind, size: int) -> None:
    question = Question(kind, size, how=INLINE)
    for lane in pair.join(question):
        take_registration(lane)
    pair.run(question)


def test_bursts_are_inline(pair: Pair) -> None:
    for batch in (False, True):
        how = dataclasses.replace(INLINE, burst=4, batch=batch)
        question = Question(Kind.STREAM, 64, how=how)
        for lane in pair.join(question):
            take_registration(lane)
        pair.run(question)


@pytest.mark.parametrize("kind", KINDS)
def test_longer_messages_are_not(pair: Pair, kind: Kind) -> None:
    question = Question(kind, 65, how=INLINE)
    lanes = pair.join(question)
    assert [lane.flags for lane in lanes] == [0, 0]
    pair.run(question)
    for lane in lanes:
        assert lane.send == lane.qp.send
        assert lane.write == lane.qp.write


@pytest.mark.parametrize("kind", [Kind.READ, Kind.READ_STREAM])
def test_a_read_is_never_inline(pair: Pair, kind: Kind) -> None:
    question = Question(kind, 64, how=INLINE)
    pair.join(question)
    pair.run(question)
