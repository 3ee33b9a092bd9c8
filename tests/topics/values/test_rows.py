# SPDX-License-Identifier: Apache-2.0
"""Rows of structured types: each form of a row arrives as it is, and no number is cut."""

import dataclasses
from typing import Annotated, Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0
POINT = np.dtype([("x", "i2"), ("y", "f8")])
PATH = np.dtype([("name", "S4"), ("points", POINT, (2,)), ("at", POINT), ("when", "M8[s]")])


@dataclasses.dataclass
class Point:
    x: np.int16
    y: float


@dataclasses.dataclass
class Step:
    point: Point
    turns: Annotated[np.ndarray, ipc.Array("i2", 3)]


ROWS: list[Any] = [
    [(1, 2.5), (3, 4.5)],
    [{"y": 2.5, "x": 1}, {"x": 3, "y": 4.5}],
    [Point(np.int16(1), 2.5), Point(np.int16(3), 4.5)],
    [(1.0, 2.5), {"x": 3, "y": 4.5}],
    list(np.array([(1, 2.5), (3, 4.5)], POINT)),
    [np.array((1, 2.5), POINT), np.array((3, 4.5), [("y", "f8"), ("x", "i8")][::-1])],
]


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_each_form_arrive(name: str, rows: Any) -> None:
    wanted = np.array([(1, 2.5), (3, 4.5)], POINT)
    with ipc.Publisher(name, POINT) as pub, ipc.Subscriber(name, POINT) as sub:
        pub.send(rows)
        assert np.array_equal(sub.receive(PATIENCE).value, wanted)
        pub.send([rows, rows, rows])
        assert np.array_equal(sub.receive(PATIENCE).value, [wanted] * 3)
    with (
        ipc.Publisher(f"{name}.", ipc.Array(POINT, 2)) as pub,
        ipc.Subscriber(f"{name}.") as sub,
    ):
        for value in (rows, tuple(rows)):  # its shape says which of them is a row
            pub.send(value)
            assert np.array_equal(sub.receive(PATIENCE).value, wanted)
    with ipc.Blackboard(name, {"rows": (POINT, 2)}) as board:
        board["rows"] = rows
        assert np.array_equal(board["rows"], wanted)


def test_rows_with_rows_in_them_arrive(name: str) -> None:
    rows = [
        (b"ab", [(1, 2), (3, 4)], (5, 6), "2026-01-02"),
        {
            "name": "cd", "points": np.ones(2, POINT), "at": Point(np.int16(7), 8.0),
            "when": np.datetime64("2026-01-03"),
        },
    ]  # fmt: skip
    with ipc.Publisher(name, PATH) as pub, ipc.Subscriber(name) as sub:
        pub.send(rows)
        found = sub.receive(PATIENCE).value
        assert found["name"].tolist() == [b"ab", b"cd"]
        assert found["points"].tolist() == [[(1, 2), (3, 4)], [(1, 1), (1, 1)]]
        assert found["at"].tolist() == [(5, 6), (7, 8)]
        assert found["when"].astype(str).tolist() == ["2026-01-02T00:00:00", "2026-01-03T00:00:00"]
        pub.send(rows[0])
        assert sub.receive(PATIENCE).value.points.tolist() == [(1, 2), (3, 4)]
        for empty, shape in (([], (0,)), ([[], []], (2, 0))):
            pub.send(empty)
            assert sub.receive(PATIENCE).value.shape == shape


def test_whole_numbers_beside_others_keep_their_digits(name: str) -> None:
    with ipc.Publisher(name, [("n", "i8")]) as pub, ipc.Subscriber(name) as sub:
        pub.send([(2**60 + 1,), (1.0,), (-(2**63),)])
        assert sub.receive(PATIENCE).value["n"].tolist() == [2**60 + 1, 1, -(2**63)]


WRONG: list[tuple[Any, type[Exception], str]] = [
    ([(1, 2), (1.5, 2)], ipc.TypeMismatch, r"row 1: field x: 1\.5 is not a whole number"),
    ([(70000, 2)], OverflowError, "row 0: field x: 70000 is outside"),
    ([{"x": 1, "y": 2}, {"x": 2**70, "y": 2}], OverflowError, f"row 1: field x: {2**70}"),
    ([("1", 2)], ipc.TypeMismatch, "row 0: field x: '1' is not a number"),
    ([(1, 2), (None, 2)], ipc.TypeMismatch, "row 1: field x: None is not a number"),
    ([[1, 2.5]], ipc.TypeMismatch, "row 0: int is not a record"),
    ([1, 2], ipc.TypeMismatch, "row 0: int is not a record"),
    ([(1, 2), None], ipc.TypeMismatch, "row 1: NoneType is not a record"),
    ([(1, 2), (1,)], ipc.TypeMismatch, "row 1: a tuple of 1 is not a record"),
    ([{"x": 1}], ipc.TypeMismatch, r"row 0: .*missing: \['y'\]"),
    ([{"x": 1, 5: 2}], ipc.TypeMismatch, r"row 0: .*unknown: \[5\]"),
    ([[(1, 2)], [(1, 2), (1, 2)]], ipc.TypeMismatch, "rows in lists of unequal length"),
    ([([1, 2], 2)], ValueError, r"row 0: field x has shape \(\), the value \(2,\)"),
    ([([1, [2]], 2)], ipc.TypeMismatch, "row 0: field x: the value cannot be an array"),
    ({"x": [1, [2]], "y": 2}, ipc.TypeMismatch, "field x: the value cannot be an array"),
    ([Point], ipc.TypeMismatch, "row 0: the class Point is not a record"),
    ("ab", ipc.TypeMismatch, "str is not a record"),
]


