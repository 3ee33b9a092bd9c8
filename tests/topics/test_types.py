# SPDX-License-Identifier: Apache-2.0
"""What goes in comes out, by every type; ends that disagree hear of it."""

import dataclasses
import gc
import pickle
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd.ipc.types.layouts import dataclass_dtype
from shmnd.ipc.types.record import Record
from topics.taking import PATIENCE


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
    assert list(ipc.Arrays(self=ipc.Array("u1", 1)).arrays) == ["self"]


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


def test_an_object_of_very_many_arrays(name: str) -> None:
    with ipc.Publisher(name, object) as pub, ipc.Subscriber(name, object) as sub:
        assert pub.subscribers == 1
        pub.send([np.full(1, number) for number in range(33_000)])
        value = sub.receive(timeout=PATIENCE).value
        assert len(value) == 33_000
        assert value[-1][0] == 32_999
        assert not value[-1].flags.writeable


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


def test_arrays_that_no_subscriber_could_take_are_refused(name: str) -> None:
    """Of arrays that say themselves what they are, at the publisher and not at its subscribers."""
    many = np.zeros((1,) * 33)
    wide = np.dtype([(f"field_{number:04d}", "f4") for number in range(3000)])
    with ipc.Publisher(name) as pub:
        with pytest.raises(ValueError, match="33 dimensions; at most 32"):
            pub.send(many)
        for act in (lambda: pub.send(np.zeros(2, wide)), lambda: pub.loan(2, wide)):
            with pytest.raises(ValueError, match="of 3000 fields takes"):
                act()
        for bad, what in (("O", "references"), ("U", "no size"), ("S0", "no size")):
            with pytest.raises(TypeError, match=what):
                pub.loan(2, bad)
    with (
        ipc.Publisher(name, "f8") as pub,
        pytest.raises(ValueError, match="33 dimensions; at most 32"),
    ):
        pub.send(many)


def test_a_topic_without_a_type_keeps_masks_and_shapes(name: str) -> None:
    """A mask, and the shape of items that are arrays themselves."""
    with ipc.Publisher(name) as pub, ipc.Subscriber(name) as sub:
        assert pub.subscribers == 1
        pub.send(np.ma.masked_array([1, 2, 3], mask=[False, True, False]))
        assert sub.receive().value.tolist() == [1, None, 3]
        with pub.loan(2, ("f4", (3,))) as loan:
            loan.array[:] = [[1, 2, 3], [4, 5, 6]]
            loan.send()
        assert sub.receive().value.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_the_error_of_two_ends_names_both(name: str) -> None:
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


def test_a_whole_number_that_does_not_fit_is_refused(name: str) -> None:
    for number in (1 << 40, [-1 << 40], np.int64(1 << 31), np.array([0, 1 << 31])):
        with ipc.Publisher(name, "i4") as pub, pytest.raises(OverflowError, match="2147483647"):
            pub.send(number)
    with ipc.Publisher(name, Robot) as pub:
        for id_ in (1 << 31, np.int64(-1 << 40)):
            with pytest.raises(OverflowError, match=r"field id: -?[0-9]+ is outside"):
                pub.send({"id": id_, "pose": Pose(1, 2, True, np.zeros(3))})
        assert pub.send({"id": np.uint64(7), "pose": Pose(1, 2, True, np.zeros(3))}) == 0


@pytest.mark.parametrize("number", [2.5, [1.5, 2], np.float64(0.5), (1j,), ["1"]])
def test_non_integers_are_refused(name: str, number: Any) -> None:
    with ipc.Publisher(name, "i8") as pub, pytest.raises(ipc.TypeMismatch, match=r"not a .*number"):
        pub.send(number)
    one = np.ravel(number)[0]
    for value in ({"x": 1, "id": one}, (1, one), Point(np.float64(1), one)):
        with ipc.Publisher(name, POINT) as pub, pytest.raises(ipc.TypeMismatch, match="field id"):
            pub.send(value)


def test_numbers_beyond_all_whole_ones_are_refused(name: str) -> None:
    for number in (1 << 70, [1, -1 << 70], 1e300, float("nan"), float(1 << 63)):
        with ipc.Publisher(name, "i8") as pub, pytest.raises(OverflowError, match=r"\.\.922337"):
            pub.send(number)
    with ipc.Publisher(name, "i8") as pub, ipc.Subscriber(name) as sub:
        pub.send([3.0, True, -(1 << 63)])
        assert sub.receive(PATIENCE).value.tolist() == [3, 1, -(1 << 63)]


def test_fields_in_another_order_are_not_exchanged(name: str) -> None:
    other = np.zeros(2, [("id", "i8"), ("x", "f8")])
    other["id"] = 7, 1 << 40
    with ipc.Publisher(name, POINT) as pub, ipc.Subscriber(name) as sub:
        with pytest.raises(ipc.TypeMismatch, match="id"):
            pub.send(other)
        pub.send(other[0])
        assert sub.receive(PATIENCE).value.id == 7
        with pytest.raises(OverflowError, match="field id"):
            pub.send(other[1])
        with pytest.raises(OverflowError, match="field id"):
            pub.send(other[["x", "id"]])


