# SPDX-License-Identifier: Apache-2.0
"""What a result says of itself, and ways to get one: by name, with a reason, with the peer."""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from interrupting import Alarm
from shmnd import NdError, Status, completion_queue
from spi.harness import WAIT, End, contexts, nd_error, wait_until
from spi.pair import Pair
from spi.remote import Ends
from stepping import stepped

MakePair = Callable[..., Pair]
pytestmark = pytest.mark.active_end_here


def test_a_status_prints_its_name() -> None:
    assert str(Status.IO_TIMEOUT) == "IO_TIMEOUT"
    assert f"{Status.IO_TIMEOUT} {Status.SUCCESS:>8}" == "IO_TIMEOUT  SUCCESS"
    assert f"{Status.IO_TIMEOUT:#x}" == "0xc00000b5"
    assert f"{Status.PENDING} {Status.PENDING:d}" == "PENDING 259"


def test_a_successful_result_has_no_detail_and_raises_nothing(connected: Pair) -> None:
    connected.passive.qp.receive(connected.passive.memory(16).sge(), "in")
    connected.active.qp.send(connected.active.memory(5).sge(), "out")
    result = connected.active.cq.wait_one(WAIT)
    assert result.detail == ""
    assert result.raise_if_failed() is result
    assert repr(result) == "<Result SEND SUCCESS context='out'>"


def test_a_send_without_a_receive_names_the_missing_receive(make_pair: MakePair) -> None:
    pair = make_pair(rnr_timeout=0.1).connect()
    pair.active.qp.send(pair.active.memory(5).sge(), "early")
    result = pair.active.cq.wait_one(WAIT)
    assert result.status is Status.IO_TIMEOUT
    assert re.search(r"process \d+, posted no Receive .* 0\.1 s; post Receives", result.detail)
    assert result.detail in repr(result)
    with pytest.raises(TimeoutError, match=r"QueuePair.send: .*posted no Receive.*'early'") as got:
        result.raise_if_failed()
    assert isinstance(got.value, NdError)
    assert got.value.status is Status.IO_TIMEOUT


