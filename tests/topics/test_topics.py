# SPDX-License-Identifier: Apache-2.0
"""Topics in one process: what goes in comes out, by every type, and what each policy keeps."""

import asyncio
import dataclasses
import gc
import pickle
import select
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


@pytest.fixture
def pair(name: str) -> Iterator[tuple[ipc.Publisher, ipc.Subscriber]]:
    with ipc.Publisher(name, "f8") as pub, ipc.Subscriber(name, "f8") as sub:
        assert pub.subscribers == 1
        yield pub, sub


def everything(sub: ipc.Subscriber) -> list[ipc.Sample]:
    return list(iter(sub.try_receive, None))


@dataclasses.dataclass
class Pose:
    x: float
    n: int
    ok: bool
    at: ipc.Array("f4", 3)  # type: ignore[valid-type]


@dataclasses.dataclass
class Robot:
    id: np.int32
    pose: Pose


# -- types --


@pytest.mark.parametrize(
    "shape", [(), (0,), (1,), (5,), (6,), (3, 4), (2, 0), (2, 3, 4, 5, 6), (999,)]
)
@pytest.mark.parametrize("how", ["send", "loan"])
def test_an_array_of_any_shape(name: str, shape: tuple[int, ...], how: str) -> None:
    value = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    with ipc.Publisher(name, "f8") as pub, ipc.Subscriber(name, np.float64) as sub:
        assert pub.subscribers == 1
        if how == "send":
            assert pub.send(value) == 0
        else:
            loan = pub.loan(shape)
            loan.array[...] = value
            assert loan.send() == 0
        sample = sub.receive(timeout=PATIENCE)
        assert sample.sequence == 0
        assert sample.header is None
        assert sample.value.dtype == np.dtype("f8")
        assert sample.value.shape == shape
        assert np.array_equal(sample.value, value)
        assert not sample.value.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            sample.array[...] = 1


