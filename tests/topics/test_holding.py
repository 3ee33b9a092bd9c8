# SPDX-License-Identifier: Apache-2.0
"""Memory that is held is never reused: samples of a subscriber, counted and valid after the end of
both sides, and loans with views, buffers and capsules of their arrays.
"""

import asyncio
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from topics.taking import PATIENCE


def test_held_memory_is_never_reused(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    kept = []
    for round_ in range(100):
        pub.send(np.full(1000, float(round_)))
        sample = sub.receive(timeout=PATIENCE)
        if round_ % 3 == 0:
            kept.append((round_, sample.array))
        sample.release()
    assert sub.held == len(kept)
    for round_, array in kept:
        assert array[0] == array[-1] == round_
    del array
    kept.clear()
    assert sub.held == 0


def test_loops_hold_no_sample_that_was_dropped(name: str) -> None:
    with ipc.Publisher(name, "u1") as pub, ipc.Subscriber(name, max_held=1) as sub:
        pub.wait_for_subscribers(timeout=PATIENCE)
        for number in range(4):
            pub.send(np.full(1000, number, "u1"))
        seen = []
        for sample in sub:
            seen.append(int(sample.array[0]))
            del sample
            assert sub.held == 0
            if len(seen) == 2:
                break

        async def rest() -> None:
            async for sample in sub:
                seen.append(int(sample.array[0]))
                del sample
                assert sub.held == 0
                if len(seen) == 4:
                    return

        asyncio.run(rest())
        assert seen == [0, 1, 2, 3]


def test_held_counts_samples_of_publishers_that_have_ended(name: str) -> None:
    with ipc.Subscriber(name) as sub:
        with ipc.Publisher(name, "u1") as pub:
            pub.wait_for_subscribers(timeout=PATIENCE)
            pub.send(np.zeros(1000, "u1"))
            array = sub.receive(timeout=PATIENCE).array
        with pytest.raises(TimeoutError, match="no publisher"):
            sub.receive(timeout=0.01)
        assert (sub.held, sub.publishers) == (1, 0)
        del array
        assert sub.held == 0


def test_views_outlive_everything(name: str) -> None:
    pub, sub = ipc.Publisher(name, "f8"), ipc.Subscriber(name, "f8")
    assert pub.subscribers == 1
    arrays = []
    for number in range(5):
        pub.send(np.full(1000, float(number)))
        arrays.append(sub.receive(timeout=PATIENCE).array[::7])
    sub.close()
    for _ in range(100):
        pub.send(np.full(1000, -1.0))
    assert [array[0] for array in arrays] == [0, 1, 2, 3, 4], "the subscriber is closed"
    pub.close()
    assert [array[-1] for array in arrays] == [0, 1, 2, 3, 4]
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.extend(float(array[1]) for array in arrays))
    thread.start()
    thread.join()
    assert found == [0, 1, 2, 3, 4]
    assert pickle.loads(pickle.dumps(arrays[3]))[0] == 3


def test_short_arrays_are_in_their_sample(name: str) -> None:
    for dtype in ("f8", "longdouble"):
        topic = f"{name}/{dtype}"
        with ipc.Publisher(topic, dtype) as pub, ipc.Subscriber(topic, dtype) as sub:
            assert pub.subscribers == 1
            arrays = []
            for number in range(3):
                pub.send(np.full(2, number, dtype))
                with sub.receive(timeout=PATIENCE) as sample:
                    arrays.append(sample.array)
            assert sub.held == 0
            assert [array.tolist() for array in arrays] == [[0, 0], [1, 1], [2, 2]]
            assert all(array.flags.aligned and not array.flags.writeable for array in arrays)
            if dtype == "f8":
                with pytest.raises(ValueError, match="WRITEABLE"):
                    arrays[0].flags.writeable = True


def test_a_sample_that_a_program_makes_is_unusable() -> None:
    sample = ipc.Sample.__new__(ipc.Sample)
    for read in ("array", "value", "header"):
        with pytest.raises(TypeError, match=r"made by Subscriber\.receive"):
            getattr(sample, read)
    assert sample.publisher is None
    sample.release()
    assert "None" in repr(sample)


@pytest.mark.parametrize("met", [True, False])
@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
@pytest.mark.parametrize("size", [1, 100])
def test_a_limit_that_a_program_names_counts_copies(
    name: str, size: int, overflow: str, met: bool
) -> None:
    with ipc.Publisher(name, "f8", history=4) as pub:
        if not met:
            for number in range(4):
                pub.send(np.full(size, float(number)))
        with ipc.Subscriber(name, max_held=2, overflow=overflow) as sub:
            if met:
                assert pub.subscribers == 1
                for number in range(4):
                    pub.send(np.full(size, float(number)))
            first, second = sub.receive(timeout=0), sub.receive(timeout=0)
            assert sub.held == 2
            for _ in range(2):
                with pytest.raises(ipc.LoanLimit, match=r"2 samples.*max_held"):
                    sub.receive(timeout=PATIENCE)
            first.release()
            assert sub.receive(timeout=0).value[0] == 2
            view = second.array
            del second
            assert sub.held == 1
            assert sub.receive(timeout=0).value[0] == 3
            assert view[0] == 1
            del view
            assert (sub.held, sub.lost) == (0, 0)


