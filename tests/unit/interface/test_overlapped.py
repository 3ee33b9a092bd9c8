# SPDX-License-Identifier: Apache-2.0
"""Overlapped operations: they end once, are delivered once, and wake their waiters."""

import asyncio
import gc
import select
import threading
import time
import weakref
from typing import Any

import pytest

from shmnd.overlapped import (
    OverlappedFile,
    require_file,
)
from shmnd.status import NdError, Status, detail_of, error
from unit.fakes import FakeAdapter, World
from unit.interface.overlapped_kit import CANCELED, PENDING, SUCCESS, WAIT, Thing


# -- delivery -------------------------------------------------------------------------------------
def test_each_comes_out_once_in_the_order_of_completion(
    adapter: FakeAdapter, file: OverlappedFile
) -> None:
    things = [Thing(adapter, file) for _ in range(3)]
    pending = [thing.start() for thing in things]
    assert file.poll() == []
    for number in (2, 0, 1):
        assert pending[number]._complete(SUCCESS)
        assert not pending[number]._complete(CANCELED), "the first end counts"
    assert file.poll() == [pending[2], pending[0], pending[1]]
    assert file.poll() == []
    assert {ov.status for ov in pending} == {SUCCESS}


def test_immediate_completions_are_delivered_too(
    adapter: FakeAdapter, file: OverlappedFile
) -> None:
    thing = Thing(adapter, file)
    thing.ends = SUCCESS
    done = thing.start_stepping()
    assert done.done()
    assert not thing._pending
    assert file.poll() == [done]


def test_poll_takes_at_most_max(adapter: FakeAdapter, file: OverlappedFile) -> None:
    thing = Thing(adapter, file)
    pending = [thing.start() for _ in range(5)]
    thing.cancel_overlapped_requests()
    assert file.poll(0) == []
    assert file.poll(2) == pending[:2]
    assert file.poll(max=1) == pending[2:3]
    assert select.select([file], [], [], 0)[0], "there is more"
    assert file.poll() == pending[3:]
    for wrong in (-1, "1", True, 1.0):
        with pytest.raises(ValueError, match=r"OverlappedFile\.poll: max"):
            file.poll(wrong)  # type: ignore[arg-type]


def test_poll_that_is_interrupted_loses_nothing(adapter: FakeAdapter, file: OverlappedFile) -> None:
    thing = Thing(adapter, file)
    pending = [thing.start() for _ in range(4)]
    thing.cancel_overlapped_requests()

    class Interrupting(type(file._queue)):  # type: ignore[misc]
        def popleft(self) -> Any:
            if len(self) == 2:
                raise KeyboardInterrupt
            return super().popleft()

    file._queue = Interrupting(file._queue)
    with pytest.raises(KeyboardInterrupt):
        file.poll()
    file._queue = type(file._queue).__mro__[1](file._queue)
    assert select.select([file], [], [], 0)[0]
    assert file.poll() == pending


def test_without_a_file_nothing_is_delivered(adapter: FakeAdapter, file: OverlappedFile) -> None:
    Thing(adapter).start()._complete(SUCCESS)
    assert file.poll() == []


def test_a_closed_file_takes_nothing_and_harms_no_operation(
    adapter: FakeAdapter, file: OverlappedFile
) -> None:
    thing = Thing(adapter, file)
    before, after = thing.start(), thing.start()
    before._complete(SUCCESS)
    assert file.fileno() >= 0
    file.close()
    file.close()
    after._complete(SUCCESS)
    assert file.closed
    for call in (file.poll, file.fileno):
        with pytest.raises(NdError) as caught:
            call()
        assert caught.value.status is Status.INVALID_HANDLE


def test_a_file_belongs_to_one_adapter(world: World, adapter: FakeAdapter) -> None:
    file = OverlappedFile(adapter)
    assert require_file(None, adapter, "test") is None
    assert require_file(file, adapter, "test") is file
    with pytest.raises(ValueError, match="test: the overlapped file is of another adapter"):
        require_file(file, world.adapter(engine=adapter._engine), "test")
    with pytest.raises(ValueError, match=r"int is not an OverlappedFile; Adapter\.create_over"):
        require_file(7, adapter, "test")
    file.close()
    with pytest.raises(ValueError, match="is closed"):
        require_file(file, adapter, "test")


