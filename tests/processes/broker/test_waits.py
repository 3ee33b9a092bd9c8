# SPDX-License-Identifier: Apache-2.0
"""Calls while the broker, or a peer, is stopped: time-outs hold, and event loops run."""

import asyncio
import os
import signal
import threading
import time

import pytest

import shmnd
from processes.kit import PATIENCE, Child, broker_pid, stopped
from shmnd import server as server_module
from shmnd.broker.client import BrokerClient
from shmnd.broker.observer import visit
from shmnd.broker.place import place_of
from shmnd.common import brief_waits, interruption
from shmnd.messaging.fragments import EndTerms
from shmnd.runtime.broker.broker_calls import BrokerCalls
from shmnd.runtime.progress import ProgressEngine

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _long_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for seconds ends no exchange."""
    defaults = BrokerClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout", 100.0)


def test_connect_waits_for_a_stopped_broker_only_for_its_time_out() -> None:
    """Not for as long as an exchange with the broker may take."""
    with shmnd.listen() as server:
        with stopped(broker_pid()):
            for _ in range(2):
                with pytest.raises(TimeoutError, match=r"broker.sock did not answer within 0.05 s"):
                    shmnd.connect(server.address, timeout=0.05)
            with pytest.raises(TimeoutError, match="pass a longer time-out"):
                shmnd.connect(server.address, timeout=0)
            with pytest.raises(
                TimeoutError, match=r"did not answer within 1\.0 s.*is it stopped\?"
            ):
                shmnd.connect(server.address, timeout=1.0)
            with pytest.raises(TimeoutError, match=r"broker.sock did not answer within 0.05 s"):
                asyncio.run(shmnd.aconnect(server.address, timeout=0.05))
        connect_once(server)


def test_time_outs_beside_a_stopped_broker_leave_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one would end the undecided connections of the process."""
    with shmnd.listen() as server:
        client = server.adapter._engine.client
        assert isinstance(client, BrokerClient)
        session = client._sock
        with stopped(broker_pid()):
            with pytest.raises(TimeoutError, match="did not answer within 0 s"):
                shmnd.connect(server.address, timeout=0)
            with pytest.raises(TimeoutError, match="nothing connected"):
                server.accept(0)
        connect_once(server)
        assert client._sock is session


def test_connecting_begins_no_thread_while_the_broker_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brief_waits, "BRIEF_SECONDS", PATIENCE)
    monkeypatch.setattr(interruption, "_SIGNALS", ())  # the suite has a handler

    def refuse(_errand: object) -> None:
        raise AssertionError("a thread is begun")

    async def both(server: shmnd.Server) -> None:
        accepting = asyncio.create_task(server.aaccept())
        with await shmnd.aconnect(server.address), await accepting:
            pass

    with shmnd.listen() as server:
        monkeypatch.setattr(BrokerCalls.of(place_of()), "_leave_to_thread", refuse)
        connect_once(server)
        asyncio.run(both(server))


