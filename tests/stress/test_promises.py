# SPDX-License-Identifier: Apache-2.0
"""What the core promises beyond single calls: amounts, lives, deaths, threads, waiting."""

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmnd
from shmnd import MrFlag, NdError, Status

WAIT = 20.0
ALL = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE


class Ends:
    """Two connected queue pairs, of two adapters of this process."""

    def __init__(self, depth: int = 64, nbytes: int = 1 << 16) -> None:
        self.adapters = [shmnd.open_adapter(rnr_timeout=WAIT) for _ in range(2)]
        self.queues = [adapter.create_completion_queue(4 * depth) for adapter in self.adapters]
        self.pairs = [
            adapter.create_queue_pair(queue, queue, receive_depth=depth, initiator_depth=depth)
            for adapter, queue in zip(self.adapters, self.queues, strict=True)
        ]
        self.buffers = [adapter.allocate(nbytes) for adapter in self.adapters]
        self.regions = [adapter.create_memory_region() for adapter in self.adapters]
        for region, buffer in zip(self.regions, self.buffers, strict=True):
            region.register(buffer, ALL).result(WAIT)
        self.connectors = connect(*self.adapters, *self.pairs)

    def close(self) -> None:
        for adapter in self.adapters:
            adapter.close()
        self.__dict__.clear()  # a fixture's value outlives the check for leftovers


def connect(
    active: shmnd.Adapter, passive: shmnd.Adapter, left: shmnd.QueuePair, right: shmnd.QueuePair
) -> list[shmnd.Connector]:
    listener = passive.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    asking, answering = active.create_connector(), passive.create_connector()
    request = listener.get_connection_request(answering)
    answer = asking.connect(left, listener.get_local_address(), 8, 8)
    request.result(WAIT)
    accepted = answering.accept(right, 8, 8)
    answer.result(WAIT)
    asking.complete_connect().result(WAIT)
    accepted.result(WAIT)
    return [asking, answering]


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


@pytest.mark.usefixtures("no_collections")
def test_a_hundred_thousand_registrations_live_at_once() -> None:
    with shmnd.open_adapter() as adapter:
        buffer = adapter.allocate(4096)
        regions = []
        for number in range(100_000):
            region = adapter.create_memory_region()
            region.register(buffer, ALL if number % 10 == 0 else MrFlag.ALLOW_LOCAL_WRITE)
            regions.append(region)
        assert len({region.local_token for region in regions}) == 100_000
        for region in regions:
            region.deregister().result(WAIT)


def test_memory_outlives_its_adapter() -> None:
    adapter = shmnd.open_adapter()
    whole = adapter.allocate(1 << 21)
    small = adapter.allocate(100)
    view = whole[1000:2000]
    view[:] = 7
    small[:] = 9
    del whole
    adapter.close()
    del adapter
    gc.collect()
    assert view.sum() == 7000
    assert small.sum() == 900


def test_memory_is_given_back_when_the_last_view_is_gone() -> None:
    with shmnd.open_adapter() as adapter:
        adapter.allocate(64)
        before = _shared_memory_held()
        array = adapter.allocate(64 << 20)
        assert _shared_memory_held() - before >= 64 << 20
        del array
        gc.collect()
        assert _shared_memory_held() - before < 1 << 20


def _shared_memory_held() -> int:
    """Bytes of segments that this process maps or has a descriptor of."""
    held = {}
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and str(entry.readlink()).startswith("/memfd:shmnd-"):
            found = entry.stat()
            held[found.st_ino] = found.st_blocks * 512
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/memfd:shmnd-" in line:
            span, _, _, _, inode = line.split()[:5]
            start, stop = (int(end, 16) for end in span.split("-"))
            held.setdefault(int(inode), stop - start)
    return sum(held.values())


def test_allocations_reuse_freed_memory_and_are_zero() -> None:
    with shmnd.open_adapter() as adapter:
        seen = set()
        for _ in range(10_000):
            array = adapter.allocate(300)
            assert not array.any()
            array[:] = 255
            seen.add(array.ctypes.data)
        assert len(seen) < 10


def test_nothing_of_shared_memory_has_a_name(ends: Ends) -> None:
    assert not list(Path("/dev/shm").glob(f"shmnd-{os.getuid()}-*"))


