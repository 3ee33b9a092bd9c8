# SPDX-License-Identifier: Apache-2.0
"""Memory of an adapter is an array of numpy's whose slices take bytes."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmnd
from shmnd import nd1


@pytest.fixture(params=["allocate", "named", "version 1"])
def memory(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "version 1":
        with nd1.Provider().open_adapter("127.0.0.1") as old:
            yield old.allocate(8192)
        return
    name = f"/shmnd-array-{id(request)}" if request.param == "named" else None
    with shmnd.open_adapter() as adapter:
        yield adapter.allocate(8192, name=name)


@pytest.mark.parametrize(
    "data",
    [b"hello", bytearray(b"hello"), memoryview(b"hello"), memoryview(b"h.e.l.l.o.")[::2]],
    ids=["bytes", "bytearray", "memoryview", "strided"],
)
def test_a_slice_takes_objects_with_bytes(memory: Any, data: Any) -> None:
    memory[2:7] = data
    assert memory[:9].tobytes() == b"\0\0hello\0\0"


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 4097, 8192])
def test_any_length_fits_a_slice_of_that_length(memory: Any, nbytes: int) -> None:
    data = bytes(number % 251 for number in range(nbytes))
    memory[:nbytes] = data
    assert bytes(memory[:nbytes]) == data
    assert not memory[nbytes:].any()


def test_every_kind_of_index_takes_bytes(memory: Any) -> None:
    memory[0] = b"7"  # numpy reads this as the number 7
    memory[-3:] = b"end"
    memory[10:14:2] = b"ab"
    memory[[20, 21]] = b"cd"
    memory[30:40][2:4] = b"ef"
    memory[40:46].reshape(2, 3)[:, :2] = b"ghij"
    memory[5:5] = b""
    memory[np.arange(8192) == 60] = b"k"
    assert memory[0] == ord("7")
    assert bytes(memory[-3:]) == b"end"
    assert bytes(memory[10:13]) == b"a\0b"
    assert bytes(memory[20:22]) == b"cd"
    assert bytes(memory[32:34]) == b"ef"
    assert bytes(memory[40:46]) == b"gh\0ij\0"
    assert memory[60] == ord("k")
    memory[...] = bytes(8192)
    assert not memory.any()


@pytest.mark.parametrize("data", [b"hell", b"hellos", b"7", b"", bytearray(4), memoryview(b"12")])
def test_another_length_is_refused_and_nothing_is_written(memory: Any, data: Any) -> None:
    with pytest.raises(ValueError, match=rf"{len(data)} bytes do not fit into a slice of 5; give"):
        memory[:5] = data
    with pytest.raises(ValueError, match="do not fit into one element"):
        memory[3] = b"two"
    assert not memory.any()


def test_a_text_is_to_be_encoded(memory: Any) -> None:
    with pytest.raises(TypeError, match=r"takes bytes; encode the text first, text.encode\(\)"):
        memory[:5] = "hello"


def test_numbers_are_assigned_as_numpy_does(memory: Any) -> None:
    memory[:3] = [1, 2, 3]
    memory[3:6] = 9
    memory[6] = 255
    memory[7:9] = np.array([4, 5], np.uint8)
    assert memory[:9].tolist() == [1, 2, 3, 9, 9, 9, 255, 4, 5]
    with pytest.raises(IndexError):
        memory[9000] = 1
    doubles = memory[:16].view(np.float64)
    doubles[:] = 0.5
    doubles[0] = b"2.5"  # text of a number, as in any array of numpy
    assert doubles.tolist() == [2.5, 0.5]


def test_memory_for_reading_stays_so() -> None:
    with shmnd.open_adapter() as adapter:
        adapter.allocate(64, name="/shmnd-array-read")[:4] = b"kept"
        named = adapter.allocate(64, name="/shmnd-array-read-2")
        named[:4] = b"kept"
        shown = adapter.attach("/shmnd-array-read-2", writable=False)
        with pytest.raises(ValueError, match="read-only"):
            shown[:4] = b"gone"
        assert bytes(shown[:4]) == b"kept"


def test_arrays_that_numpy_makes_of_it_are_plain(memory: Any) -> None:
    memory[:4] = b"\1\2\3\4"
    made = [memory + 1, memory.copy(), copy.copy(memory), copy.deepcopy(memory)]
    made.append(pickle.loads(pickle.dumps(memory, protocol=5)))
    for each in made:
        assert type(each) is np.ndarray
        assert not np.shares_memory(each, memory)
    assert memory[:4].sum() == 10
    assert type(memory[:4].max()) is np.uint8
    np.add(memory, 1, out=memory)
    memory += 1
    assert memory[:5].tolist() == [3, 4, 5, 6, 2]