def test_samples_that_were_copied_are_not_counted_without_a_limit(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, buffer=1000) as sub:
        assert pub.subscribers == 1
        for number in range(1000):
            pub.send(number)
        samples = [sub.receive(timeout=0) for _ in range(1000)]
        assert [sample.value for sample in samples] == list(range(1000))
        assert sub.held == 0


def test_the_limit_of_held_samples(name: str) -> None:
    with ipc.Publisher(name, "f8") as pub, ipc.Subscriber(name, max_held=2) as sub:
        assert pub.subscribers == 1
        for number in range(4):
            pub.send(np.full(100, float(number)))
        first, second = sub.receive(), sub.receive()
        with pytest.raises(ipc.LoanLimit, match=r"2 samples.*max_held"):
            sub.receive(timeout=PATIENCE)
        first.release()
        assert sub.receive().value[0] == 2
        second.release()
        assert sub.receive().value[0] == 3


def test_the_limits_of_a_publisher(name: str) -> None:
    with ipc.Publisher(name, "u1", slots=3, max_sample=5000) as pub:
        loans = [pub.loan(1000) for _ in range(3)]
        with pytest.raises(ipc.LoanLimit, match=r"3 slots.*3 on loan"):
            pub.loan(1000)
        loans[0].drop()
        loans[0].drop()
        with pub.loan(1000):
            pass
        pub.loan(1000).send()
        with pytest.raises(ipc.LoanLimit, match=r"5001 bytes.*max_sample=5000"):
            pub.send(np.zeros(5001, "u1"))
        loans[1].send()
        with pytest.raises(ipc.Closed, match="spent"):
            loans[1].send()
        with pytest.raises(ipc.Closed, match="spent"):
            loans[1].array  # noqa: B018