def _sent(ends: Ends, sge: shmnd.Sge, context: object) -> bool:
    """Send, unless the queue is full."""
    try:
        ends.pairs[0].send(sge, context)
    except BlockingIOError:
        return False
    return True


def test_threads_share_a_queue_pair(ends: Ends) -> None:
    count, threads = 500, 4
    region, sink = ends.regions
    for _ in range(64):
        ends.pairs[1].receive(sink.sge(0, 64), "posted")
    sent: list[Any] = []
    taking = threading.Lock()  # or one thread notes its results after later ones

    def send(number: int) -> None:
        for message in range(count):
            while not _sent(ends, region.sge(number * 8, 8), (number, message)):
                with taking:
                    sent.extend(ends.queues[0].get_results())

    workers = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    got = 0
    while got < count * threads:
        results = ends.queues[1].wait(64, WAIT)
        assert results
        for result in results:
            assert result.status is Status.SUCCESS
            ends.pairs[1].receive(sink.sge(0, 64), "posted")
        got += len(results)
    for worker in workers:
        worker.join(WAIT)
    while len(sent) < count * threads:
        results = ends.queues[0].wait(64, WAIT)
        assert results
        sent.extend(results)
    contexts = [result.request_context for result in sent]
    assert len(set(contexts)) == count * threads
    for number in range(threads):  # each thread's own order is kept
        mine = [message for thread, message in contexts if thread == number]
        assert mine == sorted(mine)