def test_a_read_without_limits_names_them(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.limits = (0, 0)
    pair.connect()
    far = pair.passive.memory(8)
    pair.active.qp.read(pair.active.memory(8).sge(), far.address, far.remote_token)
    result = pair.active.cq.wait_one(WAIT)
    assert result.status is Status.INVALID_DEVICE_REQUEST
    assert "outbound_read_limit" in result.detail
    assert "inbound_read_limit" in result.detail


def test_a_disconnected_peer_is_named(connected: Pair) -> None:
    connected.active.qp.receive(None)
    connected.hang_up(connected.passive)
    result = connected.active.cq.wait_one(WAIT)
    assert result.status is Status.CANCELED
    assert re.fullmatch(r"the peer, process \d+, disconnected", result.detail)


def test_each_of_many_results_of_one_call_names_the_peer(make_pair: MakePair) -> None:
    pair = make_pair(active={"depth": 150}).connect()
    for number in range(150):
        pair.active.qp.receive(None, number)
    pair.hang_up(pair.passive)
    wait_until(lambda: pair.active.cq._gather() >= 150, "all Receives are canceled")
    results = pair.active.cq.get_results(1000)
    assert contexts(results) == list(range(150))
    for result in results:
        assert re.fullmatch(r"the peer, process \d+, disconnected", result.detail)


def test_a_flush_is_named(connected: Pair) -> None:
    connected.active.qp.receive(None)
    connected.active.qp.flush()
    assert "flushed" in connected.active.cq.wait_one(WAIT).detail


def test_wait_one_names_the_requests_it_waited_for(connected: Pair) -> None:
    connected.active.qp.receive(None)
    with pytest.raises(TimeoutError) as caught:
        connected.active.cq.wait_one(0.01)
    assert re.search(
        r"CompletionQueue.wait_one: no result within 0.01 s; .*\b1 Receive of the QueuePair"
        r".* with process \d+",
        str(caught.value),
    )


def test_wait_one_reports_a_missing_connection(end: End) -> None:
    with pytest.raises(TimeoutError, match="no connected queue pair completes here"):
        end.cq.wait_one(0)


def test_results_come_one_by_one_in_a_loop(connected: Pair) -> None:
    end = connected.active

    async def take() -> list[Any]:
        taken = []
        async for result in end.cq:
            taken.append(result.request_context)
            if len(taken) == 2:
                end.qp.flush()
            if len(taken) == 3:
                return taken
        return taken

    for context in ("first", "second"):
        end.qp.receive(None, context)
        connected.passive.qp.send(None)
    end.qp.receive(None, "third")
    end.qp.receive(None, "fourth")
    assert asyncio.run(take()) == ["first", "second", "third"]
    assert end.cq.wait_one(WAIT).request_context == "fourth", "a loop takes no more than it yields"


def test_a_loop_over_a_closed_queue_ends_with_an_error(end: End) -> None:
    async def take() -> None:
        async for _ in end.cq:
            pass

    end.cq.close()
    with nd_error(Status.INVALID_HANDLE, match="closed"):
        asyncio.run(take())


def test_a_loop_over_a_queue_that_is_closed_meanwhile_ends_with_the_same_error(end: End) -> None:
    async def take() -> None:
        asyncio.get_running_loop().call_later(0.01, end.cq.close)
        async for _ in end.cq:
            pass

    with nd_error(Status.INVALID_HANDLE, match="closed"):
        asyncio.run(asyncio.wait_for(take(), WAIT))


def test_a_loop_continues_when_the_program_cancels_its_operations(end: End) -> None:
    async def take() -> Any:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, end.cq.cancel_overlapped_requests)
        loop.call_later(0.05, end.qp.flush)
        async for result in end.cq:
            return result.request_context
        return None

    end.qp.receive(None, "flushed")
    assert asyncio.run(asyncio.wait_for(take(), WAIT)) == "flushed"


def test_a_loop_enters_nothing_into_the_overlapped_file(end: End) -> None:
    """The program would get operations that it has not begun, and a file that grows."""

    async def take() -> None:
        asyncio.get_running_loop().call_later(0.01, end.qp.flush)
        async for _ in end.cq:
            return

    end.qp.receive(None)
    asyncio.run(asyncio.wait_for(take(), WAIT))
    own = end.cq.notify()
    end.cq.cancel_overlapped_requests()
    assert end.file.poll() == [own]


def test_a_loop_whose_begin_was_interrupted_holds_up_no_later_one(end: End) -> None:
    async def take() -> Any:
        asyncio.get_running_loop().call_soon(end.qp.flush)
        async for result in end.cq:
            return result.request_context
        return None

    at, place = 0, "none yet"
    while place:
        place = stepped(at, end.cq._notify_loops, completion_queue.__file__.__eq__, Alarm)
        end.qp.receive(None, at)
        assert asyncio.run(asyncio.wait_for(take(), WAIT)) == at, f"behind {place}"
        at += 1
    assert at > 3


def test_loops_that_a_time_limit_ends_leave_one_operation(end: End) -> None:
    async def take() -> None:
        async for _ in end.cq:
            pass

    async def look() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(take(), 0.001)

    async def often() -> None:
        for _ in range(20):
            await look()
        await asyncio.gather(*(look() for _ in range(20)))

    asyncio.run(often())
    assert len(end.cq._pending) == 1


def test_loops_in_two_threads_take_each_result_once(end: End) -> None:
    count, taken = 200, []
    cq, qp = end.cq, end.qp  # made here, not by the threads at once

    async def take() -> None:
        async for result in cq:
            taken.append(result.request_context)

    def run() -> None:
        with pytest.raises(shmnd.NdError, match="closed"):
            asyncio.run(asyncio.wait_for(take(), WAIT))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(count):
        qp.receive(None, number)
        qp.flush()
        if number % 20 == 0:
            time.sleep(0.001)  # both sleep again
    deadline = time.monotonic() + WAIT
    while len(taken) < count and time.monotonic() < deadline:
        time.sleep(0.001)
    cq.close()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert sorted(taken) == list(range(count))