def test_a_sample_describes_itself(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    before = time.monotonic_ns()
    pub.send(np.zeros(100))
    sample = sub.receive(timeout=PATIENCE)
    assert before <= sample.timestamp_ns <= time.monotonic_ns()
    assert len({sample.publisher, sample.publisher}) == 1
    assert str(sample.publisher.pid) in str(sample.publisher)
    assert "800 bytes" in repr(sample)
    assert np.from_dlpack(sample)[0] == 0
    assert np.asarray(sample).shape == (100,)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(sample)
    for each in (pub, sub, pub.loan(3)):
        assert pub.name in repr(each)


def test_a_loan_is_made_by_its_publisher_alone() -> None:
    with pytest.raises(TypeError, match=r"Publisher\.loan"):
        ipc.Loan()
    half = ipc.Loan.__new__(ipc.Loan)
    for use in (half.send, half.drop, half.__enter__().drop, half.__repr__):
        with pytest.raises(TypeError, match=r"Publisher\.loan"):
            use()
    for name in ("array", "nbytes"):
        with pytest.raises(TypeError, match=r"Publisher\.loan"):
            getattr(half, name)


def test_a_forged_layout_reaches_no_other_memory(name: str) -> None:
    with ipc.Publisher(name, "u1") as pub:
        found = gc.get_referents(pub.loan(8))
        make: Any = next(type(each) for each in found if type(each).__name__ == "Layout")
        for dtype, shape in (("u1", (1 << 40,)), ("u1", (2, 3)), ("O", (1,)), ("u1", (1,) * 99)):
            with pytest.raises(ValueError, match="a loan of 8 bytes is no"):
                make(np.dtype(dtype), shape, 8, 1, None, True)
        forged = SimpleNamespace(names=None, hasobject=False, itemsize=1)
        with pytest.raises(TypeError, match="is not a dtype"):
            make(forged, (8,), 8, 1, None, True)


def _sent_from(pub: ipc.Publisher) -> int:
    """Send a large loan; return the address of its memory."""
    with pub.loan(1 << 20) as room:
        address = int(room.array.ctypes.data)
        room.send()
    return address


def test_large_loans_are_made_of_the_memory_that_was_used_last(name: str) -> None:
    with (
        ipc.Publisher(name, "u1") as pub,
        ipc.Subscriber(name, "u1", buffer=32, overflow="block") as sub,
    ):
        pub.wait_for_subscribers(1, PATIENCE)
        behind = [_sent_from(pub) for _ in range(20)]
        assert len(set(behind)) == 20
        for _ in behind:
            sub.receive(PATIENCE).release()
        after = []
        for _ in range(40):
            after.append(_sent_from(pub))
            sub.receive(PATIENCE).release()
        assert set(after) == {behind[-1]}


def test_a_loan_refuses_a_pickle(name: str) -> None:
    with (
        ipc.Publisher(name, "u1") as pub,
        pub.loan(4) as room,
        pytest.raises(TypeError, match="pickle"),
    ):
        pickle.dumps(room)


def test_an_array_that_is_asked_for_twice_is_one_and_is_read_only_when_it_was_sent(
    name: str,
) -> None:
    with ipc.Publisher(name, "u1") as pub:
        room = pub.loan(100)
        array = room.array
        assert room.array is array
        assert array.flags.writeable
        room.send()
        assert not array.flags.writeable
        with pytest.raises(ipc.Closed):
            _ = room.array


@pytest.mark.parametrize(
    "keep",
    [
        lambda array: array,
        lambda array: array[10:20],
        lambda array: array.reshape(10, 10),
        memoryview,
        lambda array: memoryview(array.base),
        lambda array: array.__dlpack__(),
        lambda array: array.ctypes,
        np.asanyarray,
    ],
)
def test_views_of_a_loan_never_show_the_memory_of_the_next_one(
    pair: tuple[ipc.Publisher, ipc.Subscriber], keep: Callable[[Any], Any]
) -> None:
    pub, sub = pair
    room = pub.loan(100)
    kept = keep(room.array)
    room.array[:] = 1
    first = int(room.array.ctypes.data)
    room.send()
    held = sub.receive(PATIENCE)
    others = [pub.loan(100) for _ in range(3)]
    for number, each in enumerate(others):
        assert int(each.array.ctypes.data) != first
        each.array[:] = number
        each.send()
    assert (held.array == 1).all()
    if isinstance(kept, np.ndarray):
        assert (kept == 1).all()
    for number in range(3):
        assert (sub.receive(PATIENCE).array == number).all()


def test_a_weak_reference_does_not_come_to_the_next_loan(
    pair: tuple[ipc.Publisher, ipc.Subscriber],
) -> None:
    pub, _sub = pair
    room = pub.loan(100)
    weak = weakref.ref(room.array)
    room.send()
    after = pub.loan(100)
    assert weak() is not after.array


def _change_shape(array: Any) -> None:
    array.shape = (10, 10)


def _change_type(array: Any) -> None:
    array.dtype = "u1"


def _change_flags(array: Any) -> None:
    array.flags.writeable = False


def _export(array: Any) -> None:
    memoryview(array).release()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "change", [_change_shape, _change_type, _change_flags, _export, lambda array: None]
)
def test_changes_to_an_array_do_not_affect_the_next_one(
    pair: tuple[ipc.Publisher, ipc.Subscriber], change: Callable[[Any], object]
) -> None:
    pub, sub = pair
    for number, items in enumerate((100, 100, 100, 50, 100, 100, 0, 0, 100)):
        room = pub.loan(items)
        array = room.array
        assert array.shape == (items,)
        assert array.strides == (8,) or not items
        assert array.dtype == "f8"
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.flags.f_contiguous
        assert memoryview(array).nbytes == room.nbytes == 8 * items
        array[:] = number
        if items == 100:
            change(array)
        del array
        room.send()
        assert room.nbytes == 8 * items
        assert "spent" in repr(room)
        assert np.array_equal(sub.receive(PATIENCE).array, np.full(items, number, "f8"))


def test_arrays_that_the_collector_finds_between_two_loans_are_empty(
    pair: tuple[ipc.Publisher, ipc.Subscriber],
) -> None:
    pub, sub = pair
    room = pub.loan(100)
    room.array[:] = 1
    room.send()
    found: list[Any] = [
        each for each in gc.get_referents(pub) if isinstance(each, (np.ndarray, memoryview))
    ]
    found += [each for each in gc.get_objects() if type(each).__name__ == "Loaned"]
    rows = [each for each in found if memoryview(each).nbytes == 0]
    assert len(rows) >= 2, "the array and the slot of the loan that was sent"
    with pub.loan(100) as after:
        after.array[:] = 2
        after.send()
        assert all(memoryview(each).nbytes == 0 for each in rows)
    assert [int(sub.receive(PATIENCE).array[99]) for _ in range(2)] == [1, 2]