def test_threads_wait_on_one_queue(ends: Ends) -> None:
    region, sink = ends.regions
    got: list[Any] = []

    def take() -> None:
        got.extend(ends.queues[1].wait(1, WAIT))

    workers = [threading.Thread(target=take) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(3):
        ends.pairs[1].receive(sink.sge(0, 8), number)
        ends.pairs[0].send(region.sge(0, 8))
    for worker in workers:
        worker.join(WAIT)
    assert sorted(result.request_context for result in got) == [0, 1, 2]


def test_wait_is_interrupted_by_ctrl_c(ends: Ends) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at once
            timer.start()
            ends.queues[0].wait(1, WAIT)
    finally:
        timer.join()
    region, sink = ends.regions
    ends.pairs[1].receive(sink.sge(0, 8), "after")
    ends.pairs[0].send(region.sge(0, 8))
    assert ends.queues[1].wait(1, WAIT)[0].request_context == "after"


@pytest.mark.slow
def test_wait_costs_nothing_while_nothing_comes(ends: Ends) -> None:
    before = time.process_time()
    assert ends.queues[0].wait(1, 2.0) == []
    # No limit on speed: two seconds of looking would be two seconds of processor time.
    assert time.process_time() - before < 0.5


def test_a_window_of_zero_sleeps_at_once_and_still_wakes(ends: Ends) -> None:
    region, sink = ends.regions
    ends.queues[1].spin = 0.0
    ends.pairs[1].receive(sink.sge(0, 8), "woken")
    timer = threading.Timer(0.1, ends.pairs[0].send, (region.sge(0, 8),))
    timer.start()
    assert ends.queues[1].wait(1, WAIT)[0].request_context == "woken"
    timer.join()


def test_a_message_larger_than_any_slot_goes_through_one_posted_receive(ends: Ends) -> None:
    adapter = ends.adapters[0]
    big = np.arange(3_000_001, dtype=np.uint32).view(np.uint8)
    private = adapter.create_memory_region()
    private.register(big).result(WAIT)  # private and source only
    sink = np.zeros(big.nbytes, np.uint8)
    target = ends.adapters[1].create_memory_region()
    target.register(sink, MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
    ends.pairs[1].receive(target.sge(), "big")
    ends.pairs[0].send(private.sge(), "out")
    received = ends.queues[1].wait(1, WAIT)
    assert received[0].bytes_transferred == big.nbytes
    assert ends.queues[0].wait(1, WAIT)[0].status is Status.SUCCESS
    assert (sink == big).all()


def test_a_send_whose_receive_is_posted_needs_no_call_of_its_target(ends: Ends) -> None:
    for size in (1, 1000, 5000, 200_000, 2_000_000):
        source, sink = (adapter.allocate(size) for adapter in ends.adapters)
        source[:] = 123
        near, far = (adapter.create_memory_region() for adapter in ends.adapters)
        near.register(source).result(WAIT)
        far.register(sink, MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        ends.pairs[1].receive(far.sge(), size)
        ends.pairs[0].send(near.sge(), size)
        sent = ends.queues[0].wait(1, WAIT)
        assert sent[0].request_context == size
        assert ends.queues[1].get_results()[0].bytes_transferred == size
        assert (sink == 123).all()


# -- other processes ---------------------------------------------------------------------------


def _mirror(pipe: Connection) -> None:
    """A process that accepts, posts receives, and then sleeps until it is killed."""
    adapter = shmnd.open_adapter()
    queue = adapter.create_completion_queue(64)
    pair = adapter.create_queue_pair(queue, queue)
    sink = adapter.allocate(1 << 20)
    region = adapter.create_memory_region()
    region.register(sink, ALL).result(WAIT)
    for _ in range(4):
        pair.receive(region.sge(), None)
    listener = adapter.create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    pipe.send(listener.get_local_address())
    connector = adapter.create_connector()
    listener.get_connection_request(connector).result(WAIT)
    connector.accept(pair, 8, 8).result(WAIT)
    pipe.send((region.address, region.remote_token))
    pipe.recv()


@pytest.mark.crash
@pytest.mark.parametrize("how", ["poll", "wait"])
def test_a_dead_peer_ends_only_the_waits_for_it(ends: Ends, how: str) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_mirror, args=(there,), daemon=True)
    process.start()
    there.close()
    adapter = ends.adapters[0]
    try:
        assert here.poll(WAIT)
        address = here.recv()
        queue = adapter.create_completion_queue(64)
        pair = adapter.create_queue_pair(queue, queue, context="doomed")
        connector = adapter.create_connector()
        connector.connect(pair, address, 8, 8).result(WAIT)
        connector.complete_connect().result(WAIT)
        notice = connector.notify_disconnect()
        assert here.poll(WAIT)
        here.recv()
        region = ends.regions[0]
        for number in range(6):  # four meet a receive, two wait for one
            pair.send(region.sge(0, 16), number)
        pair.receive(region.sge(), "in vain")
        os.kill(process.pid, signal.SIGKILL)
        got: list[Any] = []
        deadline = time.monotonic() + WAIT
        while len(got) < 7:
            assert time.monotonic() < deadline
            got += queue.get_results() if how == "poll" else queue.wait(8, 1.0)
        ended = {result.request_context: result.status for result in got}
        assert [ended[number] for number in range(6)] == [
            Status.SUCCESS,
            Status.SUCCESS,
            Status.SUCCESS,
            Status.SUCCESS,
            Status.IO_TIMEOUT,
            Status.CANCELED,
        ]
        assert ended["in vain"] is Status.CANCELED
        notice.result(WAIT)
        sink = ends.regions[1]
        ends.pairs[1].receive(sink.sge(0, 8), "undisturbed")
        ends.pairs[0].send(region.sge(0, 8))
        assert ends.queues[1].wait(1, WAIT)[0].request_context == "undisturbed"
    finally:
        process.kill()
        process.join(WAIT)
        process.close()
        here.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_harms_nothing(ends: Ends) -> None:
    notice = ends.connectors[0].notify_disconnect()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (
            lambda: ends.pairs[0].send(None),
            lambda: ends.pairs[0].receive(None),
            lambda: ends.queues[0].get_results(),
            lambda: ends.adapters[0].allocate(8),
        ):
            try:
                call()
                said.append("no error")
            except NdError as err:
                said.append(f"{err.status.name} {'fork' in str(err)}")
        ends.close()
        os.write(write, ",".join(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        assert answers.read() == ",".join(["DEVICE_REMOVED True"] * 4)
    os.waitpid(child, 0)
    region, sink = ends.regions
    ends.pairs[1].receive(sink.sge(0, 8), "still here")
    ends.pairs[0].send(region.sge(0, 8))
    assert ends.queues[1].wait(1, WAIT)[0].request_context == "still here"
    assert not notice.done()
