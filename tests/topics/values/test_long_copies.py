# SPDX-License-Identifier: Apache-2.0
"""Other threads run while long values are copied."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd.ipc.types import objects

PATIENCE = 20.0
LARGE = 96 << 20


@pytest.fixture
def rare_switches() -> Iterator[None]:
    """The interpreter asks no thread for the lock; those that release it let others run."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def _lets_others_run(act: Callable[[], Any]) -> bool:
    """Return whether another thread has run during a call, which has to release the lock."""
    begun, ended, ran = threading.Lock(), [False], [False]
    begun.acquire()

    def other() -> None:
        begun.acquire()  # wakes in the call, and gets the lock when that releases it
        ran[0] = not ended[0]

    thread = threading.Thread(target=other)
    thread.start()
    begun.release()
    act()
    ended[0] = True
    thread.join(PATIENCE)
    return ran[0]


@pytest.mark.usefixtures("rare_switches")
@pytest.mark.parametrize("in_band", [False, True])
def test_other_threads_run_while_a_long_object_is_written_and_read(in_band: bool) -> None:
    parts = objects.packed(bytes(LARGE) if in_band else np.ones(LARGE, "u1"))
    memory = memoryview(bytearray(objects.object_bytes(*parts)))
    assert any(_lets_others_run(lambda: objects.write_object(memory, *parts)) for _ in range(5))
    if in_band:
        assert any(_lets_others_run(lambda: objects._parts(memory)) for _ in range(5))
    assert objects._parts(memory) == (parts[0], parts[1])


@pytest.mark.usefixtures("rare_switches")
def test_a_call_that_holds_the_lock_lets_no_other_thread_run() -> None:
    """Otherwise the tests of this file would show nothing."""
    memory = memoryview(bytearray(LARGE))
    assert not any(_lets_others_run(lambda: bytes(memory)) for _ in range(5))


@pytest.mark.usefixtures("rare_switches")
def test_other_threads_run_while_long_bytes_are_copied_out(name: str) -> None:
    sent = np.random.default_rng(1).bytes(LARGE)
    with ipc.Publisher(name, bytes, history=1) as pub, ipc.Subscriber(name) as sub:
        pub.send(sent)
        with sub.receive(timeout=PATIENCE) as sample:
            assert sample.value == sent
            assert any(_lets_others_run(sample._bytes) for _ in range(5))
            assert any(_lets_others_run(lambda: sample.value) for _ in range(5))
        assert sub.held == 0


@pytest.mark.usefixtures("rare_switches")
def test_long_bytes_are_whole_while_another_thread_releases_their_sample(name: str) -> None:
    """It runs as soon as the copy lets others run, and has the slot taken again, if it is free."""
    nbytes, other = 32 << 20, bytes([255]) * (32 << 20)
    with ipc.Publisher(name, bytes, slots=3) as pub, ipc.Subscriber(name, buffer=1) as sub:
        pub.wait_for_subscribers(timeout=PATIENCE)

        def release_and_fill(sample: ipc.Sample, copying: threading.Lock) -> None:
            with copying:
                sample.release()
            with contextlib.suppress(ipc.LoanLimit):
                for _ in range(4):
                    pub.send(other)

        for number in range(10):
            pub.send(bytes([number]) * nbytes)
            sample, copying = sub.receive(timeout=PATIENCE), threading.Lock()
            copying.acquire()
            releasing = threading.Thread(target=release_and_fill, args=(sample, copying))
            releasing.start()
            copying.release()
            try:
                assert sample.value == bytes([number]) * nbytes
            except ipc.Closed:
                pass  # it was released before
            finally:
                releasing.join()
            while sub.try_receive() is not None:
                pass


@pytest.mark.parametrize("count", [10, 100_000, 3_000_000])
def test_pickles_of_any_length_arrive(name: str, count: int) -> None:
    value = {"text": "x" * count, "array": np.arange(count), "bytes": bytes(count)}
    with ipc.Publisher(name, object, history=2) as pub, ipc.Subscriber(name) as sub:
        pub.send(value)
        pub.send("y" * count)
        found = sub.receive(timeout=PATIENCE).value
        assert found["text"] == value["text"]
        assert found["bytes"] == value["bytes"]
        assert (found["array"] == value["array"]).all()
        assert not found["array"].flags.writeable
        assert sub.receive(timeout=PATIENCE).value == "y" * count
