# SPDX-License-Identifier: Apache-2.0
"""Values that are copied at once: they arrive, and are refused, as those that take more steps."""

from __future__ import annotations

import dataclasses
import datetime
import math
import uuid
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0
FIELDS = np.dtype([("x", "f8"), ("y", ">f4"), ("n", "i4"), ("u", "u1"), ("on", "?")], align=True)


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


@dataclasses.dataclass
class Pose:
    """A record of numbers alone."""

    x: float
    n: int
    on: bool


def sent(name: str, type_: Any, value: Any, header: bytes | None = None) -> ipc.Sample:
    """Return the sample of a value that was sent."""
    with ipc.Publisher(name, type_) as pub, ipc.Subscriber(name, type_) as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        pub.send(value, header)
        return sub.receive(PATIENCE)


@pytest.mark.parametrize("x", [0.0, -0.0, 1.5, 1e308, math.inf, -math.inf, math.nan])
def test_numbers_of_python_arrive_in_a_record(name: str, x: float) -> None:
    found = sent(name, Pose, Pose(x, -(2**63), True)).value
    assert np.array(found.x).tobytes() == np.array(x).tobytes()
    assert (found.n, found.on) == (-(2**63), True)


@pytest.mark.parametrize("form", [tuple, dict, "another order"])
def test_every_form_of_a_record_arrives(name: str, form: Any) -> None:
    given = {"x": 1.5, "y": 0.25, "n": -5, "u": 255, "on": True}
    value: Any = tuple(given.values()) if form is tuple else given
    if form == "another order":
        value = dict(reversed(given.items()))
    found = sent(name, FIELDS, value).value
    assert {each: found[each] for each in found} == given


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("n", 2**31, OverflowError),
        ("n", -(2**31) - 1, OverflowError),
        ("u", 256, OverflowError),
        ("u", -1, OverflowError),
        ("u", 2**70, OverflowError),
        ("u", 1.5, ipc.TypeMismatch),
        ("n", "7", ipc.TypeMismatch),
        ("x", 2**70, ipc.TypeMismatch),
        ("y", [1.0, 2.0], ValueError),
        ("on", 2, OverflowError),
        ("on", -1, OverflowError),
        ("on", math.nan, OverflowError),
        ("on", 0.5, ipc.TypeMismatch),
    ],
)
def test_a_number_that_does_not_fit_names_its_field(
    name: str, field: str, value: Any, error: type[Exception]
) -> None:
    given = {"x": 1.5, "y": 0.25, "n": -5, "u": 255, "on": True, field: value}
    with pytest.raises(error, match=f"field {field}"):
        sent(name, FIELDS, given)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("M8[s]", 2.5),
        ("M8[s]", math.nan),
        ("M8[s]", 1j),
        ("M8[s]", np.timedelta64(5, "s")),
        ("m8[s]", 1e300),
        ("m8[s]", True),
        ("m8[s]", np.datetime64("2020-01-01")),
    ],
)
def test_times_are_made_of_no_other_numbers(name: str, type_: str, value: Any) -> None:
    """By numpy a date would be cut, and a span of time be made of a date."""
    row = [("at", type_)]
    for wanted, given in ((type_, value), (row, (value,)), (row, [(value,)])):
        with pytest.raises(ipc.TypeMismatch):
            sent(name, wanted, given)
    with ipc.Blackboard(name, {"at": type_}) as board, pytest.raises(ipc.TypeMismatch, match="at"):
        board["at"] = value


@pytest.mark.parametrize(
    ("type_", "value", "error"),
    [
        ("M8[s]", 2**63, OverflowError),
        ("M8[s]", -(2**63), OverflowError),
        ("M8[s]", 2**70, OverflowError),
        ("M8", 2**64, OverflowError),
        ("m8[s]", np.uint64(2**64 - 1), OverflowError),
        ("M8[ns]", np.datetime64(2**62, "s"), OverflowError),
        ("m8[s]", np.timedelta64(2**62, "W"), OverflowError),
        ("m8[ns]", datetime.timedelta(days=10**6), OverflowError),
        ("M8[ns]", datetime.datetime(9999, 1, 1), OverflowError),
        ("M8[ns]", "300000-01-01", OverflowError),
        ("M8[s]", np.datetime64(900, "ms"), ipc.TypeMismatch),
        ("M8[s]", datetime.datetime(2020, 1, 1, 0, 0, 0, 900_000), ipc.TypeMismatch),
        ("M8[D]", "2020-01-01T12:00", ipc.TypeMismatch),
        ("m8[D]", np.timedelta64(1, "Y"), ipc.TypeMismatch),
        ("?", 2**64, OverflowError),
        ("?", 2**70, OverflowError),
    ],
)
def test_times_and_truth_values_are_never_wrapped_or_cut(
    name: str, type_: str, value: Any, error: type[Exception]
) -> None:
    row = [("at", type_)]
    for wanted, given in ((type_, value), (type_, [value]), (row, (value,)), (row, [(value,)])):
        with pytest.raises(error, match="field at" if wanted is row else "Publisher.send: "):
            sent(name, wanted, given)
    if type_ != "M8":
        with ipc.Blackboard(name, {"at": type_}) as board, pytest.raises(error, match="'at'"):
            board["at"] = value


