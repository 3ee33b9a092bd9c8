# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire comes out as it went in; what makes no sense is an error."""

import random
from typing import Any

import numpy as np
import pytest

from shmnd.ipc.types import forms
from shmnd_tools.link import wire
from shmnd_tools.link.wire import Message


@pytest.mark.parametrize("names", [(), ("a",), ("a/b", "", "ä *$?#"), ('{"type": "u1"}',)])
def test_keys_take_any_name(names: tuple[str, ...]) -> None:
    key = wire.key("pub", *names)
    assert wire.parts(key) == ("pub", *names)
    assert not set(key) & set("*$?#")


@pytest.mark.parametrize("key", ["", "other/pub", f"{wire.PREFIX}/pub/plain", f"{wire.PREFIX}x/a"])
def test_invalid_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not a key of a link"):
        wire.parts(key)


@pytest.mark.parametrize(
    "message",
    [Message(1, 0), Message(2, 2**64 - 1, b"header"), Message(4, 7, b"h", b"meta"), Message(0, 5)],
)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert wire.unpack(wire.pack(message)) == message


VALUES: list[Any] = [
    *(None, True, 1, -2.5, "text", b"", b"bytes", [], {}, ()),
    *([1, [2, (3,)]], {"a": 1, 2: b"x", (1, 2): [None]}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    found = wire.unpack_value(wire.pack_value(value))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.zeros(0, ">i4"), np.float32(2.5), np.array(3, "u1"),
     np.array([(1, 2.0)], [("a", "u1"), ("b", "f8")]), np.arange(10)[::2]],
    ids=str,
)  # fmt: skip
def test_an_array_comes_back_as_it_was(array: Any) -> None:
    found = wire.unpack_value(wire.pack_value({"it": array}))["it"]
    np.testing.assert_array_equal(found, array)
    assert (found.dtype, found.shape, type(found)) == (array.dtype, array.shape, type(array))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        np.array([object()]),
        test_a_value_comes_back_as_it_was,
        np.ma.masked_array([1]),
    ],
)
def test_values_that_need_a_pickle_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot go over a link"):
        wire.pack_value([value])


def test_values_without_end_are_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError, match="nested"):
        wire.pack_value(value)


@pytest.mark.parametrize("shape", [(2**40,), (2**63, 2), (7,), (0, 2**60, 4)])
def test_an_array_larger_than_its_bytes_is_refused(shape: tuple[int, ...]) -> None:
    meta = forms.described_as(np.dtype("u1"), shape, "test")
    with pytest.raises(ValueError, match="array of"):
        wire.array_of(Message(1, 0, None, meta), b"12345")


def test_damaged_bytes_are_errors() -> None:
    rng = random.Random(5)
    whole = wire.pack_value({"a": np.arange(5), "b": [b"x", 1.5, None]})
    packed = wire.pack(Message(1, 3, b"header", forms.described_as(np.dtype("f4"), (2, 3), "test")))
    for _ in range(3000):
        for data, read in ((whole, wire.unpack_value), (packed, wire.unpack)):
            damaged = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            del damaged[rng.randint(0, len(damaged)) :]
            try:
                read(bytes(damaged))
            except ValueError:
                pass
