# SPDX-License-Identifier: Apache-2.0
"""Topics at their bounds: subscribers, slots, and memory that shrinks."""

import contextlib
import multiprocessing
import os
import resource
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd.ipc.topic import publisher

PATIENCE = 60.0


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


def values(sub: ipc.Subscriber) -> list[int]:
    return [int(sample.array.flat[0]) for sample in iter(sub.try_receive, None)]


# -- descriptors --


def _receive_without_descriptors(name: str, overflow: str, steps: Any) -> None:
    """Fail to map the memory of samples for want of descriptors; then free some, and receive."""
    with ipc.Subscriber(name, "i8", overflow=overflow) as sub:
        assert sub.publishers == 1
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        steps.send("no descriptor is free")
        assert steps.poll(PATIENCE)  # the samples are sent
        for _ in range(1000):  # more than the broker keeps for a publisher that makes no call
            with pytest.raises(MemoryError, match=r"no descriptor was free .*ulimit -n"):
                sub.receive(PATIENCE)
            assert sub.ready()
        for descriptor in taken:
            os.close(descriptor)
        received = [sub.receive(PATIENCE) for _ in range(3)]
        assert [sample.sequence for sample in received] == [0, 1, 2]
        assert [int(sample.array[-1]) for sample in received] == [0, 1, 2]
        assert sub.lost == 0


def _send_to_a_child(name: str, receive: Callable[..., None], *arguments: str) -> None:
    """Send three samples, each in new memory, to a forked subscriber that has reported once."""
    fork = multiprocessing.get_context("fork")
    steps, theirs = fork.Pipe()
    child = fork.Process(target=receive, args=(name, *arguments, theirs))
    with steps, theirs, ipc.Publisher(name, "i8") as pub:
        child.start()
        try:
            pub.wait_for_subscribers(timeout=PATIENCE)
            assert steps.poll(PATIENCE)
            for number in range(3):
                pub.send(np.full(10_000 << number, number))
            steps.send("the samples are sent")
            child.join(PATIENCE)
            assert child.exitcode == 0
        finally:
            child.kill()
            child.join(PATIENCE)
            child.close()


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
def test_a_sample_waits_for_a_free_descriptor(name: str, overflow: str) -> None:
    _send_to_a_child(name, _receive_without_descriptors, overflow)


