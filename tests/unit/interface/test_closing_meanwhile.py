# SPDX-License-Identifier: Apache-2.0
"""Operations that begin while another thread closes their object, or cancels what it began."""

from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from shmnd import Status
from unit.fakes import FakeAdapter
from unit.interface.overlapped_kit import Thing

NOTIFYING: dict[str, Callable[[shmnd.Adapter], Any]] = {
    "completions": lambda adapter: adapter.create_completion_queue(4),
    "receives": lambda adapter: adapter.create_shared_receive_queue(4),
}


@pytest.mark.parametrize("first", ["close", "begin"])
@pytest.mark.parametrize("make", NOTIFYING.values(), ids=NOTIFYING.keys())
def test_a_notify_of_a_queue_that_is_closed_meanwhile_ends(
    make: Callable[[shmnd.Adapter], Any], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmnd.open_adapter() as adapter:
        file = adapter.create_overlapped_file()
        queue = make(adapter)
        queue._file = file
        begin = queue._start

        def closed_meanwhile(*args: Any) -> Any:
            """Begin it, and do at the same moment what another thread does."""
            if first == "close":
                queue.close()
            begun = begin(*args)
            queue.close()
            return begun

        monkeypatch.setattr(queue, "_start", closed_meanwhile)
        begun = queue.notify()
        assert begun.status == Status.CANCELED, "it has an end"
        assert file.poll() == [begun]
        assert not len(adapter._engine.pending_operations), "and nothing polls for it"


def test_a_cancel_ends_what_had_begun_and_nothing_else(adapter: FakeAdapter) -> None:
    class Replacing(Thing):
        def _cancel(self, overlapped: Any) -> bool:
            begun.append(self.start("Thing.next"))  # as another thread may do meanwhile
            return True

    begun: list[Any] = []
    thing = Replacing(adapter)
    old = [thing.start_stepping(), thing.start_stepping()]
    thing.cancel_overlapped_requests()
    assert [each.status for each in old] == [Status.CANCELED] * 2
    assert [each.status for each in begun] == [Status.PENDING] * 2
    thing.close()