def test_a_long_header_moves_a_loan_and_not_the_array_that_was_made_before(name: str) -> None:
    with (
        ipc.Publisher(name, "u1") as pub,
        ipc.Subscriber(name, "u1", buffer=1, overflow="block") as sub,
    ):
        pub.wait_for_subscribers(1, PATIENCE)
        pub.send(np.zeros(100, "u1"))
        room = pub.loan(100)
        before = room.array
        before[:] = 7
        with pytest.raises(TimeoutError):
            room.send(header=bytes(1000), timeout=0)
        assert not before.flags.writeable, "its memory is another sample's by now"
        assert (room.array == 7).all()
        room.array[0] = 8
        sub.receive(PATIENCE).release()
        room.send(header=bytes(1000))
        sample = sub.receive(PATIENCE)
        assert sample.array[0] == 8
        assert sample.header == bytes(1000)


def test_a_loan_that_a_thread_is_sending_is_neither_dropped_nor_sent_again(name: str) -> None:
    with (
        ipc.Publisher(name, "u1") as pub,
        ipc.Subscriber(name, "u1", buffer=1, overflow="block") as sub,
    ):
        pub.wait_for_subscribers(1, PATIENCE)
        waits = threading.Event()
        pub.on_slow = lambda slow: waits.set()
        pub.send(np.zeros(100, "u1"))
        room = pub.loan(100)
        room.array[:] = 7
        thread = threading.Thread(target=room.send, kwargs={"timeout": PATIENCE})
        thread.start()
        assert waits.wait(PATIENCE)
        room.drop()
        with pytest.raises(ipc.Closed, match="spent"):
            room.send(timeout=0)
        with pub.loan(100) as other:
            other.array[:] = 9
            assert sub.receive(PATIENCE).array[0] == 0
            assert (sub.receive(PATIENCE).array == 7).all()
        thread.join()
        assert pub.loans == 0


def test_the_array_of_a_loan_that_was_dropped_is_read_only(
    pair: tuple[ipc.Publisher, ipc.Subscriber],
) -> None:
    """Its memory may be another sample's."""
    pub, sub = pair
    with pub.loan(100) as room:
        kept = room.array
    other = pub.loan(100)
    other.drop()
    other.drop()
    pub.send(np.full(100, 5.0))
    held = sub.receive(PATIENCE)
    assert not kept.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        kept[:] = 9
    assert (held.array == 5).all()


def test_a_loan_whose_send_raises_behind_its_publication_is_read_only(name: str) -> None:
    with (
        ipc.Publisher(name, "i8") as pub,
        ipc.Subscriber(name, "i8", buffer=2) as sub,
    ):
        pub.wait_for_subscribers(1, PATIENCE)

        def refuse(slow: ipc.SlowSubscriber) -> None:
            raise LookupError(slow.topic)

        pub.on_slow = refuse
        pub.send(np.zeros(100, "i8"))
        pub.send(np.zeros(100, "i8"))
        time.sleep(0.05)  # the next send checks its subscribers again
        room = pub.loan(100)
        kept = room.array
        kept[:] = 7
        with pytest.raises(LookupError, match=name):
            room.send()
        assert not kept.flags.writeable
        assert pub.loans == 0
        with pytest.raises(ipc.Closed, match="spent"):
            room.send()
        assert [int(sub.receive(PATIENCE).array[9]) for _ in range(2)] == [0, 7]


def test_samples_of_a_publisher_that_has_gone_count_as_held() -> None:
    with ipc.Subscriber("t", "f8") as sub:
        with ipc.Publisher("t", "f8") as pub:
            pub.send([1.0] * 100)
            sample, array = sub.receive(60), None
            pub.send([2.0] * 100)
            array = sub.receive(60).array
        assert sub.try_receive() is None
        assert (sub.publishers, sub.held) == (0, 2)
        sample.release()
        assert sub.held == 1
        assert array[0] == 2
        del array
        assert sub.held == 0
    assert sub.held == 0


def test_close_is_release_and_drop(name: str) -> None:
    with ipc.Publisher(name, "f8") as pub, ipc.Subscriber(name) as sub:
        pub.wait_for_subscribers(timeout=PATIENCE)
        loan = pub.loan(100)
        loan.close()
        assert "spent" in repr(loan)
        pub.send(np.ones(100))
        sample = sub.receive(timeout=PATIENCE)
        assert sub.held == 1
        sample.close()
        sample.close()
        assert sub.held == 0
        assert "released" in repr(sample)
    with ipc.Server(name, "f8", "f8") as server, ipc.Client(name, "f8", "f8") as client:
        pending = client.send([1])
        request = server.receive(PATIENCE)
        reply = request.loan(100)
        assert repr(reply) == "<Loan of 800 bytes for an answer, to be filled>"
        reply.close()
        assert "spent" in repr(reply)
        request.respond([2])
        answer = pending.result(PATIENCE)
        answer.close()
        with pytest.raises(ipc.Closed, match="released"):
            _ = answer.value