def test_a_text_is_refused_where_the_unit_of_another_is_finer(name: str) -> None:
    with pytest.raises(OverflowError, match="300000-01-01"):
        sent(name, "M8[ns]", ["2020-01-01T00:00:00.000000001", "300000-01-01"])


@pytest.mark.parametrize(
    "value",
    [
        "2020-01-01",
        np.datetime64("2020-01-01"),
        np.datetime64("2020-01-01", "ns"),
        datetime.datetime(2020, 1, 1),
        datetime.date(2020, 1, 1),
        1577836800,
        np.int64(1577836800),
    ],
)
def test_times_are_dates_texts_and_whole_numbers(name: str, value: Any) -> None:
    for wanted, given in (([("at", "M8[s]")], (value,)), ([("at", "M8[s]")], [(value,)])):
        assert sent(name, wanted, given).array["at"] == np.datetime64("2020-01-01")
    for given in (value, [value], np.array([value])):
        assert sent(name, "M8[s]", given).array == np.datetime64("2020-01-01")


@pytest.mark.parametrize("value", [5, datetime.timedelta(seconds=5), np.timedelta64(5000, "ms")])
def test_spans_of_time_arrive(name: str, value: Any) -> None:
    assert sent(name, "m8[s]", value).array == np.timedelta64(5, "s")
    assert sent(name, [("span", "m8[s]")], (value,)).array["span"] == np.timedelta64(5, "s")


def test_no_time_arrives(name: str) -> None:
    for value in (np.datetime64("NaT"), "NaT", [None, datetime.date(2020, 1, 1)]):
        assert np.isnat(sent(name, "M8[s]", value).array.flat[0])


def test_times_of_several_kinds_in_one_field(name: str) -> None:
    """By numpy a number among texts is a text, and among dates a number of days."""
    for other in ("2020-01-01", np.datetime64("2020-01-01")):
        found = sent(name, [("at", "M8[s]")], [(1970,), (other,)]).array["at"]
        assert found.tolist() == np.array([1970, 1577836800], "M8[s]").tolist()


def test_a_mapping_that_was_sent_is_not_changed(name: str) -> None:
    given = {"x": 1, "n": np.int8(3), "on": 1}
    found = sent(name, Pose, given).value
    assert (found.x, found.n, found.on) == (1.0, 3, True)
    assert given == {"x": 1, "n": np.int8(3), "on": 1}


@pytest.mark.parametrize("value", [2.5, -0.0, math.inf, math.nan])
@pytest.mark.parametrize("type_", ["f8", ">f8", "f4", ipc.Array("f8", ())])
def test_a_float_arrives_as_one_number(name: str, type_: Any, value: float) -> None:
    sample = sent(name, type_, value, b"head")
    assert sample.array.shape == ()
    assert sample.header == b"head"
    np.testing.assert_equal(float(sample.value[()]), value)


@pytest.mark.parametrize(("type_", "error"), [("i8", ipc.TypeMismatch), (bytes, TypeError)])
def test_a_float_is_refused_where_it_is_no_value(name: str, type_: Any, error: Any) -> None:
    with pytest.raises(error):
        sent(name, type_, 2.5)


@pytest.mark.parametrize("nbytes", [0, 1, 40, 64 << 10, (64 << 10) + 1, 200_000])
@pytest.mark.parametrize("header", [None, b"head"])
def test_objects_of_any_size_arrive(name: str, nbytes: int, header: bytes | None) -> None:
    sample = sent(name, object, {"data": bytes(nbytes)}, header)
    assert sample.value == {"data": bytes(nbytes)}
    assert sample.header == header
    again = sent(name, object, ipc.PackedObject(sample.array))
    assert again.value == sample.value


def test_a_short_object_without_a_pickle_makes_no_sense(name: str) -> None:
    with pytest.raises(ValueError, match="no sense"):
        ipc.PackedObject(bytes(64))
    too_long = (1).to_bytes(8, "little") + (65).to_bytes(8, "little") + bytes(48 + 64)
    with pytest.raises(ValueError, match="longer than the sample"):
        ipc.PackedObject(too_long)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("f4", (3, 4)),
        ("f4", ()),
        ("f4", (0, 4)),
        ([("a", "u1"), ("b", "f8")], (2, 2)),
        ([("a", "u1"), ("b", "f8")], ()),
        ("S3", (2, 5)),
        ("f4", (1, 2, 1, 2, 1, 2)),
        ("(2,3)f4", (4, 5)),
        ("M8[s]", (2, 2)),
    ],
)
def test_loans_of_any_shape_are_arrays_of_their_slot(name: str, dtype: Any, shape: Any) -> None:
    with ipc.Publisher(name) as pub, ipc.Subscriber(name) as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        for number in range(3):
            loan = pub.loan(shape, dtype)
            plain = np.asarray(loan.array)
            assert plain.flags.c_contiguous
            assert plain.flags.writeable
            plain.reshape(-1).view(np.uint8)[:] = number
            before = plain.copy()
            loan.send()
            received = sub.receive(PATIENCE).array
            assert received.shape == plain.shape == np.zeros(shape, dtype).shape
            assert received.dtype == plain.dtype
            assert received.tobytes() == before.tobytes()
