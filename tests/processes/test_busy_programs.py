# SPDX-License-Identifier: Apache-2.0
"""A program that always has something to do learns of the rest all the same.

None of its polls is empty, or it never polls; it makes no other call.
"""

import time
from typing import Any

import pytest

import shmnd
from processes.kit import PATIENCE, Child, Talk, join, listening
from shmnd import MrFlag, NdError, OpFlag, RequestType, Status

EXPOSED = """
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk.of(listener)
region = adapter.create_memory_region()
memory = adapter.allocate(4096)
region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE | shmnd.MrFlag.ALLOW_REMOTE_WRITE)
say(region.address, region.remote_token)
hear()
"""
"""A peer that lets its memory be written to, and does nothing."""


class Loop:
    """Two queue pairs of one process: each Write of it gives its queue something to return."""

    def __init__(self, adapter: shmnd.Adapter, queue: shmnd.CompletionQueue) -> None:
        other = adapter.create_completion_queue(64)
        self.ends = [adapter.create_queue_pair(cq, cq) for cq in (queue, other)]
        self.connectors = join(listening(adapter), *self.ends)
        self.region = adapter.create_memory_region()
        flags = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_WRITE
        self.region.register(adapter.allocate(4096), flags)

    def write(self) -> None:
        region = self.region
        self.ends[0].write(region.sge(0, 8), region.address + 64, region.remote_token, "loop")


def until(done: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it never learned of it"


@pytest.mark.slow
def test_a_program_that_only_writes_learns_that_its_peer_is_dead() -> None:
    with shmnd.open_adapter() as adapter, Child(EXPOSED) as child:
        talk = Talk.to(adapter, tuple(child.hear()))
        address, token = child.hear()
        element = talk.regions[0].sge(0, 8)
        for _ in range(100):
            talk.qp.write(element, address, token, flags=OpFlag.SILENT_SUCCESS)
        child.kill()

        def refused() -> bool:
            try:
                for _ in range(1000):
                    talk.qp.write(element, address, token, flags=OpFlag.SILENT_SUCCESS)
            except NdError as err:
                return err.status in (Status.NO_MORE_ENTRIES, Status.CONNECTION_INVALID)
            return False

        until(refused)
        failed = talk.cq.get_results()
        assert all(result.status is not Status.SUCCESS for result in failed)
        assert failed


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 64])
def test_polls_that_are_never_empty_learn_of_a_death(most: int) -> None:
    with shmnd.open_adapter() as adapter, Child(EXPOSED) as child:
        talk = Talk.to(adapter, tuple(child.hear()))
        loop = Loop(adapter, talk.cq)
        child.kill()
        ended = []

        def told() -> bool:
            loop.write()
            results = talk.cq.get_results(most)
            assert results
            ended.extend(result for result in results if result.request_context == "in")
            return bool(ended)

        until(told)
        assert ended[0].request_type is RequestType.RECEIVE
        assert ended[0].status is not Status.SUCCESS


@pytest.mark.slow
def test_polls_that_are_never_empty_advance_requests_of_other_queues() -> None:
    with shmnd.open_adapter() as adapter:
        queue, asking, answering = (adapter.create_completion_queue(64) for _ in range(3))
        loop = Loop(adapter, queue)
        first = adapter.create_queue_pair(asking, asking)
        second = adapter.create_queue_pair(answering, answering)
        connectors = join(listening(adapter), first, second)
        region = loop.region
        first.send(region.sge(0, 3000), "question")
        second.receive(region.sge(0, 4000), "answer")

        def carried_on() -> bool:
            loop.write()
            assert queue.get_results(1)
            return not asking._busy

        until(carried_on)
        (sent,) = asking.get_results()
        assert sent.status is Status.SUCCESS
        assert len(connectors) == 2


@pytest.mark.slow
def test_messages_are_taken_between_writes_for_one_result_each() -> None:
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_completion_queue(64)
        loop = Loop(adapter, queue)
        here = adapter.create_queue_pair(queue, queue)
        there_queue = adapter.create_completion_queue(64)
        there = adapter.create_queue_pair(there_queue, there_queue)
        connectors = join(listening(adapter), here, there)
        here.receive(loop.region.sge(0, 64), "message")
        there.send(loop.region.sge(0, 8))
        polls = 0
        came = []
        while not came:
            loop.write()
            (result,) = queue.get_results(1)
            came = [result] if result.request_context == "message" else []
            polls += 1
            assert polls < 10
        assert len(connectors) == 2
