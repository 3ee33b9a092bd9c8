# SPDX-License-Identifier: Apache-2.0
"""Queue pairs whose attempt to connect has failed, and the queues that they complete to."""

import gc

import shmnd
from shmnd import Status
from spi.harness import WAIT, nd_error


def test_neither_queue_polls_a_pair_whose_attempt_was_rejected(
    adapters: tuple[shmnd.Adapter, shmnd.Adapter],
) -> None:
    """Its link is released: a poll of the pair would read memory that is not there."""
    caller, called = adapters
    with called.create_listener() as listener, caller.create_completion_queue(4) as far:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
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