# -- steps and cancelling -------------------------------------------------------------------------
def test_steps_are_taken_at_every_poll_until_one_ends_it(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start_stepping()
    assert thing.looked == 1
    adapter._engine.progress()
    assert thing.looked == 2
    assert pending.status is PENDING
    assert thing.looked == 3
    thing.ends = Status.CONNECTION_REFUSED
    assert pending.done()
    looked = thing.looked
    adapter._engine.progress()
    assert thing.looked == looked
    assert not adapter._engine.pending_operations._tickers


def test_a_step_that_fails_ends_it_with_that(adapter: FakeAdapter, file: OverlappedFile) -> None:
    thing = Thing(adapter, file)
    pending = thing.start_stepping()
    thing.raises = error(Status.IO_TIMEOUT, "inside", "no answer came")
    with pytest.raises(TimeoutError, match=r"^Thing\.step: no answer came \[IO_TIMEOUT\]$"):
        pending.result()
    assert file.poll() == [pending]


def test_cancel_is_synchronous_and_in_order(adapter: FakeAdapter, file: OverlappedFile) -> None:
    one, two = Thing(adapter, file), Thing(adapter, file)
    mixed = [one.start("a"), two.start("b"), one.start_stepping(), two.start("d")]
    two.cancel_overlapped_requests()
    one.cancel_overlapped_requests()
    assert [ov.call for ov in file.poll()] == ["b", "d", "a", "Thing.step"]
    assert {ov.status for ov in mixed} == {CANCELED}
    one.cancel_overlapped_requests()
    again = one.start()
    assert again.status is PENDING, "the object stays usable"


def test_uncancelable_operations_continue(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    thing.cancels = False
    stays, goes = thing.start_stepping(), thing.start()
    with pytest.raises(NdError, match=r"too late to cancel Thing\.step") as caught:
        thing.cancel_overlapped_requests()
    assert caught.value.status is Status.UNSUCCESSFUL
    assert (stays.status, goes.status) == (PENDING, CANCELED)


@pytest.mark.parametrize("how", ["close", "with", "del", "collect"])
def test_the_release_of_its_object_ends_it(
    adapter: FakeAdapter, file: OverlappedFile, how: str
) -> None:
    thing: Any = Thing(adapter, file)
    gone = weakref.ref(thing)
    pending = [thing.start_stepping(), thing.start()]
    if how == "close":
        thing.close()
        thing.close()
    elif how == "with":
        with thing as same:
            assert same is thing
    elif how == "collect":
        thing.circle = thing
    thing = same = None
    gc.collect()
    assert gone() is None, "pending operations do not keep it alive"
    assert {ov._seen() for ov in pending} == {CANCELED}
    assert file.poll() == pending
    with pytest.raises(NdError, match="its object was released"):
        pending[0].result()


def test_get_overlapped_result_accepts_an_operation_of_any_object(adapter: FakeAdapter) -> None:
    one, two = Thing(adapter), Thing(adapter)
    pending = one.start_stepping()
    assert two.get_overlapped_result(pending) is PENDING
    one.ends = Status.CONNECTION_REFUSED
    assert two.get_overlapped_result(pending, wait=True) is Status.CONNECTION_REFUSED
    one.close()
    assert one.get_overlapped_result(pending) is Status.CONNECTION_REFUSED
    with pytest.raises(ValueError, match=r"Thing\.get_overlapped_result: int is not an Ov"):
        one.get_overlapped_result(7)  # type: ignore[arg-type]


# -- after the end --------------------------------------------------------------------------------
def test_after_the_engine_is_closed_everything_is_device_removed(
    adapter: FakeAdapter, file: OverlappedFile
) -> None:
    thing = Thing(adapter, file)
    pending, done = thing.start_stepping(), thing.start()
    done._complete(SUCCESS)
    adapter.close()
    assert done.status is SUCCESS
    assert pending.status is Status.DEVICE_REMOVED
    assert pending.done()
    with pytest.raises(NdError, match=r"the adapter is gone.*DEVICE_REMOVED"):
        pending.result()
    assert thing.get_overlapped_result(pending, wait=True) is Status.DEVICE_REMOVED
    assert file.poll() == [done], "earlier ends are still delivered"
    for call in (thing.cancel_overlapped_requests, file.poll, lambda: adapter._engine.wait(bool)):
        with pytest.raises(NdError, match="its adapter is closed") as caught:
            call()
        assert caught.value.status is Status.DEVICE_REMOVED
    thing.close()
    assert pending.status is CANCELED


def test_a_thread_that_waits_while_the_engine_is_closed(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            pending.result(WAIT)
        except NdError as exc:
            raised.append(exc)

    thread = threading.Thread(target=wait)
    thread.start()
    while not adapter._engine._wait_set._polling:
        time.sleep(0)
    adapter.close()
    thread.join(WAIT)
    assert [exc.status for exc in raised if isinstance(exc, NdError)] == [Status.DEVICE_REMOVED]


def test_an_await_while_the_engine_is_closed(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(adapter.close)
        with pytest.raises(NdError) as caught:
            await pending
        assert caught.value.status is Status.DEVICE_REMOVED

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_details_leave_out_the_call() -> None:
    exc = error(Status.CONNECTION_REFUSED, "Connector.connect", "nothing: there")
    assert detail_of(exc) == "nothing: there"
    assert detail_of(NdError(Status.CANCELED, "plain")) == "plain"
