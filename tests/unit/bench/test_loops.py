# SPDX-License-Identifier: Apache-2.0
"""The benchmark's loops do what their figures claim: nothing skipped, nothing left over.

A fake connection stands in for the real one. It is strict where a real one would only become
slower: it counts completions that were not taken, and refuses requests that exceed the queues.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from shmnd import RequestType, Status
from shmnd_bench.loops import bandwidth, flow, latency
from shmnd_bench.loops.lane import MARKS, Depths, check
from shmnd_bench.measure.question import Kind, Question
from shmnd_bench.measure.reading import Stamps, intervals, make_stamps

Loop = Callable[..., None]

RATES: tuple[Loop, ...] = (bandwidth.stream,)
"""Loops that do exactly as many rounds as requested, without stamps."""


@pytest.fixture(autouse=True)
def _quick_turns() -> Iterator[None]:
    """Both ends spin here in one interpreter; let neither keep it for long."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Queue:
    """A completion queue."""

    def __init__(self) -> None:
        self.results: deque[SimpleNamespace] = deque()
        self.taken = 0

    def add(self, request_type: RequestType, status: Status = Status.SUCCESS) -> None:
        self.results.append(
            SimpleNamespace(request_type=request_type, status=status, queue_pair_context=0)
        )

    def get_results(self, most: int = 64) -> list[SimpleNamespace]:
        found = []
        while self.results and len(found) < most:
            found.append(self.results.popleft())
        self.taken += len(found)
        return found

    def wait(self, most: int = 64) -> list[SimpleNamespace]:
        deadline = time.monotonic() + 30
        while not self.results:
            assert time.monotonic() < deadline, "nothing came"
            time.sleep(0)
        return self.get_results(most)

    def wait_one(self) -> SimpleNamespace:
        return self.wait(1)[0]


class QueuePair:
    """One end of a fake connection; a Send needs a posted Receive at the other end."""

    def __init__(self, depths: Depths, lock: threading.Lock) -> None:
        self.receive_cq, self.initiator_cq = Queue(), Queue()
        self.depths = depths
        self.posted = self.sends = self.received = self.writes = 0
        self.other: QueuePair = self
        self.inbox = bytearray(8)
        self.outbox = bytearray(8)
        self._waiting = 0
        self._lock = lock

    def receive(self, sge: object) -> None:
        with self._lock:
            self.received += 1
            self.posted += 1
            outstanding = self.posted + len(self.receive_cq.results)
            assert outstanding <= self.depths.receives, "more Receives than the queue holds"
            self.other._match()

    def send(self, sge: object) -> None:
        with self._lock:
            self.sends += 1
            self._waiting += 1
            outstanding = self.sends + self.writes - self.initiator_cq.taken
            assert outstanding <= self.depths.sends, "more Sends than the queue holds"
            self._match()

    def write(self, sge: object, address: int, token: int) -> None:
        assert (address, token) == (4711, 42)
        with self._lock:
            self.writes += 1
            self.other.inbox[:] = self.outbox
            self.initiator_cq.add(RequestType.WRITE)

    def _match(self) -> None:
        while self._waiting and self.other.posted:
            self._waiting -= 1
            self.other.posted -= 1
            self.other.receive_cq.add(RequestType.RECEIVE)
            self.initiator_cq.add(RequestType.SEND)


class Polled:
    """Memory that a loop reads until it changes; each read lets the other end run.

    Without that, whichever end spins keeps the interpreter, and a round takes milliseconds.
    """

    def __init__(self, memory: bytearray) -> None:
        self._memory = memory

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, index: int) -> int:
        time.sleep(0)
        return self._memory[index]


