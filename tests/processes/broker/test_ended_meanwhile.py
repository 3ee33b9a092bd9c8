# SPDX-License-Identifier: Apache-2.0
"""What one thread ends while another one tells a new broker of it: neither call nor broker has it.

Another thread ends something without the lock of the session. Its word of the end may go to the
new broker before that of the beginning, and the descriptor of what it ended may be that of another
file by then.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from processes.kit import PATIENCE
from shmnd.broker.observer import visit
from shmnd.broker.place import place_of
from shmnd.directory import Directory

KIND = "test.ended"


def _records(kind: str) -> list[dict[str, Any]]:
    with visit(place_of()) as observer:
        assert observer is not None
        return observer.records(kind)


def _meanwhile(end: Callable[[], object]) -> None:
    """Do it in another thread, which does not wait for the broker."""
    thread = threading.Thread(target=end)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def _renew(adapter: shmnd.Adapter, op: str, end: Callable[[], object], *, before: bool) -> None:
    """Have a call find the session at its end; another thread ends something as it is renewed."""
    session: Any = adapter._engine.client
    call, left = session.call, [end]

    def interrupted(what: str, fds: Any = (), **fields: Any) -> Any:
        if what != op or not left:
            return call(what, fds, **fields)
        if before:
            _meanwhile(left.pop())
            # What the program opens next gets the numbers that are free.
            opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
            try:
                return call(what, fds, **fields)
            finally:
                for fd in opened:
                    os.close(fd)
        reply = call(what, fds, **fields)
        _meanwhile(left.pop())
        return reply

    session._hang_up()
    session.call = interrupted
    try:
        adapter._engine.settle()
    finally:
        del session.call
    assert not left
    adapter._engine.settle()


@pytest.mark.parametrize("before", [True, False])
def test_memory_released_during_a_replay_is_not_left_at_the_broker(before: bool) -> None:
    with shmnd.open_adapter() as adapter:
        (record,) = _records("adapters")
        memory = [adapter.allocate_segment(5000)]
        _renew(adapter, "segment", memory.clear, before=before)
        (after,) = _records("adapters")
        assert after["segments"] == record["segments"]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("op", ["adapter", "segment"])
def test_an_adapter(op: str, before: bool) -> None:
    with shmnd.open_adapter() as other, shmnd.open_adapter() as adapter:
        other.allocate(5000)
        _renew(adapter, op, other.close, before=before)
        assert [record["adapter"] for record in _records("adapters")] == [adapter.uid]


@pytest.mark.parametrize("before", [True, False])
def test_an_announced_name(before: bool) -> None:
    with shmnd.open_adapter() as other, shmnd.open_adapter() as adapter:
        found = Directory(other).announce(KIND, "name")
        _renew(adapter, "announce", found.close, before=before)
        assert Directory(adapter).find(KIND, "name") == ()


@pytest.mark.parametrize("before", [True, False])
def test_an_adapter_that_had_announced_something(before: bool) -> None:
    with shmnd.open_adapter() as other, shmnd.open_adapter() as adapter:
        found = Directory(other).announce(KIND, "name")
        _renew(adapter, "announce", other.close, before=before)
        assert Directory(adapter).find(KIND, "name") == ()
        found.close()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("op", ["bind", "listen"])
def test_a_listener(op: str, before: bool) -> None:
    with shmnd.open_adapter() as adapter:
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen(4)
        _renew(adapter, op, listener.close, before=before)
        assert _records("listeners") == []