def test_calls_that_are_taken_back_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that answers none at once: all is begun, taken back, and done by the thread."""
    monkeypatch.setattr(brief_waits, "BRIEF_SECONDS", 0.0)
    with shmnd.listen() as server:
        for _ in range(8):
            connect_once(server)
        server.adapter._engine.call("sync")
        with visit(place_of()) as observer:
            assert observer is not None
            status = observer.counts()
        assert (status["adapters"], status["connections"]) == (1, 0), status


def connect_once(server: shmnd.Server) -> None:
    """All is as before once the broker continues."""
    thread = threading.Thread(target=lambda: shmnd.connect(server.address, timeout=PATIENCE))
    thread.start()
    server.accept(PATIENCE).close()
    thread.join()


def test_an_event_loop_runs_while_its_tasks_wait_for_a_stopped_broker() -> None:
    """The loop itself has the broker continue."""

    async def work() -> None:
        with shmnd.listen() as server:
            broker = broker_pid()
            os.kill(broker, signal.SIGSTOP)
            try:
                connecting = asyncio.create_task(shmnd.aconnect(server.address))
                accepting = asyncio.create_task(server.aaccept(PATIENCE))
                for _ in range(5):
                    await asyncio.sleep(0.01)
                assert not connecting.done()
            finally:
                os.kill(broker, signal.SIGCONT)
            with await connecting as one, await accepting as other:
                await one.asend_bytes(b"through")
                assert await other.arecv_bytes(PATIENCE) == b"through"

    asyncio.run(work())


def test_a_task_that_is_cancelled_while_it_connects_leaves_nothing() -> None:
    async def work() -> None:
        with shmnd.listen() as server, stopped(broker_pid()):
            connecting = [asyncio.create_task(shmnd.aconnect(server.address)) for _ in range(3)]
            await asyncio.sleep(0.01)
            for task in connecting:
                task.cancel()
            ends = await asyncio.gather(*connecting, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)

    asyncio.run(work())


def test_an_adapter_of_another_namespace_closes_while_a_broker_is_stopped() -> None:
    """As in an event loop, whose tasks have nothing to do with that broker."""
    adapter = shmnd.open_adapter(namespace="waits-other")
    with shmnd.open_adapter():
        broker = broker_pid()
    joining = ProgressEngine._joining[place_of().directory]
    with stopped(broker):
        opening = threading.Thread(target=open_and_close)
        opening.start()
        while joining.acquire(blocking=False):
            joining.release()
            time.sleep(0.001)
        adapter.close()
        assert opening.is_alive(), "it waits for the broker still"
    opening.join()


def open_and_close() -> None:
    shmnd.open_adapter().close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_no_client_waits_for_one_that_was_accepted_and_is_stopped(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    monkeypatch.setattr(server_module, "_PATIENCE", 1e6)
    with shmnd.listen() as server, shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(4)
        qp, connector = adapter.create_queue_pair(cq, cq), adapter.create_connector()
        terms = EndTerms(4, 1024, 0, 0, 0).pack()
        asked = connector.connect(qp, server.address, 0, 0, terms)  # and never completes it
        while not asked.done():
            with pytest.raises(TimeoutError, match="nothing connected"):
                server.accept(0.01)
        made: list[shmnd.Connection] = []
        thread = threading.Thread(target=lambda: made.append(shmnd.connect(server.address)))
        thread.start()
        accepted = asyncio.run(server.aaccept()) if asynchronous else server.accept()
        thread.join()
        made.pop().send_bytes(b"second")
        assert accepted.recv_bytes(PATIENCE) == b"second"
        accepted.close()


def test_a_peer_that_does_not_complete_its_connection_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "_PATIENCE", 0.01)
    with shmnd.listen() as server, shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(4)
        qp, connector = adapter.create_queue_pair(cq, cq), adapter.create_connector()
        asked = connector.connect(qp, server.address, 0, 0, EndTerms(4, 1024, 0, 0, 0).pack())
        while not asked.done() or server._arrivals or server._waiting is None:
            with pytest.raises(TimeoutError, match="nothing connected"):
                server.accept(0.02)
        with pytest.raises(ConnectionError):
            connector.complete_connect()


SENDER = """
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk.of(listener)
hear()
memory = adapter.allocate(8 << 20)
memory[:] = 7
region = adapter.create_memory_region()
region.register(memory).result(20)
say("announced")
hear()
talk.qp.send(region.sge(0, 1 << 20), "long")
say("sent")
hear()
"""


def test_a_message_from_a_new_segment_needs_no_answer_of_a_stopped_broker() -> None:
    """The broker has announced it before the peer could send from it."""
    from processes.kit import Talk

    with shmnd.open_adapter() as adapter, Child(SENDER) as sender:
        talk = Talk.to(adapter, tuple(sender.hear()))
        talk.qp.flush()
        talk.cq.wait(8, PATIENCE)
        memory = adapter.allocate(1 << 20)
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(PATIENCE)
        sender.say("make it")
        assert sender.hear() == "announced"
        with stopped(broker_pid()):
            sender.say("send")
            assert sender.hear() == "sent"
            talk.qp.receive(region.sge(), "long")
            (result,) = talk.cq.wait(8, PATIENCE)
            assert result.status is shmnd.Status.SUCCESS
            assert bytes(memory[:: 1 << 12]) == b"\7" * 256
        sender.say("over")