class FakeLane:
    """What the loops know of a lane."""

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.depths = qp.depths
        self.receive_cq, self.initiator_cq = qp.receive_cq, qp.initiator_cq
        self.arrived, self.arrival = self.receive_cq.wait, self.receive_cq.wait_one
        self.send, self.write = qp.send, qp.write
        self.outgoing, self.incoming = object(), object()
        self.remote_address, self.remote_token = 4711, 42
        self.inbox = SimpleNamespace(data=Polled(qp.inbox))
        self.outbox = SimpleNamespace(data=memoryview(qp.outbox))
        self.written = 0
        for _ in range(self.depths.receives):
            qp.receive(self.incoming)

    def first_mark(self, count: int) -> int:
        first = self.written % MARKS + 1
        self.written += count
        return first


def connect(depths: Depths) -> tuple[FakeLane, FakeLane]:
    lock = threading.Lock()
    client, server = QueuePair(depths, lock), QueuePair(depths, lock)
    client.other, server.other = server, client
    return FakeLane(client), FakeLane(server)


def run_both(loop: Loop, lanes: tuple[FakeLane, FakeLane], count: int) -> Stamps:
    """Run a loop at both ends, as the two processes of a benchmark do."""
    stamps = make_stamps(count)
    given: tuple[Any, ...] = () if loop in RATES else (stamps,)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            loop(lanes[1], count, False, *given)
        except BaseException as exc:
            failures.append(exc)

    server = threading.Thread(target=serve)
    server.start()
    loop(lanes[0], count, True, *given)
    server.join(10)
    assert not failures
    assert not server.is_alive()
    return stamps


def assert_clean(lanes: tuple[FakeLane, FakeLane]) -> None:
    for lane in lanes:
        assert not lane.receive_cq.results, "a Receive completed and was not taken"
        assert not lane.initiator_cq.results, "a request completed and was not taken"
        assert lane.qp.posted == lane.depths.receives, "a Receive was not posted again"


def assert_rounds(stamps: Stamps, count: int) -> None:
    """Every round has a time, none of them runs backwards."""
    assert list(stamps) == sorted(stamps)
    assert stamps[0] > 0
    assert intervals(stamps).total() == count


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_pingpong_sends_and_reaps_everything(count: int) -> None:
    lanes = connect(Depths(8, 8))
    for runs in (1, 2):
        stamps = run_both(latency.pingpong, lanes, count)
        assert_rounds(stamps, count)
        assert_clean(lanes)
        for lane in lanes:
            assert lane.qp.sends == lane.initiator_cq.taken == runs * (count + 1)
            assert lane.receive_cq.taken == runs * (count + 1)


@pytest.mark.parametrize("count", [1, 2, MARKS, MARKS + 1, 600])
def test_write_pingpong_writes_and_reaps_everything(count: int) -> None:
    lanes = connect(Depths(8, 8))
    for runs in (1, 2, 3):
        assert_rounds(run_both(latency.write_pingpong, lanes, count), count)
        assert_clean(lanes)
        for lane in lanes:
            assert lane.qp.writes == lane.initiator_cq.taken == runs * (count + 1)
            assert lane.qp.sends == 0


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 1000])
def test_stream_goes_one_way_and_is_acknowledged(count: int) -> None:
    lanes = client, server = connect(Depths(32, 16))
    for runs in (1, 2):
        run_both(bandwidth.stream, lanes, count)
        assert_clean(lanes)
        assert client.qp.sends == client.initiator_cq.taken == runs * count
        assert server.receive_cq.taken == runs * count
        assert server.qp.sends == client.receive_cq.taken == runs


def test_a_stream_waits_for_receives_rather_than_overrun_the_queue() -> None:
    lanes = connect(Depths(2, 16))
    run_both(bandwidth.stream, lanes, 200)
    assert_clean(lanes)


@pytest.mark.parametrize("receives", [1, 3, 6])
@pytest.mark.parametrize("sends", [1, 4])
def test_a_sender_with_credit_left_waits_for_none(sends: int, receives: int) -> None:
    """All its Sends complete in one look, behind a look that shows nothing."""
    lanes = client, _ = connect(Depths(receives, sends))
    look, looks = client.initiator_cq.get_results, 0

    def look_in_vain_first(most: int = 64) -> list[SimpleNamespace]:
        nonlocal looks
        looks += 1
        return look(most) if looks % 2 == 0 else []

    client.initiator_cq.get_results = look_in_vain_first  # type: ignore[method-assign]

    def stream(lane: FakeLane, count: int, first: bool, _: Stamps) -> None:
        flow.stream([lane], credit=True)(count, first)  # type: ignore[list-item]

    for count in (1, 2, 30):
        run_both(stream, lanes, count)
        assert_clean(lanes)


