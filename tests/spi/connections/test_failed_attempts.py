# SPDX-License-Identifier: Apache-2.0
"""Queue pairs whose attempt to connect has failed, and the queues that they complete to."""

import gc
import threading
from typing import Any

import pytest

import shmnd
from processes.kit import listening
from shmnd import Status
from shmnd.messaging.endpoints import Ends
from shmnd.runtime.data_plane import DataPlane
from shmnd.status import error
from spi.harness import WAIT, nd_error


def test_neither_queue_polls_a_pair_whose_attempt_was_rejected(
    adapters: tuple[shmnd.Adapter, shmnd.Adapter],
) -> None:
    """Its link is released: a poll of the pair would read memory that is not there."""
    caller, called = adapters
    with listening(called) as listener, caller.create_completion_queue(4) as far:
        receives, requests = (called.create_completion_queue(4) for _ in range(2))
        kept: list[object] = []  # dropped ones would give the attempt up

        def offer(pair: shmnd.QueuePair) -> tuple[shmnd.Connector, shmnd.Overlapped]:
            active, passive = caller.create_connector(), called.create_connector()
            request = listener.get_connection_request(passive)
            far_pair = caller.create_queue_pair(far, far)
            kept.extend((passive, far_pair))
            connecting = active.connect(far_pair, listener.get_local_address())
            request.result(WAIT)
            accepting = passive.accept(pair)
            connecting.result(WAIT)
            return active, accepting

        pair = called.create_queue_pair(receives, requests)
        for _ in range(3):
            active, accepting = offer(pair)
            active.reject()
            with nd_error(Status.CONNECTION_REFUSED):
                accepting.result(WAIT)
            assert receives.get_results() == requests.get_results() == []
        active, accepting = offer(pair)
        active.complete_connect().result(WAIT)
        accepting.result(WAIT)
        assert receives.get_results() == requests.get_results() == []
        kept.clear()
        del pair, active, accepting
        gc.collect()
        assert receives.wait(1, 0) == requests.wait(1, 0) == []


SHORTAGE = "4096 bytes of shared memory wanted, 17 are left"


def lack(*_: Any) -> Any:
    raise error(Status.INSUFFICIENT_RESOURCES, "DataPlane", SHORTAGE)


@pytest.mark.parametrize("how", ["reject", "close", "accept"])
def test_the_peer_learns_that_an_accept_lacked_memory(
    adapters: tuple[shmnd.Adapter, shmnd.Adapter], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """If the program refuses the request then; the second Accept may find memory."""
    caller, called = adapters
    with listening(called) as listener, caller.create_completion_queue(4) as far:
        active, passive = caller.create_connector(), called.create_connector()
        request = listener.get_connection_request(passive)
        far_pair = caller.create_queue_pair(far, far)
        queue = called.create_completion_queue(4)
        pair = called.create_queue_pair(queue, queue)
        connecting = active.connect(far_pair, listener.get_local_address())
        request.result(WAIT)
        with monkeypatch.context() as patch:
            patch.setattr(DataPlane, "create_link", lack)
            with nd_error(Status.INSUFFICIENT_RESOURCES, match=SHORTAGE):
                passive.accept(pair)
        if how == "accept":
            accepting = passive.accept(pair)
            connecting.result(WAIT)
            active.complete_connect().result(WAIT)
            accepting.result(WAIT)
            return
        passive.reject(b"no") if how == "reject" else passive.close()
        with nd_error(
            Status.CONNECTION_REFUSED, match=rf"connect: the peer could not accept: {SHORTAGE}"
        ):
            connecting.result(WAIT)
        assert active.get_private_data() == (b"no" if how == "reject" else b"")


def test_the_peer_learns_that_a_connect_lacked_memory(
    adapters: tuple[shmnd.Adapter, shmnd.Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next Connect of the same connector may find memory."""
    caller, called = adapters
    with listening(called) as listener, caller.create_completion_queue(4) as far:
        active, queue = caller.create_connector(), called.create_completion_queue(4)
        far_pair = caller.create_queue_pair(far, far)

        def answered() -> tuple[shmnd.Overlapped, shmnd.Overlapped, shmnd.Connector]:
            passive = called.create_connector()
            request = listener.get_connection_request(passive)
            connecting = active.connect(far_pair, listener.get_local_address())
            request.result(WAIT)
            pair = called.create_queue_pair(queue, queue)
            return connecting, passive.accept(pair), passive

        with monkeypatch.context() as patch:
            patch.setattr(DataPlane, "attach_link", lack)
            connecting, accepting, passive = answered()
            with nd_error(Status.INSUFFICIENT_RESOURCES, match=SHORTAGE):
                connecting.result(WAIT)
            with nd_error(
                Status.CONNECTION_REFUSED,
                match=rf"accept: the active side could not connect: {SHORTAGE}",
            ):
                accepting.result(WAIT)
            with nd_error(
                Status.CONNECTION_INVALID, match="ended with its Accept, which the active side"
            ):
                passive.get_peer_address()
        connecting, accepting, _ = answered()
        connecting.result(WAIT)
        active.reject()
        with nd_error(Status.CONNECTION_REFUSED, match="the active side rejected or gave up"):
            accepting.result(WAIT)


def test_the_client_of_a_server_that_lacks_memory_learns_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shortage = "no memory for 128 completions; see ulimit -v"

    def lack(*_: Any) -> Any:
        raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_completion_queue", shortage)

    with shmnd.listen() as server:

        def serve() -> None:
            with pytest.raises(MemoryError, match=shortage):
                server.accept(WAIT)

        monkeypatch.setattr(Ends, "agree", lack)
        serving = threading.Thread(target=serve)
        serving.start()
        with nd_error(Status.CONNECTION_REFUSED, match=f"the peer could not accept: {shortage}"):
            shmnd.connect(server.address, timeout=WAIT)
        serving.join(WAIT)
        assert not serving.is_alive()
