# SPDX-License-Identifier: Apache-2.0
"""Titles of the fields of a structured type: they arrive, and two ends agree on them."""

import json
from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 30.0
WITHOUT = np.dtype([("a", "f8"), ("b", "i4")])
TITLED = np.dtype([(("length in m", "a"), "f8"), ("b", "i4")])
NESTED = np.dtype([(("where", "at"), TITLED, (2,)), ("n", "u1")])
SHAPES = [(3,), (1, 1, 1, 2, 1, 2)]


def received(sent: Any, publisher: Any, subscriber: Any) -> Any:
    with ipc.Publisher("t", publisher) as pub, ipc.Subscriber("t", subscriber) as sub:
        pub.wait_for_subscribers(1, PATIENCE)
        pub.send(sent)
        with sub.receive(PATIENCE) as sample:
            return sample.array.copy()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [TITLED, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("typed", ["dtype", "array", "any"])
def test_titles_arrive(typed: str, named: bool, dtype: np.dtype[Any], shape: Any) -> None:
    sent = np.zeros(shape, dtype)
    types = {"dtype": dtype, "array": ipc.Array(dtype, shape), "any": None}
    found = received(sent, types[typed], types[typed] if named else None)
    assert found.dtype == dtype
    assert found.dtype.fields.keys() == dtype.fields.keys()  # type: ignore[union-attr]  # it has
    assert found.shape == shape


def test_a_title_names_its_field() -> None:
    found = received(np.ones(2, TITLED), TITLED, None)
    assert found["length in m"].tolist() == [1.0, 1.0]


def test_ends_with_other_titles_disagree() -> None:
    with ipc.Publisher("t", TITLED), pytest.raises(ipc.TypeMismatch, match="length in m"):
        ipc.Subscriber("t", WITHOUT)


def test_a_description_without_titles_is_as_before() -> None:
    with ipc.Publisher("t", WITHOUT) as pub:
        assert pub.type.description == {
            "structured": ["struct", [["a", "<f8", 0], ["b", "<i4", 8]], 12]
        }
    with ipc.Publisher("t", NESTED) as pub:
        written = json.loads(json.dumps(pub.type.description))
        assert ipc.TopicType.from_description(written) == pub.type


@pytest.mark.parametrize("typed", [True, False])
def test_a_title_that_is_not_text(typed: bool) -> None:
    dtype = np.dtype({"names": ["a"], "formats": ["f8"], "titles": [(1, 2)]})
    outer = np.dtype([("inner", dtype, (2,))])
    with pytest.raises(TypeError, match=r"^Publisher.*field 'a'.* title \(1, 2\).* not text"):
        received(np.zeros(2, outer), outer if typed else None, None)
    with pytest.raises(TypeError, match=r"^ipc\.Array: field 'a'.* title \(1, 2\)"):
        ipc.Array(outer, 3)


def test_a_field_with_a_title_is_named_once() -> None:
    description = {"record": ["struct", [["a", "<i4", 0, "Title"]], 4]}
    assert repr(ipc.TopicType.from_description(description)) == "record(a: int32)"