@pytest.mark.parametrize("place", [(0, 65), (64, 1), (1, 64), (-1, 1), (0, -1), (1 << 70, 1)])
def test_an_element_outside_its_region_is_refused(end: End, place: tuple[int, int]) -> None:
    region = end.adapter.create_memory_region()
    region.register(bytearray(64), 1).result(WAIT)
    with pytest.raises(ValueError, match=r"MemoryRegion.sge"):
        region.sge(*place)
    assert isinstance(region.sge(0, 64), shmnd.Sge)


def test_a_death_after_a_fault_is_not_the_reason_of_what_the_fault_ended(
    ends: Ends, kill: Callable[[], int]
) -> None:
    end = ends.pair("two").connect().active
    end.qp.receive(None)
    for _ in range(2):
        end.qp.write(end.memory(8).sge(), 0x1000, 0xFFFFFFFE)
    kill()
    results = [end.cq.wait_one(WAIT) for _ in range(3)]
    statuses = {result.status for result in results}
    assert statuses == {Status.ACCESS_VIOLATION, Status.CANCELED}
    assert not [result.detail for result in results if "died" in result.detail]


def test_a_death_after_the_time_limit_of_a_send_is_not_its_reason(
    ends: Ends, kill: Callable[[], int]
) -> None:
    end = ends.pair("two", rnr_timeout=0.1).connect().active
    end.qp.send(end.memory(8).sge(), "early")
    end.qp.read(end.memory(8).sge(), 0x1000, 1, "behind")
    wait_until(lambda: end.cq._gather() == 2, "the Send has found no Receive in time")
    kill()
    end.adapter._engine.progress()  # sees the death
    early, behind = end.cq.wait(2, WAIT)
    assert (early.status, behind.status) == (Status.IO_TIMEOUT, Status.CANCELED)
    assert "posted no Receive for it" in early.detail
    assert "an earlier request on the queue pair failed" in behind.detail


def test_a_death_after_a_flush_is_not_the_reason_of_what_was_flushed(
    ends: Ends, kill: Callable[[], int]
) -> None:
    end = ends.pair("two").connect().active
    end.qp.receive(None, 0)
    end.qp.send(end.memory(8).sge(), 1)
    end.qp.flush()
    wait_until(lambda: end.cq._gather() == 2, "both requests are canceled")
    end.qp.receive(None, 2)
    kill()
    end.adapter._engine.progress()  # sees the death
    flushed = end.cq.wait(2, WAIT)
    (last,) = end.cq.wait(1, WAIT)
    assert {result.status for result in (*flushed, last)} == {Status.CANCELED}
    assert [result.detail for result in flushed] == ["the queue pair was flushed"] * 2
    assert re.fullmatch(r"the peer, process \d+, died", last.detail)


@pytest.mark.parametrize("how", ["disconnect", "a request that fails"])
def test_a_peer_that_follows_an_end_is_not_its_reason(connected: Pair, how: str) -> None:
    end = connected.active
    heard = connected.passive.connector.notify_disconnect()
    if how == "disconnect":
        end.qp.receive(None)
        end.connector.disconnect().result(WAIT)
    else:
        end.qp.write(end.memory(8).sge(), 0x1000, 0xFFFFFFFE)
        end.qp.receive(None)
        assert end.cq.wait_one(WAIT).status is Status.ACCESS_VIOLATION
        end.cq._gather()
    heard.result(timeout=WAIT)
    result = end.cq.wait_one(WAIT)
    assert result.status is Status.CANCELED
    assert re.search(r"ended here, or an earlier request|closed here", result.detail)
