# SPDX-License-Identifier: Apache-2.0
"""Operations that begin while another thread closes their object, or cancels what it began."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from shmnd import MrFlag, Status
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


def test_a_cancel_ends_only_earlier_operations(adapter: FakeAdapter) -> None:
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


def test_a_region_that_two_threads_register_holds_one_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shmnd.open_adapter() as adapter:
        region = adapter.create_memory_region()
        registry = adapter._registry
        begin = registry.register
        first, second = bytearray(64), bytearray(64)

        class Registry:
            """Another thread registers a buffer at the moment before this one's is registered."""

            def register(self, *args: Any) -> int:
                monkeypatch.undo()
                region.register(second, 0).result(30)
                return begin(*args)

            def __getattr__(self, name: str) -> Any:
                return getattr(registry, name)

        monkeypatch.setattr(adapter, "_registry", Registry())
        with pytest.raises(shmnd.NdError, match="registered here already"):
            region.register(first, 0)
        first.append(1)  # it is not held
        with pytest.raises(BufferError):
            second.append(1)
        region.close()
        second.append(1)


def test_two_threads_that_register_at_once_get_an_entry_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shmnd.open_adapter() as adapter:
        first, second = adapter.create_memory_region(), adapter.create_memory_region()
        buffers = bytearray(64), bytearray(64)

        def meanwhile(most: int) -> int:
            """Draw a number; another thread takes a token while this one runs Python code."""
            monkeypatch.undo()
            second.register(buffers[1], 0).result(30)
            return 7

        monkeypatch.setattr("random.randrange", meanwhile)
        first.register(buffers[0], 0).result(30)
        tokens = {first.local_token % 2**18, second.local_token % 2**18}
        assert len(tokens) == 2, "the entry of one is not that of the other"
        for region in first, second:
            region.deregister().result(30)
        for buffer in buffers:
            buffer.append(1)  # both are released


def test_memory_of_an_adapter_that_is_closed_meanwhile_is_refused() -> None:
    with shmnd.open_adapter() as adapter:
        arena = adapter._arena
        arena.close()  # as another thread does behind the first check of the call
        with pytest.raises(shmnd.NdError, match="closed meanwhile"):
            adapter.allocate(1000)


def test_threads_that_register_at_once_share_the_table_of_their_grants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two tables with one number peers would read one, and the owner withdraw in the other."""
    with shmnd.open_adapter() as adapter:
        engine = adapter._engine
        first, second = adapter.create_memory_region(), adapter.create_memory_region()
        announce = engine.announce_segment

        def meanwhile(*args: Any, **options: Any) -> None:
            """Another thread registers while this one waits for the broker."""
            monkeypatch.undo()
            second.register(bytearray(64), MrFlag.ALLOW_REMOTE_READ).result(30)
            announce(*args, **options)

        monkeypatch.setattr(engine, "announce_segment", meanwhile)
        first.register(bytearray(64), MrFlag.ALLOW_REMOTE_READ).result(30)
        assert len(adapter._registry.tables()) == 1


def test_a_region_that_is_free_again_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    with shmnd.open_adapter() as adapter:
        region = adapter.create_memory_region()
        registry = adapter._registry
        steps = ["register", "release"]

        class Registry:
            """Another thread registers before this one does, and deregisters before it knows."""

            def register(self, *args: Any) -> int:
                if "register" in steps:
                    steps.remove("register")
                    region.register(bytearray(64), 0).result(30)
                return registry.register(*args)

            def release(self, token: int) -> None:
                registry.release(token)
                if "release" in steps:
                    steps.remove("release")
                    region.deregister().result(30)

            def __getattr__(self, name: str) -> Any:
                return getattr(registry, name)

        monkeypatch.setattr(adapter, "_registry", Registry())
        mine = bytearray(64)
        assert region.register(mine, 0).result(30) is None
        assert not steps
        with pytest.raises(BufferError):
            mine.append(1)  # it is held
        region.close()


def test_the_descriptor_of_a_queue_that_is_closed_meanwhile_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shmnd.open_adapter() as adapter:
        engine = adapter._engine
        queue = adapter.create_completion_queue(4)
        sleepers = len(engine.request_progress._sleepers)

        def close(call: str) -> None:
            monkeypatch.undo()
            queue.close()  # as another thread does behind the first check of the call

        monkeypatch.setattr(engine, "check", close)
        with pytest.raises(shmnd.NdError) as caught:
            queue.fileno()
        assert caught.value.status == Status.INVALID_HANDLE
        assert len(engine.request_progress._sleepers) == sleepers, "no queue announces for it"


def test_an_adapter_is_closed_while_other_threads_make_memory() -> None:
    for _ in range(5):
        with shmnd.open_adapter() as adapter:
            kept = [adapter.allocate_segment(4096) for _ in range(300)]

            def make(adapter: shmnd.Adapter = adapter) -> None:
                with contextlib.suppress(shmnd.NdError):
                    while True:
                        adapter.allocate_segment(4096)

            threads = [threading.Thread(target=make) for _ in range(2)]
            for thread in threads:
                thread.start()
            adapter.close()
            for thread in threads:
                thread.join()
            assert len(kept) == 300


def test_memory_goes_while_its_adapter_is_closed() -> None:
    for _ in range(20):
        with shmnd.open_adapter() as adapter:
            kept = [adapter.allocate_segment(4096) for _ in range(200)]
            thread = threading.Thread(target=kept.clear)
            thread.start()
            adapter.close()
            thread.join()


def test_a_queue_that_closes_while_it_is_polled_gives_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll makes progress before it clears the descriptor, and a handler of a signal may run."""
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_completion_queue(4)
        queue.fileno()
        queue.get_results()  # what only now and then is done before a poll is done
        queue.notify()
        monkeypatch.setattr(adapter._engine, "progress", queue.close)
        assert queue.get_results() == []


def test_no_receive_is_posted_to_a_shared_queue_that_others_fill_or_close_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A post completes a Notify first. Other threads, or the handler of a signal, post then."""
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_shared_receive_queue(4, 1, 1)
        queue.receive(None, "first")
        queue.notify()
        used_up = queue._used_up

        def meanwhile(call: Callable[[], object]) -> None:
            def once() -> None:
                monkeypatch.setattr(queue, "_used_up", used_up)
                call()

            monkeypatch.setattr(queue, "_used_up", once)

        meanwhile(lambda: [queue.receive(None, "another thread's") for _ in range(3)])
        with pytest.raises(shmnd.NdError) as caught:
            queue.receive(None, "one too many")
        assert caught.value.status is Status.NO_MORE_ENTRIES
        assert queue._outstanding == 4
        queue.modify(8)
        meanwhile(queue.close)
        with pytest.raises(shmnd.NdError) as caught:
            queue.receive(None, "into a closed one")
        assert caught.value.status is Status.INVALID_HANDLE
        assert queue._outstanding == 0