@dataclasses.dataclass
class Tree:
    value: float
    left: "Tree"


def test_unresolved_annotations_are_refused(name: str) -> None:
    lost = dataclasses.make_dataclass("Lost", [("at", "Nowhere")])
    with pytest.raises(TypeError, match=r"Publisher: .* Lost cannot be resolved: .*'Nowhere'"):
        ipc.Publisher(name, lost)
    with pytest.raises(TypeError, match="Subscriber: Tree has itself as a field"):
        ipc.Subscriber(name, Tree)


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


POINT = np.dtype([("x", "f8"), ("id", "i4")])


@dataclasses.dataclass
class Point:
    x: np.float64
    id: np.int32


def test_a_structured_type_has_any_shape(name: str) -> None:
    rows = np.zeros((2, 3), POINT)
    rows["id"] = np.arange(6).reshape(2, 3)
    deep = np.zeros((1, 2, 1, 2, 3), POINT)
    deep["x"] = 0.5
    with (
        ipc.Publisher(name, POINT) as pub, ipc.Subscriber(name) as adopting,
        ipc.Subscriber(name, POINT) as sub,
    ):  # fmt: skip
        for value in (rows, rows[0], rows[:, 1], rows[:0], deep, [(1.5, 2), (2.5, 3)]):
            pub.send(value)
            for each in (sub, adopting):
                found = each.receive(PATIENCE).value
                assert type(found) is np.ndarray
                assert not found.flags.writeable
                assert np.array_equal(found, np.array(value, POINT))
        point = np.array((1.5, 2), POINT)
        for one in ((1.5, 2), {"id": 2, "x": 1.5}, point, point[()]):
            pub.send(one)
            record = sub.receive(PATIENCE).value
            assert (record.x, record["id"]) == (1.5, 2)
        pub.send(record)
        assert sub.receive(PATIENCE).value.id == 2
        with pub.loan((4,)) as loan:
            loan.array["id"] = 7
            loan.send()
        assert sub.receive(PATIENCE).value["id"].tolist() == [7] * 4
        with pub.loan() as loan:
            loan.array.id = 8
            loan.send()
        assert sub.receive(PATIENCE).value.id == 8


def test_wrong_rows_are_refused(name: str) -> None:
    other = np.dtype([("x", "f8"), ("name", "S4")])
    with ipc.Publisher(name, POINT) as pub, ipc.Subscriber(name, POINT) as sub:
        for wrong in ([(1, 2, 3)], ["text"], np.zeros(3), np.zeros(2, other)):
            with pytest.raises(ipc.TypeMismatch, match=r"Publisher\.send"):
                pub.send(wrong)
        with pytest.raises(ipc.TypeMismatch):
            ipc.Subscriber(name, other)
        pub.send(np.ones(2, POINT))
        assert sub.receive(PATIENCE).value["x"].tolist() == [1, 1]


@pytest.mark.parametrize("type_", [ipc.Array(POINT, 2), np.dtype((POINT, (2,)))])
def test_an_array_of_records_keeps_its_fields(name: str, type_: Any) -> None:
    rows = np.array([(1.5, 2), (2.5, 3)], POINT)
    with (
        ipc.Publisher(name, type_) as pub, ipc.Subscriber(name) as adopting,
        ipc.Subscriber(name, type_) as sub,
    ):  # fmt: skip
        pub.send(rows)
        for each in (sub, adopting):
            found = each.receive(PATIENCE).value
            assert found.dtype == POINT
            assert np.array_equal(found, rows)
        with pytest.raises(ipc.TypeMismatch, match="other"):
            ipc.Subscriber(name, ipc.Array([("x", "f8"), ("other", "i4")], 2))


def test_a_record_and_a_structured_type_of_the_same_fields_agree(name: str) -> None:
    layout = dataclass_dtype(Point, "test")
    with ipc.Publisher(name, Point) as pub, ipc.Subscriber(name, layout) as sub:
        pub.send(Point(np.float64(1.5), np.int32(2)))
        assert sub.receive(PATIENCE).value.id == 2
    with ipc.Publisher(f"{name}.", layout) as pub, ipc.Subscriber(f"{name}.", Point) as sub:
        pub.send((1.5, 3))
        assert sub.receive(PATIENCE).value.id == 3
        pub.send(np.zeros(2, layout))
        with pytest.raises(ValueError, match=r"sent .* bytes of kind 1"):
            _ = sub.receive(PATIENCE).value


def test_a_record_that_was_never_initialized_has_no_fields() -> None:
    """It asked itself for its memory without end, which aborted the interpreter in a finaliser."""
    half = Record.__new__(Record)
    for wanted in ("x", "array"):
        with pytest.raises(AttributeError):
            getattr(half, wanted)