@pytest.mark.parametrize("nbytes", [0, 1, 39, 40, 41, 64, 1000, 100_000, 3_000_000])
@pytest.mark.parametrize("header", [None, b"h", b"header" * 7, b"h" * 5000])
def test_bytes_with_a_header(name: str, nbytes: int, header: bytes | None) -> None:
    data = bytes(range(256)) * (nbytes // 256 + 1)
    with ipc.Publisher(name, bytes) as pub, ipc.Subscriber(name, bytes) as sub:
        assert pub.subscribers == 1
        pub.send(data[:nbytes], header)
        pub.send(bytearray(data[:nbytes]), header=header)
        loan = pub.loan(nbytes)
        loan.array[:] = np.frombuffer(data[:nbytes], "u1")
        loan.send(header)
        for sequence in range(3):
            with sub.receive(timeout=PATIENCE) as sample:
                assert sample.value == data[:nbytes]
                assert sample.header == header
                assert sample.sequence == sequence
                assert bytes(sample.array) == bytes(memoryview(sample)) == sample.value
    with pytest.raises(ipc.Closed):
        sample.value  # noqa: B018


def test_a_record_has_its_fields_by_attribute_and_by_key(name: str) -> None:
    with ipc.Publisher(name, Robot) as pub, ipc.Subscriber(name, Robot) as sub:
        assert pub.subscribers == 1
        pose = Pose(1.5, 7, True, np.array([1, 2, 3], "f4"))
        pub.send(Robot(np.int32(9), pose))
        pub.send({"id": 9, "pose": {"x": 1.5, "n": 7, "ok": True, "at": [1, 2, 3]}})
        loan = pub.loan()
        loan.array.id = 9
        loan.array["pose"] = pose
        loan.array.pose.at[:] = [1, 2, 3]
        loan.send()
        values = [sub.receive(timeout=PATIENCE).value for _ in range(3)]
        for value in values:
            assert value.id == value["id"] == 9
            assert value.pose.x == 1.5
            assert value["pose"]["ok"]
            assert list(value.pose.at) == [1, 2, 3]
            assert list(value.pose.keys()) == ["x", "n", "ok", "at"]
            assert value == values[0]
            assert pickle.loads(pickle.dumps(value)) == value
            with pytest.raises(AttributeError, match="has no field 'y'"):
                value.y  # noqa: B018
            with pytest.raises(ValueError, match="read-only"):
                value.pose.at[0] = 5
        with pytest.raises(ipc.TypeMismatch, match=r"missing.*pose"):
            pub.send({"id": 1})


def test_several_arrays_in_one_sample(name: str) -> None:
    kind = ipc.Arrays(image=ipc.Array("u1", (4, 5)), pose=ipc.Array("f8", 6))
    with ipc.Publisher(name, kind) as pub, ipc.Subscriber(name) as sub:
        assert pub.subscribers == 1
        image = np.arange(20, dtype="u1").reshape(4, 5)
        pub.send({"image": image, "pose": np.arange(6.0)})
        with pub.loan() as loan:
            loan.array.image[:] = image
            loan.array["pose"][:] = range(6)
            loan.send()
        for _ in range(2):
            value = sub.receive(timeout=PATIENCE).value
            assert np.array_equal(value.image, image)
            assert np.array_equal(value["pose"], np.arange(6.0))


def test_an_object_comes_with_its_arrays_in_place(name: str) -> None:
    array = np.arange(100_000)
    with ipc.Publisher(name, object) as pub, ipc.Subscriber(name, object) as sub:
        assert pub.subscribers == 1
        for value in ({"a": array, "b": [1, "x"]}, None, "text", array, [array[:10], array]):
            pub.send(value, header=b"h")
            sample = sub.receive(timeout=PATIENCE)
            found = sample.value
            if isinstance(value, dict):
                assert np.array_equal(found["a"], array)
                assert not found["a"].flags.writeable
                assert found["b"] == [1, "x"]
                sample.release()
                assert sub.held == 1, "its array is there yet"
                del found
                gc.collect()
                assert sub.held == 0
            else:
                assert type(found) is type(value)
        with pytest.raises(TypeError, match="no memory to compute into"):
            pub.loan()


def test_a_topic_without_a_type(name: str) -> None:
    with ipc.Publisher(name) as pub, ipc.Subscriber(name) as sub:
        assert pub.subscribers == 1
        with pub.loan((2, 3), "i2") as loan:
            loan.array[:] = 5
            loan.send()
        for value in (np.eye(3, dtype="f4"), b"bytes", {"an": "object"}, np.zeros((), "M8[s]")):
            pub.send(value)
        assert np.array_equal(sub.receive().value, np.full((2, 3), 5, "i2"))
        eye = sub.receive().value
        assert eye.dtype == np.dtype("f4")
        assert np.array_equal(eye, np.eye(3))
        assert sub.receive().value == b"bytes"
        assert sub.receive().value == {"an": "object"}
        assert sub.receive().value.dtype == np.dtype("M8[s]")


def test_two_ends_that_disagree_hear_of_both(name: str) -> None:
    with ipc.Publisher(name, "f8", attributes={"unit": "m"}):
        with pytest.raises(ipc.TypeMismatch, match=r"float32.*float64"):
            ipc.Subscriber(name, "f4")
        with pytest.raises(ipc.TypeMismatch, match=r"Array.*float64"):
            ipc.Publisher(name, ipc.Array("f8", 3))
        with pytest.raises(ipc.TypeMismatch, match="unit"):
            ipc.Publisher(name, "f8", attributes={"unit": "s"})
    assert issubclass(ipc.TypeMismatch, TypeError)
    with (
        ipc.Subscriber(name, "f4") as early,
        ipc.Publisher(name, "f8"),
        pytest.raises(ipc.TypeMismatch),
    ):
        early.receive(timeout=PATIENCE)


def test_a_value_that_does_not_fit_the_type_is_refused(name: str) -> None:
    with ipc.Publisher(name, ipc.Array("i4", (2, 2))) as pub:
        for value in ([1, 2], np.zeros((2, 3), "i4")):
            with pytest.raises(ValueError, match="shape"):
                pub.send(value)
        with pytest.raises(ipc.TypeMismatch, match="astype"):
            pub.send(np.zeros((2, 2)))
        assert pub.send([[1, 2], [3, 4]]) == 0
        with pytest.raises(TypeError):
            pub.loan(dtype="f8")
    for bad in ("no type", 5, ipc.Publisher, np.dtype(object), "S"):
        with pytest.raises(TypeError):
            ipc.Publisher(name, bad)
    with ipc.Publisher(name, bytes) as pub, pytest.raises(ipc.TypeMismatch, match="encode"):
        pub.send("text")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"buffer": 0}, "buffer"),
        ({"overflow": "drop"}, "overflow"),
        ({"max_held": 0}, "max_held"),
        ({"history": -1}, "history"),
        ({"buffer": 1 << 40}, "buffer"),
    ],
)
def test_bad_options_of_a_subscriber(name: str, options: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ipc.Subscriber(name, **options)


@pytest.mark.parametrize(
    ("options", "what"),
    [({"history": -1}, "history"), ({"slots": 0}, "slots"), ({"max_sample": 0}, "max_sample")],
)
def test_bad_options_of_a_publisher(name: str, options: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ipc.Publisher(name, **options)
    with pytest.raises(TypeError, match="name"):
        ipc.Publisher(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name"):
        ipc.Publisher("")


# -- samples and what they keep --


def test_what_is_held_is_never_reused(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
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


def test_a_sample_says_what_it_is(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
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


# -- policies --


def test_drop_oldest_keeps_the_newest(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, buffer=5) as sub:
        assert pub.subscribers == 1
        for number in range(100):
            pub.send(np.full(100, number))
        assert sub.lost == 95
        assert [sample.sequence for sample in everything(sub)] == list(range(95, 100))
        assert sub.lost == 95


def test_drop_newest_keeps_the_first(name: str) -> None:
    with (
        ipc.Publisher(name, "i8") as pub,
        ipc.Subscriber(name, buffer=5, overflow="drop_newest") as sub,
    ):
        assert pub.subscribers == 1
        for number in range(100):
            pub.send(np.full(100 if number % 2 else 2, number))
        assert sub.lost == 95
        samples = everything(sub)
        assert [sample.sequence for sample in samples] == list(range(5))
        assert [int(sample.value[0]) for sample in samples] == list(range(5))
        pub.send(np.full(100, 7))
        assert sub.receive().sequence == 100
        assert sub.lost == 95


def test_conflate_receives_the_newest_alone(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, overflow="conflate") as sub:
        assert pub.subscribers == 1
        for number in range(100):
            pub.send(np.full(100, number))
        assert [sample.sequence for sample in everything(sub)] == [99]
        assert sub.lost == 99


def test_block_makes_the_publisher_wait(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, buffer=5, overflow="block") as sub:
        assert pub.subscribers == 1
        slow: list[ipc.SlowSubscriber] = []
        pub.on_slow = slow.append
        for number in range(5):
            pub.send(np.full(100, number), timeout=0)
        with pytest.raises(TimeoutError, match=r"process \d+ has no room.*0.01 s"):
            pub.send(np.full(100, 5), timeout=0.01)
        assert [(each.topic, each.behind) for each in slow] == [(name, 5)]
        assert sub.receive().sequence == 0
        loan = pub.loan(100)
        loan.array[:] = 5
        assert loan.send(timeout=0) == 5
        loan = pub.loan(100)
        with pytest.raises(TimeoutError):
            loan.send(timeout=0)
        sub.receive()
        assert loan.send(timeout=0) == 6
        got: list[int] = []

        def receive() -> None:
            got.extend(sub.receive(timeout=PATIENCE).sequence for _ in range(500))

        thread = threading.Thread(target=receive)
        thread.start()
        for number in range(495):
            pub.send(np.full(100, number), timeout=PATIENCE)
        thread.join()
        assert got == list(range(2, 502))
        assert sub.lost == 0


def test_a_subscriber_that_blocks_can_be_evicted(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name, buffer=1, overflow="block") as sub:
        assert pub.subscribers == 1
        pub.on_slow = lambda slow: slow.evict()
        for number in range(5):
            pub.send(np.full(100, number), timeout=PATIENCE)
        assert pub.subscribers == 0
        assert sub.receive(timeout=PATIENCE).sequence == 0
        everything(sub)
        with pytest.raises(ipc.PeerLost, match="slow"):
            sub.receive(timeout=PATIENCE)


def test_the_policy_of_one_changes_nothing_for_another(name: str) -> None:
    with (
        ipc.Publisher(name, "i8") as pub,
        ipc.Subscriber(name, buffer=200) as all_of_them,
        ipc.Subscriber(name, buffer=3) as few,
        ipc.Subscriber(name, buffer=3, overflow="drop_newest") as first,
        ipc.Subscriber(name, overflow="conflate") as newest,
    ):
        assert pub.subscribers == 4
        for number in range(150):
            pub.send(np.full(50, number))
        for sub, wanted in (
            (all_of_them, range(150)),
            (few, range(147, 150)),
            (first, range(3)),
            (newest, [149]),
        ):
            assert [int(sample.value[3]) for sample in everything(sub)] == list(wanted)
            assert sub.lost == 150 - len(list(wanted))


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "block"])
def test_history_for_those_who_come_late(name: str, overflow: str) -> None:
    with ipc.Publisher(name, "i8", history=4) as pub:
        for number in range(10):
            pub.send(np.full(100, number))
        with (
            ipc.Subscriber(name, overflow=overflow) as late,
            ipc.Subscriber(name, history=2, overflow=overflow) as less,
            ipc.Subscriber(name, history=0, overflow=overflow) as none,
        ):
            assert pub.subscribers == 3
            pub.send(np.full(100, 10))
            seen = [[int(s.value[0]) for s in everything(sub)] for sub in (late, less, none)]
            if overflow == "conflate":
                assert seen == [[10], [10], [10]]
            else:
                assert seen == [[6, 7, 8, 9, 10], [8, 9, 10], [10]]


# -- publishers come and go --


def test_several_publishers_on_one_topic(name: str) -> None:
    with ipc.Subscriber(name, "i8", buffer=50) as sub:
        pubs = [ipc.Publisher(name, "i8") for _ in range(3)]
        assert sub.publishers == 3
        for pub in pubs:
            assert pub.subscribers == 1
        for number in range(20):
            for pub in pubs:
                pub.send(np.array([number]))
        samples = everything(sub)
        assert len(samples) == 60
        for publisher in {sample.publisher for sample in samples}:
            mine = [sample for sample in samples if sample.publisher == publisher]
            assert [sample.sequence for sample in mine] == list(range(20))
            assert [int(sample.value[0]) for sample in mine] == list(range(20))
        for pub in pubs:
            pub.close()
        assert sub.publishers == 0


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "block"])
def test_a_subscriber_that_was_there_first_misses_nothing(name: str, overflow: str) -> None:
    with ipc.Subscriber(name, overflow=overflow) as sub, ipc.Publisher(name, "i8") as pub:
        for number in range(8):
            pub.send(np.full(100, number))
        assert [int(sub.receive(timeout=0).value[0]) for _ in range(8)] == list(range(8))
        assert sub.lost == 0


def test_no_publisher_is_an_error_only_where_asked_for(name: str) -> None:
    with ipc.Subscriber(name, wait_for_publisher=False) as sub:
        with pytest.raises(ipc.NoPublisher, match=name):
            sub.receive(timeout=PATIENCE)
        with ipc.Publisher(name, "i8") as pub:
            assert pub.subscribers == 1
            pub.send(np.arange(30))
            pub.send(np.arange(3))
        assert [len(sample.value) for sample in sub] == [30, 3]
        with pytest.raises(ipc.NoPublisher):
            sub.receive(timeout=PATIENCE)
    with ipc.Subscriber(name) as sub, pytest.raises(TimeoutError, match="no publisher"):
        sub.receive(timeout=0)


def test_a_publisher_comes_again(name: str) -> None:
    with ipc.Subscriber(name) as sub:
        for round_ in range(4):
            with ipc.Publisher(name, "i8") as pub:
                assert pub.subscribers == 1
                pub.send(np.array([round_]))
                assert sub.receive(timeout=PATIENCE).value[0] == round_
        assert sub.publishers == 0


def test_subscribers_come_and_go(name: str) -> None:
    with ipc.Publisher(name, "i8", max_subscribers=3) as pub:
        for round_ in range(10):
            with ipc.Subscriber(name) as one, ipc.Subscriber(name) as two:
                assert pub.subscribers == 2
                pub.send(np.full(100, round_))
                assert one.receive().value[0] == two.receive().value[0] == round_
            assert pub.subscribers == 0


# -- waiting --


def test_receive_waits_and_a_send_wakes_it(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    timer = threading.Timer(0.05, lambda: pub.send(np.zeros(100)))
    timer.start()
    assert sub.receive(timeout=PATIENCE).value.shape == (100,)
    timer.join()
    with pytest.raises(ValueError, match="negative"):
        sub.receive(timeout=-1)


def test_wait_for_subscribers(name: str) -> None:
    with ipc.Publisher(name, "i8") as pub:
        with pytest.raises(TimeoutError, match="0 subscribers"):
            pub.wait_for_subscribers(timeout=0.01)
        subs: list[ipc.Subscriber] = []
        timer = threading.Timer(0.05, lambda: subs.append(ipc.Subscriber(name)))
        timer.start()
        pub.wait_for_subscribers(timeout=PATIENCE)
        timer.join()
        subs[0].close()


def test_in_an_event_loop(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair

    async def run() -> list[int]:
        with pytest.raises(TimeoutError):
            await sub.areceive(timeout=0.01)
        loop = asyncio.get_running_loop()
        for number in range(5):
            loop.call_later(0.01 * number, pub.send, np.full(100, float(number)))
        found = [int((await sub.areceive()).value[0])]
        async for sample in sub:
            found.append(int(sample.value[0]))
            if len(found) == 5:
                return found
        return found

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) == [0, 1, 2, 3, 4]


def test_a_descriptor_for_other_loops(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    number = sub.fileno()
    assert sub.try_receive() is None
    assert select.select([number], [], [], 0)[0] == []
    timer = threading.Timer(0.05, lambda: pub.send(np.zeros(100)))
    timer.start()
    deadline = time.monotonic() + PATIENCE
    sample = None
    while sample is None:
        assert time.monotonic() < deadline
        select.select([number], [], [], PATIENCE)
        sample = sub.try_receive()
    timer.join()
    assert sub.try_receive() is None
    assert select.select([number], [], [], 0)[0] == []


def test_closing_wakes_those_who_wait(pair: tuple[ipc.Publisher, ipc.Subscriber]) -> None:
    pub, sub = pair
    timer = threading.Timer(0.05, sub.close)
    timer.start()
    with pytest.raises(ipc.Closed, match=pub.name):
        sub.receive(timeout=PATIENCE)
    timer.join()
    sub.close()
    pub.close()
    pub.close()
    for call in (lambda: pub.send(1), lambda: pub.loan(3), lambda: pub.subscribers):
        with pytest.raises(ipc.Closed):
            call()
    with pytest.raises(ipc.Closed):
        sub.try_receive()


@pytest.mark.parametrize("form", [object, None], ids=["object", "None"])
def test_pickles_of_another_user_are_refused(
    name: str, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shmnd.neighbours import Neighbour

    monkeypatch.setattr(Neighbour, "same_user", False)
    with (
        ipc.Publisher(name, form),
        pytest.raises(ipc.TypeMismatch, match=r"another user.*arrays, records or bytes"),
        ipc.Subscriber(name, form) as sub,
    ):
        sub.receive(PATIENCE)
    with ipc.Publisher(name + "f", "f8") as pub, ipc.Subscriber(name + "f", "f8") as sub:
        pub.send(np.float64(2))
        assert float(sub.receive(PATIENCE).value) == 2
