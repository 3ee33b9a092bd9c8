# SPDX-License-Identifier: Apache-2.0
"""IND2Overlapped and the file its operations run on: delivery, cancelling, waiting, awaiting."""

import asyncio
import os
import select
import selectors
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import NdError, Overlapped, Status
from spi.harness import LOCAL, WAIT, End, final, nd_error
from spi.pair import Pair
from spi.remote import Ends


def pending_of(end: End) -> dict[str, tuple[Any, Any]]:
    """A pending operation of each kind of object that can have one, with its object."""
    end.listen()
    waiting = end.listener.get_connection_request(end.connector)
    return {
        "completion queue": (end.cq, end.cq.notify()),
        "shared receive queue": (end.srq, end.srq.notify()),
        "listener": (end.listener, waiting),
    }


KINDS = ["completion queue", "shared receive queue", "listener"]


# cancel_overlapped_requests


@pytest.mark.parametrize("kind", KINDS)
def test_cancel_overlapped_requests_success_ends_everything_pending(end: End, kind: str) -> None:
    owner, overlapped = pending_of(end)[kind]
    end.file.poll()
    assert owner.cancel_overlapped_requests() is None
    assert end.file.poll() == [overlapped], "delivered before the call returned"
    assert overlapped.status == Status.CANCELED
    with nd_error(Status.CANCELED):
        overlapped.result()


@pytest.mark.parametrize("kind", KINDS)
def test_cancel_overlapped_requests_success_leaves_other_objects_alone(end: End, kind: str) -> None:
    everything = pending_of(end)
    everything.pop(kind)[0].cancel_overlapped_requests()
    for _, overlapped in everything.values():
        assert end.still_pending(overlapped)


def test_cancel_overlapped_requests_success_with_nothing_pending(end: End) -> None:
    for owner in (end.cq, end.srq, end.connector, end.listener, end.memory(8).mr):
        owner.cancel_overlapped_requests()
        owner.cancel_overlapped_requests()


def test_cancel_overlapped_requests_success_keeps_completed_operations(end: End) -> None:
    mr = end.adapter.create_memory_region(overlapped_file=end.file)
    done = mr.register(end.adapter.allocate(8), LOCAL)
    done.result(timeout=WAIT)
    mr.cancel_overlapped_requests()
    assert done.status == Status.SUCCESS
    assert mr.length == 8


# get_overlapped_result


def test_get_overlapped_result_success_of_an_operation_that_succeeded(end: End) -> None:
    mr = end.adapter.create_memory_region(overlapped_file=end.file)
    done = mr.register(end.adapter.allocate(8), LOCAL)
    assert mr.get_overlapped_result(done, wait=True) == Status.SUCCESS
    assert mr.get_overlapped_result(done) == Status.SUCCESS


def test_get_overlapped_result_success_from_any_other_object(end: End) -> None:
    regions = [end.adapter.create_memory_region(overlapped_file=end.file) for _ in range(3)]
    buffer = end.adapter.allocate(8)
    submitted = [mr.register(buffer, LOCAL) for mr in regions]
    for mr, overlapped in zip(reversed(regions), submitted, strict=True):
        assert mr.get_overlapped_result(overlapped, wait=True) == Status.SUCCESS
    assert end.cq.get_overlapped_result(submitted[0]) == Status.SUCCESS


@pytest.mark.parametrize("kind", KINDS)
def test_get_overlapped_result_pending_until_done(end: End, kind: str) -> None:
    owner, overlapped = pending_of(end)[kind]
    assert owner.get_overlapped_result(overlapped) == Status.PENDING
    assert owner.get_overlapped_result(overlapped, wait=False) == Status.PENDING
    assert overlapped.status == Status.PENDING
    assert not overlapped.done()


@pytest.mark.parametrize("kind", KINDS)
def test_get_overlapped_result_canceled_after_a_cancel(end: End, kind: str) -> None:
    owner, overlapped = pending_of(end)[kind]
    owner.cancel_overlapped_requests()
    assert owner.get_overlapped_result(overlapped) == Status.CANCELED
    assert owner.get_overlapped_result(overlapped, wait=True) == Status.CANCELED