def _receive_where_no_socket_can_be_polled(name: str, steps: Any) -> None:
    """Fail to ask the broker for the memory of a sample, by an error of the system."""
    with ipc.Subscriber(name, "i8", overflow="block") as sub:
        assert sub.publishers == 1
        steps.send("it has met the publisher")
        assert steps.poll(PATIENCE)  # the samples are sent
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        with pytest.raises(OSError, match="Invalid argument"):
            sub.receive(PATIENCE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert [sub.receive(PATIENCE).sequence for _ in range(3)] == [0, 1, 2]
        assert sub.lost == 0


def test_a_sample_is_kept_where_a_system_call_fails(name: str) -> None:
    _send_to_a_child(name, _receive_where_no_socket_can_be_polled)


# -- subscribers --


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
def test_one_subscriber_too_many(name: str, overflow: str) -> None:
    with ipc.Publisher(name, "i8", max_subscribers=2) as pub:
        one, two = ipc.Subscriber(name), ipc.Subscriber(name)
        with pytest.raises(ipc.LoanLimit, match=r"2 subscribers, which is max_subscribers"):
            ipc.Subscriber(name, overflow=overflow)
        assert pub.subscribers == 2
        one.close()
        with ipc.Subscriber(name, overflow=overflow) as three:
            assert pub.subscribers == 2
            pub.send(np.full(100, 5))
            assert values(two) == values(three) == [5]
        two.close()


def test_one_that_was_refused_gets_the_next_seat(name: str) -> None:
    # They are there before the publisher: none of them can learn of it as it is made.
    one, two = ipc.Subscriber(name), ipc.Subscriber(name)
    with ipc.Publisher(name, "i8", max_subscribers=1) as pub:
        assert pub.subscribers == 1
        refused = []
        for sub in (one, two):
            try:
                sub.receive(timeout=0)
            except ipc.LoanLimit:
                refused.append(sub)
            except TimeoutError:
                pass
        assert len(refused) == 1
        (late,) = refused
        assert late.ready()
        (one if late is two else two).close()
        assert pub.subscribers == 1
        pub.send(np.full(100, 7))
        assert late.receive(timeout=PATIENCE).array[0] == 7
        late.close()


# -- slots --


def test_few_slots_are_enough_without_a_subscriber(name: str) -> None:
    for slots in (1, 3):
        with ipc.Publisher(name, "i8", slots=slots, history=2) as pub:
            for number in range(50):
                pub.send(np.full(1000, number))
            with ipc.Subscriber(name) as sub:
                assert values(sub) == [48, 49]


def test_a_slow_subscriber_that_drops_stops_no_publisher(name: str) -> None:
    with ipc.Publisher(name, "i8", slots=4) as pub, ipc.Subscriber(name, buffer=32) as sub:
        assert pub.subscribers == 1
        for number in range(100):
            pub.send(np.full(1000, number))
        found = values(sub)
        assert found == list(range(100 - len(found), 100))
        assert 1 <= len(found) <= 4
        assert sub.lost == 100 - len(found)
        pub.send(np.full(1000, 100))
        held = sub.receive(timeout=0)
        for number in range(101, 200):
            pub.send(np.full(1000, number))
        assert held.array[0] == held.array[-1] == 100


def test_slots_that_a_subscriber_waits_for_are_not_given_up(name: str) -> None:
    with (
        ipc.Publisher(name, "i8", slots=4) as pub,
        ipc.Subscriber(name, buffer=32, overflow="block") as sub,
    ):
        assert pub.subscribers == 1
        for number in range(4):
            pub.send(np.full(1000, number))
        with pytest.raises(ipc.LoanLimit, match="all 4 slots"):
            pub.send(np.full(1000, 4))
        assert values(sub) == [0, 1, 2, 3]


def test_slots_of_another_size_make_room(name: str) -> None:
    with ipc.Publisher(name, "u1", slots=2) as pub, ipc.Subscriber(name, buffer=1) as sub:
        assert pub.subscribers == 1
        for size in (1000, 100_000, 100, 1_000_000, 5000, 1000):
            pub.send(np.full(size, size % 251, "u1"))
            with sub.receive(timeout=0) as sample:
                assert sample.array.shape == (size,)
                assert (sample.array == size % 251).all()


# -- memory --


def test_memory_shrinks_when_it_is_not_used(name: str) -> None:
    with ipc.Publisher(name, "u1") as pub, ipc.Subscriber(name, buffer=4) as sub:
        assert pub.subscribers == 1
        pub.send(np.full(1_000_000, 7, "u1"))
        kept = sub.receive(timeout=0).array
        for number in range(20):
            pub.send(np.full(3_000_000 + number, number, "u1"))
        large = pub._pool_bytes
        assert large >= 4 * 3_000_000
        for _ in range(3):
            for number in range(20):
                pub.send(np.full(1000, number, "u1"))
            values(sub)
            pub._shrink(2)
        assert 1_000_000 <= pub._pool_bytes <= 1_000_000 * 1.25 + (1 << 20), "held samples stay"
        assert (kept == 7).all()
        del kept
        pub._shrink(0)
        assert pub._pool_bytes <= 1 << 20
        for number in range(20):  # numbers of slots are used again
            pub.send(np.full(3_000_000, number, "u1"))
            with sub.receive(timeout=0) as sample:
                assert (sample.array == number).all()
        assert pub._slot_count < 20


def burst(pub: ipc.Publisher, sub: ipc.Subscriber) -> None:
    for number in range(20):
        pub.send(np.full(1_000_000, number, "u1"))
    assert len(values(sub)) == 16
    assert pub._pool_bytes >= 16_000_000


def test_an_idle_publisher_gives_memory_back_by_shrink(name: str) -> None:
    with ipc.Publisher(name, "u1") as pub, ipc.Subscriber(name, buffer=16) as sub:
        assert pub.subscribers == 1
        burst(pub, sub)
        pub.shrink()
        assert pub._pool_bytes == 0
        burst(pub, sub)
        pub.send(np.full(1_000_000, 7, "u1"))
        pub.shrink()
        assert 1_000_000 <= pub._pool_bytes < 2_000_000, "a sample that waits stays"
        assert (sub.receive(timeout=0).array == 7).all()
    with pytest.raises(ipc.Closed, match=r"Publisher\.shrink"):
        pub.shrink()


def test_samples_without_a_subscriber_are_given_back_but_for_the_history(name: str) -> None:
    for history in (0, 3):
        with ipc.Publisher(f"{name}/{history}", "u1", history=history) as pub:
            for number in range(12):
                pub.send(np.full(1_000_000, number, "u1"))
            pub.shrink()
            assert pub._pool_bytes // 1_000_000 == history
            with ipc.Subscriber(f"{name}/{history}") as sub:
                assert (values(sub), sub.lost) == (list(range(12 - history, 12)), 0)


def test_an_idle_publisher_gives_memory_back_when_its_last_subscriber_leaves(name: str) -> None:
    with ipc.Publisher(name, "u1") as pub:
        with ipc.Subscriber(name, buffer=16) as sub:
            assert pub.subscribers == 1
            burst(pub, sub)
        assert pub.subscribers == 0
        assert pub._pool_bytes <= 8_000_000 * 1.25, "those of one that is about to be met stay"


def test_any_call_after_a_pause_gives_memory_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ipc.Publisher(name, "u1") as pub, ipc.Subscriber(name, buffer=16) as sub:
        assert pub.subscribers == 1
        burst(pub, sub)
        later = time.monotonic() + 10
        monkeypatch.setattr(publisher.time, "monotonic", lambda: later)
        assert pub.subscribers == 1
        assert pub._pool_bytes == 0


def test_shrinking_does_not_free_loaned_slots(name: str) -> None:
    with ipc.Publisher(name, "u1") as pub, ipc.Subscriber(name) as sub:
        assert pub.subscribers == 1
        loan = pub.loan(100_000)
        for _ in range(5):
            pub._shrink(0)
        loan.array[:] = 9
        spent = loan.array
        loan.send()
        pub._shrink(0)
        with sub.receive(timeout=0) as sample:
            assert (sample.array == 9).all()
        for _ in range(30):
            pub.send(np.zeros(5, "u1"))
        pub._shrink(0)
        assert len(spent) == 100_000
        assert (spent[:10] >= 0).all()  # whatever it shows, it can be read


@pytest.mark.parametrize("header", [b"", b"h" * 64, b"h" * 200, b"h" * 5000])
def test_a_header_comes_on_top_of_the_largest_sample(name: str, header: bytes) -> None:
    with ipc.Publisher(name, "u1", max_sample=5000, slots=4) as pub, ipc.Subscriber(name) as sub:
        assert pub.subscribers == 1
        loan = pub.loan(5000)
        others = pub.loan(5000)
        others.array[:] = 1
        loan.array[:] = 2
        loan.send(header)
        pub.send(np.full(5000, 3, "u1"), header)
        assert (others.array == 1).all()
        for number in (2, 3):
            with sub.receive(timeout=0) as sample:
                assert (sample.array == number).all()
                assert sample.header == (header or None)


def test_threads_that_make_memory_keep_to_the_bound(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ipc.Publisher(name, "u1", slots=2) as pub:
        allocate, others = pub._adapter.allocate_segment, [1, 2, 3]

        def allocate_beside_others(*args: Any, **options: Any) -> object:
            if others:  # as another thread does while this one waits for the broker
                with contextlib.suppress(ipc.LoanLimit):
                    loans.append(pub.loan(others.pop() << 20))
            return allocate(*args, **options)

        loans: list[ipc.Loan] = []
        monkeypatch.setattr(pub._adapter, "allocate_segment", allocate_beside_others)
        loans.append(pub.loan(1 << 20))
        assert (len(loans), pub.loans) == (2, 2)
        del loans[:]


def test_new_memory_that_another_thread_takes_is_made_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ipc.Publisher(name, "u1") as pub:
        grow, taken = type(pub)._grow, []

        def grow_for_others(self: ipc.Publisher, number: int) -> bool:
            made = grow(self, number)
            if len(taken) < 3:  # as another thread does while memory is made
                taken.append(None)
                taken.append(self.loan(1 << 20))
            return made

        monkeypatch.setattr(type(pub), "_grow", grow_for_others)
        with pub.loan(1 << 20) as loan:
            loan.array[:] = 1
            assert loan.send() == 0
        assert len(taken) == 4
        del taken[:]
