# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises while a Connect or Accept is canceled: it can be continued.

The next cancel ends the operation, which is delivered once, and a close finds the connector whole.
"""

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
import shmnd.nd1
from interrupting import Alarm, Interrupted, inside, interrupted
from shmnd import Status
from spi.harness import WAIT

WITHIN = inside(shmnd)


class Attempt:
    """A connection that waits for the word of one side, in either version of the interface."""

    def __init__(self, adapter: Any, other: Any) -> None:
        self.queues = [each.create_completion_queue(8) for each in (adapter, other)]
        self.active, self.passive = adapter.create_connector(), other.create_connector()
        self.listener = self.listen(other)
        self.pairs = [
            self.pair(each, connector, queue)
            for each, connector, queue in zip(
                (adapter, other), (self.active, self.passive), self.queues, strict=True
            )
        ]
        asked = self.listener.get_connection_request(self.passive)
        self.connecting = self.active.connect(self.pairs[0], self.listener.get_local_address())
        asked.result(WAIT)

    def listen(self, adapter: Any) -> Any:
        raise NotImplementedError

    def pair(self, adapter: Any, connector: Any, queue: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        for each in (self.active, self.passive, *self.pairs, self.listener, *self.queues):
            each.close()


class OfVersion2(Attempt):
    def listen(self, adapter: Any) -> Any:
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        return listener

    def pair(self, adapter: Any, connector: Any, queue: Any) -> Any:
        return adapter.create_queue_pair(queue, queue)


class OfVersion1(Attempt):
    def listen(self, adapter: Any) -> Any:
        return adapter.listen(0, 6, 0)

    def pair(self, adapter: Any, connector: Any, queue: Any) -> Any:
        return connector.create_endpoint(queue, queue, 4, 4, 1, 1)


def of_version_2() -> Any:
    return shmnd.open_adapter()


def of_version_1() -> Any:
    return shmnd.nd1.Provider().open_adapter("127.0.0.1")


@pytest.fixture(params=[2, 1])
def attempts(request: pytest.FixtureRequest) -> Iterator[Callable[[], Attempt]]:
    opened, made = (of_version_2, OfVersion2) if request.param == 2 else (of_version_1, OfVersion1)
    gc.disable()  # what the handler raises in a finaliser reaches no caller
    with opened() as adapter, opened() as other:
        yield lambda: made(adapter, other)
    gc.enable()


@pytest.mark.parametrize("kind", [Alarm, Interrupted, TimeoutError])
@pytest.mark.parametrize("accepts", [False, True], ids=["connect", "accept"])
def test_a_cancel_that_is_interrupted_is_continued(
    attempts: Callable[[], Attempt], accepts: bool, kind: type[BaseException]
) -> None:
    for at in itertools.count():
        attempt = attempts()
        canceled, connector = attempt.connecting, attempt.active
        if accepts:
            canceled, connector = attempt.passive.accept(attempt.pairs[1]), attempt.passive
        more = interrupted(at, connector.cancel_overlapped_requests, WITHIN, kind)
        where = f"interrupted at place {at}"
        connector.cancel_overlapped_requests()
        assert canceled.status is Status.CANCELED, where
        if not accepts:
            again = connector.connect(attempt.pairs[0], attempt.listener.get_local_address())
            assert again.status is Status.PENDING, where
        attempt.close()
        if not more:
            break
    assert at > 10, "there were places to interrupt"
