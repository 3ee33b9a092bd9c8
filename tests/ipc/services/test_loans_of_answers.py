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