@pytest.mark.parametrize(("value", "kind", "text"), WRONG, ids=[str(each[0]) for each in WRONG])
def test_wrong_rows_are_refused(name: str, value: Any, kind: type[Exception], text: str) -> None:
    with ipc.Publisher(name, POINT) as pub, pytest.raises(kind, match=f"Publisher.send: {text}"):
        pub.send(value)
    if isinstance(value, list):
        with (
            ipc.Publisher(f"{name}.", ipc.Array(POINT, 2)) as pub,
            pytest.raises(kind, match="row"),
        ):
            pub.send(value)
    key = (POINT, 2) if isinstance(value, list) else POINT
    with ipc.Blackboard(name, {"rows": key}) as board, pytest.raises(kind, match=text):
        board["rows"] = value


def test_lists_without_an_end_are_refused(name: str) -> None:
    deep: list[Any] = []
    deep.append(deep)
    with ipc.Publisher(name, POINT) as pub, pytest.raises(ipc.TypeMismatch, match="at most 32"):
        pub.send(deep)


def test_invalid_texts_and_dates_are_refused(name: str) -> None:
    wrong: list[tuple[Any, Any, str]] = [
        ("S4", [None], "the topic .*; pass text"),
        ("U4", [12345], "12345 is not text"),
        ("M8[s]", ["never"], "Publisher.send: .*never"),
        ([("s", "S4")], (None,), "field s: None is not text"),
        ([("s", "M8[s]")], [("never",)], "row 0: field s: .*never"),
    ]
    for number, (type_, value, text) in enumerate(wrong):
        pub = ipc.Publisher(f"{name}{number}", type_)
        with pub, pytest.raises(ipc.TypeMismatch, match=text):
            pub.send(value)


def test_a_field_of_a_loan_is_not_cut(name: str) -> None:
    with ipc.Publisher(name, Step) as pub, ipc.Subscriber(name) as sub:
        with pub.loan() as loan:
            record = loan.array
            with pytest.raises(ipc.TypeMismatch, match=r"field turns: 1\.5 is not a whole number"):
                record.turns = [1.5, 2, 3]
            with pytest.raises(OverflowError, match="field x: 70000 is outside"):
                record.point.x = 70000
            record.turns = 7  # one value for all of them, as numpy has it
            record.point = (1, 2.0)
            loan.send()
        value = sub.receive(PATIENCE).value
        assert value.turns.tolist() == [7, 7, 7]
        assert (value.point.x, value.point.y) == (1, 2)


def test_rows_of_a_service(name: str) -> None:
    with ipc.Server(name, POINT, ipc.Array(POINT, 2)) as server, ipc.Client(name) as client:
        pending = client.send([{"x": 1, "y": 2}, (3, 4)])
        request = server.receive(PATIENCE)
        assert request.value.tolist() == [(1, 2), (3, 4)]
        with pytest.raises(ipc.TypeMismatch, match=r"row 1: field x: 1\.5"):
            request.respond([(1, 2), (1.5, 2)])
        request.respond(((1, 2), Point(np.int16(3), 4.0)))
        assert pending.result(PATIENCE).value.tolist() == [(1, 2), (3, 4)]


@pytest.mark.parametrize("value", [{"a": [1]}, {"a": [1], "b": [2], "c": [3]}, [[1], [2]], 5])
def test_arrays_of_a_service_must_match_its_type(name: str, value: Any) -> None:
    arrays = ipc.Arrays(a=ipc.Array("f8", 1), b=ipc.Array("f8", 1))
    wrong = pytest.raises(ipc.TypeMismatch, match=r"Client\.send: (the record has|.* is not a)")
    with ipc.Server(name, arrays), ipc.Client(name, arrays) as client, wrong:
        client.send(value)


class Odd:
    """Its array cannot be made."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise AssertionError("no array")

    def __reduce__(self) -> Any:
        return Odd, ()


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(70000, OverflowError, "70000"), (Odd(), AssertionError, "no array")],
)
def test_a_request_that_is_not_of_its_type_is_answered(
    name: str, value: Any, kind: type[Exception], text: str
) -> None:
    with ipc.Server(name, "i2") as server, ipc.Client(name) as client:
        pending = client.send(value)
        with pytest.raises(TimeoutError):
            server.receive(0.1)
        with pytest.raises(kind, match=text):
            pending.result(PATIENCE)