def test_the_word_that_all_is_there_may_overtake_credits_of_other_lanes() -> None:
    queue, done = Queue(), Queue()
    sent: list[int] = []

    def lane(place: int) -> SimpleNamespace:
        def send(_: object) -> None:
            sent.append(place)
            done.add(RequestType.SEND)
            done.results[-1].queue_pair_context = place

        return SimpleNamespace(
            qp=SimpleNamespace(receive=lambda _: None),
            depths=Depths(2, 2),
            receive_cq=queue,
            initiator_cq=done,
            arrived=queue.wait,
            send=send,
            outgoing=object(),
            incoming=object(),
        )

    # Each Send is worth a credit; the first of these messages is not a credit at all.
    for place in (0, 0, 0, 1):
        queue.add(RequestType.RECEIVE)
        queue.results[-1].queue_pair_context = place
    flow.stream([lane(0), lane(1)], credit=True)(3, True)  # type: ignore[list-item]
    assert sent == [0, 0, 1]
    assert not queue.results
    assert not done.results


def test_a_failed_completion_ends_the_benchmark() -> None:
    failed = SimpleNamespace(request_type=RequestType.SEND, status=Status.IO_TIMEOUT)
    good = SimpleNamespace(request_type=RequestType.SEND, status=Status.SUCCESS)
    assert check([good, good]) == 2  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="a SEND ended with IO_TIMEOUT"):
        check([good, failed])  # type: ignore[list-item]


@pytest.mark.parametrize("loop", [latency.pingpong, bandwidth.stream])
def test_a_failed_receive_ends_the_benchmark(loop: Loop) -> None:
    _, server = connect(Depths(8, 8))
    server.qp.posted -= 1
    server.receive_cq.add(RequestType.RECEIVE, Status.CANCELED)
    with pytest.raises(RuntimeError, match="a RECEIVE ended with CANCELED"):
        loop(server, 1, False, *(() if loop in RATES else (None,)))


def test_depths_fit_into_their_queues() -> None:
    for kind in Kind:
        for size in (8, 65536):
            depths = Depths.of(Question(kind, size))
            assert depths.receives >= depths.sends, "a sender would wait for Receives"
    assert Depths.of(Question(Kind.PINGPONG, 40, idle=10)).by_default


class Clock:
    """Time that passes only where a test lets it."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


@pytest.mark.parametrize(
    "loop", [latency.paced_pingpong, latency.paced_write_pingpong, latency.paced_read]
)
def test_a_stall_counts_for_all_that_were_due_meanwhile(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand turns a second; the fourth takes 5 ms, so the next five begin late."""
    clock, count, turns = Clock(), 12, 0
    monkeypatch.setattr(latency, "clock_ns", clock)
    client, _ = connect(Depths(8, 8))

    def answer(*_: object) -> None:
        nonlocal turns
        turns += 1
        clock.now += 5_000_000 if turns == 4 else 1_000
        client.qp.inbox[:] = client.qp.outbox
        if loop is latency.paced_pingpong:
            client.receive_cq.add(RequestType.RECEIVE)
        client.initiator_cq.add(RequestType.SEND)

    client.send = client.write = client.qp.read = answer  # type: ignore[attr-defined]
    client.qp.receive = client.qp.send = lambda sge: None  # type: ignore[method-assign,assignment]
    monkeypatch.setattr("shmnd_bench.loops.latency.send_acknowledgement", lambda lane: None)
    times = make_stamps(count)
    loop(client, count, 1000.0, times)
    assert turns == count + 1
    assert [round(time / 1e6) for time in times] == [0, 0, 0, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0]