@pytest.mark.parametrize("kind", KINDS)
def test_get_overlapped_result_canceled_when_the_adapter_is_closed(end: End, kind: str) -> None:
    _, overlapped = pending_of(end)[kind]
    end.close()
    assert overlapped.status == Status.CANCELED
    assert final(overlapped) == Status.CANCELED


def test_get_overlapped_result_device_removed_in_a_forked_child(end: End) -> None:
    """Objects opened before fork() belong to the parent; the child's copy refuses."""
    cq, overlapped = end.cq, end.cq.notify()
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if not child:
        seen = []
        for call in (
            lambda: cq.get_overlapped_result(overlapped),
            cq.notify,
            lambda: end.adapter.create_completion_queue(8),
            lambda: end.adapter.allocate(64),
        ):
            try:
                result = call()
                seen.append(result.name if isinstance(result, Status) else f"gave:{result!r}")
            except NdError as error:
                seen.append(error.status.name)
            except BaseException as error:
                seen.append(repr(error))
        os.write(write_fd, " ".join(seen).encode())
        os._exit(0)
    os.close(write_fd)
    try:
        answer = os.read(read_fd, 4096).decode()
    finally:
        os.close(read_fd)
        os.waitpid(child, 0)
    assert answer.split() == ["DEVICE_REMOVED"] * 4
    assert end.still_pending(overlapped), "the parent's is untouched"
    end.qp.receive(None)
    end.qp.flush()
    assert final(overlapped) == Status.SUCCESS


def test_get_overlapped_result_returns_the_failure_of_the_operation(pair: Pair) -> None:
    refused = pair.active.connector.connect(pair.active.qp, (pair.passive.host, 1))
    status = pair.active.connector.get_overlapped_result(refused, wait=True)
    assert status == Status.CONNECTION_REFUSED
    assert refused.status == Status.CONNECTION_REFUSED
    assert pair.active.cq.get_overlapped_result(refused) == Status.CONNECTION_REFUSED


# Overlapped


def test_result_returns_none_or_raises_every_time(end: End) -> None:
    notice = end.cq.notify()
    end.cq.cancel_overlapped_requests()
    for _ in range(2):
        with nd_error(Status.CANCELED, match="(?i)notify"):
            notice.result()
    mr = end.adapter.create_memory_region()
    done = mr.register(bytearray(8), LOCAL)
    assert done.result() is None
    assert done.result(timeout=0) is None
    assert done.done()


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_result_raises_the_builtin_timeout_error_when_the_time_ends(
    end: End, timeout: float
) -> None:
    notice = end.cq.notify()
    with pytest.raises(TimeoutError) as caught:
        notice.result(timeout=timeout)
    assert not isinstance(caught.value, NdError)
    assert not notice.done()


def test_result_wakes_up_when_another_thread_completes_it(end: End) -> None:
    notice = end.cq.notify()
    end.qp.receive(None)
    waiting = threading.Thread(target=lambda: ended.append(final(notice)))
    ended: list[Status] = []
    waiting.start()
    end.qp.flush()
    waiting.join(WAIT)
    assert ended == [Status.SUCCESS]


def test_result_of_one_operation_in_several_threads(end: End) -> None:
    notice = end.cq.notify()
    ended: list[Status] = []
    threads = [threading.Thread(target=lambda: ended.append(final(notice))) for _ in range(4)]
    for thread in threads:
        thread.start()
    end.cq.cancel_overlapped_requests()
    for thread in threads:
        thread.join(WAIT)
    assert ended == [Status.CANCELED] * 4


def test_ctrl_c_ends_a_wait(end: End) -> None:
    notice = end.cq.notify()
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), 2))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at once
        timer.start()
        notice.result(timeout=WAIT)
    timer.join()
    assert not notice.done()


def test_waiting_costs_no_processor_time(end: End) -> None:
    notice = end.cq.notify()
    before = time.process_time()
    with pytest.raises(TimeoutError):
        notice.result(timeout=0.5)
    assert time.process_time() - before < 0.25, "it sleeps, it does not spin"


