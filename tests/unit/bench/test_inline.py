# SPDX-License-Identifier: Apache-2.0
"""`-I` reaches the requests of every loop: inline data needs no registered memory."""

import dataclasses
import threading
from collections.abc import Callable, Iterator

import pytest

from shmnd import NdError, OpFlag, Sge, Status
from shmnd_bench.loops.lane import Lane
from shmnd_bench.loops.native import pingpong, rdma, stream, write_pingpong
from shmnd_bench.measure.how import How
from shmnd_bench.measure.question import Kind, Question
from shmnd_bench.subjects.own import ShmndEnd
from shmnd_bench.workers.worker import CLIENT, SERVER

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


COMPILED: dict[Kind, Callable[[Lane], object]] = {
    Kind.PINGPONG: lambda lane: pingpong(lane, 1, True, None),
    Kind.WRITE: lambda lane: write_pingpong(lane, 1, True, None),
    Kind.STREAM: lambda lane: stream([lane], credit=False)(1, True),
    Kind.WRITE_STREAM: lambda lane: rdma([lane], reading=False)(1, True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_loops_refuse_data_they_cannot_read(kind: Kind) -> None:
    pair = Pair("native")
    lane, _ = pair.join(Question(kind, 64, how=INLINE))
    shrunk = bytearray(64)
    where_it_was = Sge(shrunk, 64, 0)
    del shrunk[:]
    no_memory, longer, private = Sge(4096, 64, 0), bytes(65), bytes(64)
    for outgoing, flags, status in (
        (no_memory, OpFlag.INLINE, Status.ACCESS_VIOLATION),
        (where_it_was, OpFlag.INLINE, Status.ACCESS_VIOLATION),
        (Sge(longer, 65, 0), OpFlag.INLINE, Status.BUFFER_OVERFLOW),
        (Sge(private, 64, 0), 0, Status.ACCESS_VIOLATION),
    ):
        lane.outgoing, lane.flags = outgoing, flags
        with pytest.raises(NdError) as refused:
            COMPILED[kind](lane)
        assert refused.value.status is status
    pair.close()


def test_a_compiled_loop_writes_its_marks_to_a_copy_of_inline_data() -> None:
    pair = Pair("native")
    question = Question(Kind.WRITE, 5, how=INLINE)
    constant = bytes([7, 7, 7, 7, 7])
    client, server = pair.join(question)
    client.outgoing = server.outgoing = Sge(constant, 5, 0)
    pair.run(question)
    assert list(constant) == [7] * 5
    for lane in (client, server):
        assert list(lane.inbox[:4]) == [7] * 4
        assert lane.inbox[4] == lane.first_mark(1) - 1
    pair.close()


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
