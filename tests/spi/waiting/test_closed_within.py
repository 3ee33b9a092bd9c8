# SPDX-License-Identifier: Apache-2.0
"""Another thread, or a handler of a signal, that closes a waiter within its `close`."""

from typing import Any

import shmnd
from shmnd.waiter import Waiter


class Meanwhile:
    """Stands for the engine, with a second close while the first one takes the descriptor out."""

    def __init__(self, waiter: Waiter) -> None:
        assert waiter._readiness is not None
        self._waiter, self._engine = waiter, waiter._readiness._engine
        self.request_progress = self
        self.closes = 0

    def end(self, progress: Any) -> None:
        self._engine.request_progress.end(progress)
        self.closes += 1
        if self.closes == 1:
            self._waiter.close()


def test_a_waiter_with_a_descriptor_may_be_closed_within_its_close() -> None:
    with shmnd.open_adapter() as adapter:
        waiter = Waiter(adapter, bool)
        waiter.fileno()
        readiness: Any = waiter._readiness
        readiness._engine = meanwhile = Meanwhile(waiter)
        waiter.close()
        assert meanwhile.closes == 2
        assert waiter._readiness is None
        assert readiness._event is None