# OverlappedFile


def test_poll_delivers_each_operation_once_in_the_order_of_completion(end: End) -> None:
    queues = [end.new_cq() for _ in range(3)]
    notices = [cq.notify() for cq in queues]
    for number in (2, 0, 1):
        queues[number].cancel_overlapped_requests()
    assert end.file.poll() == [notices[2], notices[0], notices[1]]
    assert end.file.poll() == []


def test_poll_returns_at_most_max(end: End) -> None:
    notices = [end.cq.notify() for _ in range(5)]
    end.cq.cancel_overlapped_requests()
    assert end.file.poll(max=2) == notices[:2]
    assert end.file.poll(max=1) == notices[2:3]
    assert end.file.poll() == notices[3:]


def test_poll_delivers_immediate_completions_too(end: End) -> None:
    regions = [end.adapter.create_memory_region(overlapped_file=end.file) for _ in range(10)]
    buffer = end.adapter.allocate(8)
    submitted = [mr.register(buffer, LOCAL) for mr in regions]
    submitted += [mr.deregister() for mr in regions]
    delivered: list[Overlapped] = []
    while len(delivered) < 20:
        delivered += end.file.poll()
    assert delivered == submitted
    assert {overlapped.status for overlapped in delivered} == {Status.SUCCESS}
    assert all(isinstance(overlapped, Overlapped) for overlapped in delivered)


def test_poll_delivers_operations_after_their_result_too(end: End) -> None:
    notice = end.cq.notify()
    end.cq.cancel_overlapped_requests()
    assert final(notice) == Status.CANCELED
    assert end.file.poll() == [notice]


def test_poll_delivers_nothing_for_a_call_that_raised(end: End) -> None:
    mr = end.adapter.create_memory_region(overlapped_file=end.file)
    for call in (
        lambda: end.cq.notify(99),
        mr.deregister,
        lambda: mr.register(bytearray(), LOCAL).result(),
        end.connector.complete_connect,
    ):
        with pytest.raises(NdError):
            call()
    assert end.file.poll() == []


def test_poll_of_one_file_returns_no_operation_of_another(end: End) -> None:
    other = end.adapter.create_overlapped_file()
    cq = end.adapter.create_completion_queue(8, overlapped_file=other)
    notices = [end.cq.notify(), cq.notify()]
    end.cq.cancel_overlapped_requests()
    cq.cancel_overlapped_requests()
    assert other.poll() == [notices[1]]
    assert end.file.poll() == [notices[0]]


def test_poll_delivers_the_whole_handshake_of_a_connection(connected: Pair) -> None:
    assert connected.active.file.poll() == [connected.connecting, connected.completing]
    assert connected.passive.file.poll()[-1] == connected.accepting


def test_fileno_is_readable_while_there_is_something_to_poll(end: End) -> None:
    notice = end.cq.notify()
    end.file.poll()
    end.cq.cancel_overlapped_requests()
    assert select.select([end.file.fileno()], [], [], WAIT)[0]
    assert end.file.poll() == [notice]
    assert not select.select([end.file.fileno()], [], [], 0)[0]


@pytest.mark.active_end_here
def test_fileno_works_with_selectors_across_a_connection(connected: Pair) -> None:
    end = connected.active
    with selectors.DefaultSelector() as selector:
        selector.register(end.file.fileno(), selectors.EVENT_READ)
        end.file.poll()
        for number in range(5):
            end.qp.receive(None, number)
            notice = end.cq.notify()
            connected.passive.qp.send(None)
            delivered: list[Any] = []
            deadline = time.monotonic() + WAIT
            while notice not in delivered and time.monotonic() < deadline:
                selector.select(WAIT)
                delivered += end.file.poll()
            assert delivered == [notice]
            assert [c.request_context for c in end.reap()] == [number]


def test_close_of_a_file_before_its_objects(connected: Pair) -> None:
    end = connected.active
    notice = end.cq.notify()
    end.file.close()
    connected.passive.qp.receive(None)
    end.qp.send(None)
    assert len(end.reap()) == 1
    assert final(notice) == Status.SUCCESS
    assert final(end.connector.disconnect()) == Status.SUCCESS


