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


@pytest.mark.parametrize("leaves", [False, True])
def test_memory_of_a_complete_send_may_be_freed_before_its_receiver_polls(leaves: bool) -> None:
    """The sender copies all of it alone; its segment is gone when the receiver first needs it."""
    nbytes = 1 << 20
    with shmnd.open_adapter() as sender, shmnd.open_adapter() as receiver:
        listener = listening(receiver)
        waiting, talk = Talk(receiver), Talk(sender)
        request = listener.get_connection_request(waiting.connector)
        answer = talk.connector.connect(talk.qp, listener.get_local_address())
        request.result(20)
        waiting.connector.accept(waiting.qp)
        answer.result(20)
        talk.connector.complete_connect().result(20)
        sink, kept = receiver.create_memory_region(), receiver.allocate(nbytes)
        sink.register(kept, MrFlag.ALLOW_LOCAL_WRITE).result(20)
        source, block = sender.create_memory_region(), sender.allocate(8 << 20)
        source.register(block).result(20)
        block[:nbytes] = 0x77
        waiting.qp.receive(sink.sge(), "large")
        talk.say(b"fills the receive that is posted")
        talk.qp.send(source.sge(0, nbytes), "large")
        (sent,) = talk.cq.wait(1, 20.0)
        assert sent.status is Status.SUCCESS
        source.deregister().result(20)
        del block
        if leaves:
            talk.connector.disconnect().result(20)
        results = waiting.cq.wait(8, 20.0)
        while len(results) < 2 and (more := waiting.cq.wait(8, 20.0)):
            results += more
        assert [result.status for result in results] == [Status.SUCCESS] * 2
        assert (kept == 0x77).all()
