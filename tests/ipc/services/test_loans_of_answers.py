# SPDX-License-Identifier: Apache-2.0
"""Loans of answers: memory of each type that a response may have."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0
ARRAYS = ipc.Arrays(at=ipc.Array("f4", (2, 3)), count=ipc.Array("i4", (4,)))


@dataclass
class State:
    at: float


def _answer(response: Any, *wanted: Any) -> Any:
    """Return what a client gets of a loan that is filled with sevens."""
    with ipc.Server("s", None, response) as server, ipc.Client("s", None, response) as client:
        pending = client.send("please")
        with server.receive(PATIENCE).loan(*wanted) as loan:
            for part in loan.array.values() if isinstance(loan.array, dict) else [loan.array]:
                part[...] = 7
            assert "to be filled" in repr(loan)
            loan.send()
        return pending.result(PATIENCE).value


def test_a_loan_of_several_arrays_has_their_fields() -> None:
    value = _answer(ARRAYS)
    assert value.at.shape == (2, 3)
    assert value.at.dtype == np.float32
    assert value["count"].tolist() == [7] * 4


@pytest.mark.parametrize(
    ("response", "wanted", "shape", "dtype"),
    [
        (ipc.Array("f4", (2, 3)), (), (2, 3), "f4"),
        ("i2", (5,), (5,), "i2"),
        ("2f8", (), (2,), "f8"),
        (np.dtype("2f8"), (), (2,), "f8"),
        (float, (), (), "f8"),
        (None, (3, "f4"), (3,), "f4"),
        (None, (3,), (3,), "u1"),
        (object, ((2, 2), "f4"), (2, 2), "f4"),
        (object, (4,), (4,), "u1"),
    ],
)
def test_a_loan_of_an_array_has_its_type(
    response: Any, wanted: tuple[Any, ...], shape: tuple[int, ...], dtype: str
) -> None:
    value = _answer(response, *wanted)
    assert (value.shape, value.dtype) == (shape, np.dtype(dtype))
    assert (value == 7).all()


def test_a_loan_of_a_dtype_of_floats_holds_fractions() -> None:
    """It equals None, which numpy takes for the type of floats."""
    response = np.dtype("f8")
    with ipc.Server("s", None, response) as server, ipc.Client("s", None, response) as client:
        pending = client.send("please")
        with server.receive(PATIENCE).loan() as loan:
            loan.array[...] = 0.5
            loan.send()
        assert pending.result(PATIENCE).value == 0.5


def test_a_loan_of_bytes_arrives_as_bytes() -> None:
    assert _answer(bytes, 5) == b"\7" * 5


def test_a_loan_of_a_dataclass_is_refused() -> None:
    with ipc.Server("s", None, State) as server, ipc.Client("s", None, State) as client:
        pending = client.send("please")
        request = server.receive(PATIENCE)
        with pytest.raises(TypeError, match="respond with an object of it"):
            request.loan()
        request.respond(State(1.0))
        assert pending.result(PATIENCE).value == State(1.0)


@pytest.mark.parametrize("kind", [object, bytes])
def test_a_service_may_have_a_dtype_that_equals_a_class(kind: type) -> None:
    with ipc.Server("s", np.dtype(kind)) as server, ipc.Client("s", np.dtype(kind)):
        assert server.request == np.dtype(kind)


@pytest.mark.parametrize(
    ("response", "wanted", "kind", "text"),
    [
        (None, (-1,), ValueError, "shape -1 is outside"),
        (None, ("x",), TypeError, "shape 'x' is not a whole number"),
        (None, ((2, 1.5),), TypeError, "shape 1.5 is not a whole number"),
        (None, (3, "floaty"), TypeError, "'floaty' cannot be used"),
        (ARRAYS, (3,), TypeError, "pass a dtype too, or neither"),
    ],
)
def test_a_loan_that_cannot_be_is_refused_by_name(
    response: Any, wanted: tuple[Any, ...], kind: type[Exception], text: str
) -> None:
    with ipc.Server("s", None, response) as server, ipc.Client("s", None, response) as client:
        pending = client.send("please")
        request = server.receive(PATIENCE)
        with pytest.raises(kind, match=rf"^Request\.loan: .*{text}"):
            request.loan(*wanted)
        assert not pending.done()