# asyncio


@pytest.mark.active_end_here
def test_await_needs_no_helper_thread(connected: Pair) -> None:
    end = connected.active

    async def main() -> list[int]:
        threads = threading.active_count()
        for number in range(5):
            end.qp.receive(None, number)
            notice = end.cq.notify()
            connected.passive.qp.send(None)
            await asyncio.wait_for(notice, WAIT)
            assert threading.active_count() == threads
            assert notice.status == Status.SUCCESS
            end.gather()
        return [c.request_context for c in end.take()]

    assert asyncio.run(main()) == list(range(5))


def test_await_raises_the_error_of_the_operation(end: End) -> None:
    async def main() -> None:
        notice = end.cq.notify()
        asyncio.get_running_loop().call_soon(end.cq.cancel_overlapped_requests)
        with nd_error(Status.CANCELED):
            await notice
        with nd_error(Status.CANCELED):
            await notice

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_await_of_a_done_operation_completes_inline(end: End) -> None:
    mr = end.adapter.create_memory_region()
    done = mr.register(bytearray(8), LOCAL)
    done.result(timeout=WAIT)

    async def main() -> list[str]:
        order: list[str] = []
        asyncio.get_running_loop().call_soon(order.append, "the loop")
        await done
        order.append("the operation")
        await asyncio.sleep(0)
        return order

    assert asyncio.run(main()) == ["the operation", "the loop"]


def test_await_of_many_at_once(end: End) -> None:
    async def main() -> None:
        notices = [end.cq.notify() for _ in range(20)]

        async def one(notice: Any) -> None:
            await notice

        tasks = [asyncio.create_task(one(notice)) for notice in notices]
        await asyncio.sleep(0)
        end.qp.receive(None)
        end.qp.flush()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_await_survives_the_cancellation_of_its_task(end: End) -> None:
    async def main() -> None:
        notice = end.cq.notify()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(notice, 0.01)
        assert end.still_pending(notice), "cancelling the task does not cancel the operation"
        end.qp.receive(None)
        end.qp.flush()
        await asyncio.wait_for(notice, WAIT)

    asyncio.run(main())


def test_await_a_whole_connection(ends: Ends) -> None:
    pair = ends.pair("one")

    async def main() -> None:
        active, passive = pair.active, pair.passive
        address = passive.listen()
        waiting = passive.listener.get_connection_request(passive.connector)
        connecting = active.connector.connect(active.qp, address)
        await waiting
        accepting = passive.connector.accept(passive.qp)
        await connecting
        completing = active.connector.complete_connect()
        await asyncio.gather(*map(as_coroutine, (accepting, completing)))

    async def as_coroutine(overlapped: Any) -> None:
        await overlapped

    asyncio.run(asyncio.wait_for(main(), WAIT))
    pair.exchange()


# Behaviour that programs rely on


def test_ended_processes_complete_the_waits_for_them(ends: Ends, kill: Callable[[], int]) -> None:
    pair = ends.pair("two")
    pair.listen()
    connecting = pair.request()
    pair.offered()
    kill()
    assert final(connecting) == Status.CONNECTION_REFUSED


def test_disconnect_and_deregister_may_both_be_submitted_and_forgotten(connected: Pair) -> None:
    """The end of every sample program, which leaves the results unread."""
    end = connected.active
    buffer = end.memory(64)
    end.qp.receive(buffer.sge())
    end.connector.disconnect()
    buffer.mr.deregister()
    for owner in (buffer.mr, end.cq, end.qp, end.connector, end.file, end.adapter):
        owner.close()


def test_cancel_from_two_queues_comes_out_in_the_order_of_the_cancels(end: End) -> None:
    first, second = end.new_cq(), end.new_cq()
    one, other = first.notify(), second.notify()
    second.cancel_overlapped_requests()
    assert end.file.poll() == [other]
    first.cancel_overlapped_requests()
    assert end.file.poll() == [one]
