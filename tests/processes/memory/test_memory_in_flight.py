# SPDX-License-Identifier: Apache-2.0
"""Giving memory back while messages of others are under way."""

import numpy as np
import pytest

import shmnd
from processes.kit import Talk, listening
from shmnd import MrFlag, Status

LARGE = 400_000
PAIRS = 6


class Line:
    """A connection with a large message that waits for a receive."""

    def __init__(self, sender: shmnd.Adapter, listener: shmnd.Listener) -> None:
        self.waiting = Talk(listener._adapter)
        self.talk = Talk(sender)
        request = listener.get_connection_request(self.waiting.connector)
        answer = self.talk.connector.connect(self.talk.qp, listener.get_local_address())
        request.result(20)
        self.waiting.connector.accept(self.waiting.qp)
        answer.result(20)
        self.talk.connector.complete_connect().result(20)
        self.regions = []
        for adapter in (sender, listener._adapter):
            region = adapter.create_memory_region()
            block = adapter.allocate(LARGE)
            region.register(block, MrFlag.ALLOW_LOCAL_WRITE).result(20)
            self.regions.append(region)
        self.sink = np.frombuffer(block, np.uint8)
        self.talk.qp.send(self.talk.regions[0].sge(0, 8), "fills the receive that is posted")
        self.talk.qp.send(self.regions[0].sge(), "waits")

    def admit(self) -> None:
        self.waiting.qp.receive(self.regions[1].sge(), "large")


@pytest.mark.slow
@pytest.mark.parametrize("polls", [1, 2, 3])
def test_deregistering_waits_for_no_copy_that_only_a_poll_would_run(polls: int) -> None:
    """A poll prepares the copies of many queue pairs and runs one; the others belong to no thread.

    A thread that then deregisters, and waits for that instead of polling, must not wait for them.
    """
    with shmnd.open_adapter(rnr_timeout=60.0) as sender, shmnd.open_adapter() as receiver:
        listener = listening(receiver)
        cq = sender.create_completion_queue(256)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sender, "create_completion_queue", lambda depth: cq)
            lines = [Line(sender, listener) for _ in range(PAIRS)]
        other = sender.create_memory_region()
        other.register(sender.allocate(4096)).result(20)
        for line in lines:
            line.waiting.cq.get_results()
            line.admit()
        taken = [result for _ in range(polls) for result in cq.get_results(1)]
        other.deregister().result(20)
        while len(taken) < 2 * PAIRS:
            for line in lines:
                line.waiting.cq.get_results()
            taken += cq.wait(64, 20.0)
        assert all(result.status is Status.SUCCESS for result in taken)


@pytest.mark.slow
@pytest.mark.parametrize("polls", [1, 2, 3])
def test_no_copy_that_a_poll_prepared_writes_into_memory_given_back(polls: int) -> None:
    """The other side of the above: what the copies would fill is not a message's any more."""
    with shmnd.open_adapter(rnr_timeout=60.0) as sender, shmnd.open_adapter() as receiver:
        listener = listening(receiver)
        cq = receiver.create_completion_queue(256)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(receiver, "create_completion_queue", lambda depth: cq)
            lines = [Line(sender, listener) for _ in range(PAIRS)]
        while cq.get_results():
            pass
        for line in lines:
            line.admit()
        for _ in range(polls):
            cq.get_results(1)
        for line in lines:
            line.regions[1].deregister().result(20)
            line.sink[:] = 0x88
        for _ in range(100):
            cq.get_results()
            for line in lines:
                line.talk.cq.get_results()
        assert all((line.sink == 0x88).all() for line in lines)
