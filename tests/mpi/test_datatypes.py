# SPDX-License-Identifier: Apache-2.0
"""Datatypes: where their bytes lie, how they are packed, and how they are made again."""

import itertools
import math
import pickle
import random
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from shmnd.mpi import constants
from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.datatypes import datatype
from shmnd.mpi.datatypes.datatype import BYTE, CHAR, DOUBLE, INT, LONG, SHORT, Datatype
from shmnd.mpi.objects.errors import Exception as MPIException

DEFAULT: Final = constants.DISTRIBUTE_DFLT_DARG
COMM = object()
"""Packing asks only whether there is a communicator."""


def packed(made: Datatype, memory: bytearray) -> bytes:
    """The packed bytes of the item that begins at the start of `memory`."""
    size, extent = made.Get_size(), max(made.extent, 1)
    out = bytearray(size * (len(memory) // extent + 1))
    made.Commit().Pack(memory, out, 0, COMM)
    return bytes(out[:size])


def memory_of(size: int) -> bytearray:
    return bytearray(i % 251 for i in range(size))


@pytest.mark.parametrize(
    ("count", "length", "stride"), [(3, 2, 4), (4, 1, 1), (2, 3, 3), (1, 5, 7)]
)
def test_a_vector_packs_the_rows_that_numpy_sees(count: int, length: int, stride: int) -> None:
    memory = memory_of(400)
    rows = np.frombuffer(memory, np.int32)[: count * stride].reshape(count, stride)[:, :length]
    made = INT.Create_vector(count, length, stride)
    assert packed(made, memory) == rows.tobytes()
    assert made.Get_extent() == (0, ((count - 1) * stride + length) * 4)


@pytest.mark.parametrize("order", [constants.ORDER_C, constants.ORDER_FORTRAN])
def test_a_subarray_packs_the_part_that_numpy_sees(order: int) -> None:
    memory = memory_of(4 * 5 * 6 * 2)
    sizes, part, starts = (4, 5, 6), (2, 3, 4), (1, 0, 2)
    letters = "C" if order == constants.ORDER_C else "F"
    array = np.frombuffer(memory, np.int16).reshape(sizes, order=letters)
    expected = array[tuple(slice(s, s + n) for s, n in zip(starts, part, strict=True))]
    made = SHORT.Create_subarray(sizes, part, starts, order)
    assert packed(made, memory) == expected.tobytes(order=letters)
    assert made.Get_extent() == (0, len(memory))


@pytest.mark.parametrize("order", [constants.ORDER_C, constants.ORDER_FORTRAN])
@pytest.mark.parametrize("kind", [constants.DISTRIBUTE_BLOCK, constants.DISTRIBUTE_CYCLIC])
def test_the_shares_of_a_distributed_array_have_every_item_once(order: int, kind: int) -> None:
    memory = memory_of(7 * 9)
    seen: list[int] = []
    for rank in range(6):
        made = BYTE.Create_darray(6, rank, (7, 9), (kind, kind), (-1, -1), (2, 3), order)
        seen.extend(packed(made, memory))
        assert made.Get_extent() == (0, 63)
    assert sorted(seen) == sorted(memory)


def places_of(kind: int, argument: int, size: int, processes: int) -> np.ndarray[Any, Any]:
    """Return the process of each index of a dimension, by the definition of the standard."""
    at = np.arange(size)
    if kind == constants.DISTRIBUTE_NONE:
        return at * 0
    if kind == constants.DISTRIBUTE_BLOCK:
        return at // (-(-size // processes) if argument == DEFAULT else argument)
    return at // (1 if argument == DEFAULT else argument) % processes


@pytest.mark.parametrize("order", [constants.ORDER_C, constants.ORDER_FORTRAN])
@pytest.mark.parametrize(
    ("kinds", "arguments", "grid"),
    [
        ((constants.DISTRIBUTE_BLOCK, constants.DISTRIBUTE_CYCLIC), (DEFAULT, DEFAULT), (2, 3)),
        ((constants.DISTRIBUTE_CYCLIC, constants.DISTRIBUTE_CYCLIC), (3, 2), (2, 3)),
        ((constants.DISTRIBUTE_CYCLIC, constants.DISTRIBUTE_CYCLIC), (1, 4), (3, 2)),
        ((constants.DISTRIBUTE_BLOCK, constants.DISTRIBUTE_CYCLIC), (6, 4), (3, 2)),
        ((constants.DISTRIBUTE_NONE, constants.DISTRIBUTE_BLOCK), (DEFAULT, 2), (1, 6)),
        ((constants.DISTRIBUTE_CYCLIC, constants.DISTRIBUTE_NONE), (2, DEFAULT), (6, 1)),
    ],
)
def test_a_share_of_a_distributed_array_follows_the_standard(
    kinds: tuple[int, int], arguments: tuple[int, int], grid: tuple[int, int], order: int
) -> None:
    letters = "C" if order == constants.ORDER_C else "F"
    memory = memory_of(7 * 9)
    array = np.frombuffer(memory, "u1").reshape((7, 9), order=letters)
    rows, columns = map(places_of, kinds, arguments, (7, 9), grid)
    for rank, place in enumerate(np.ndindex(grid)):
        mine = array[np.ix_(rows == place[0], columns == place[1])]
        made = BYTE.Create_darray(6, rank, (7, 9), kinds, arguments, grid, order)
        assert packed(made, memory) == mine.tobytes(order=letters)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rank": 6}, "rank 6 of 6 processes in a grid of [2, 3]"),
        ({"rank": -1}, "rank -1 of 6 processes"),
        ({"psizes": (2, 2)}, "rank 0 of 6 processes in a grid of [2, 2]"),
        ({"psizes": (-2, -3), "distribs": (1, 1)}, "rank 0 of 6 processes in a grid of [-2, -3]"),
        ({"gsizes": (-7, 9)}, "an array of [-7, 9] items; expected 0 or more"),
        ({"gsizes": (0, -1)}, "an array of [0, -1] items; expected 0 or more"),
        ({"distribs": (9, 1)}, "distribution 9: expected one of DISTRIBUTE_*"),
        ({"distribs": (constants.DISTRIBUTE_NONE, 1)}, "DISTRIBUTE_NONE over 2 processes"),
        ({"dargs": (0, DEFAULT)}, "a distribution argument of 0; expected 1 or more"),
        ({"dargs": (-5, DEFAULT)}, "a distribution argument of -5; expected 1 or more"),
        ({"dargs": (3, DEFAULT)}, "2 blocks of 3 are fewer than 7 items"),
        ({"order": 7}, "order 7: expected ORDER_C or ORDER_FORTRAN"),
    ],
)
def test_a_distributed_array_that_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    right: dict[str, Any] = {
        "size": 6,
        "rank": 0,
        "gsizes": (7, 9),
        "distribs": (constants.DISTRIBUTE_BLOCK, constants.DISTRIBUTE_CYCLIC),
        "dargs": (DEFAULT, DEFAULT),
        "psizes": (2, 3),
    }
    assert BYTE.Create_darray(**right).Get_size() == 4 * 3
    assert BYTE.Create_darray(**right | {"gsizes": (1, 9)}).Get_size() == 3
    with pytest.raises(MPIException, match=re.escape(f"Datatype.Create_darray: {words}")) as raised:
        BYTE.Create_darray(**right | given)
    assert raised.value.Get_error_class() == constants.ERR_ARG


@pytest.mark.parametrize("order", [constants.ORDER_C, constants.ORDER_FORTRAN])
@pytest.mark.parametrize("kind", [constants.DISTRIBUTE_BLOCK, constants.DISTRIBUTE_CYCLIC])
@pytest.mark.parametrize("argument", [DEFAULT, 3])
@pytest.mark.parametrize("sizes", [(0, 9), (7, 0), (0, 0)])
def test_all_processes_get_an_empty_type_of_an_empty_array(
    sizes: tuple[int, int], argument: int, kind: int, order: int
) -> None:
    for rank in range(6):
        arguments = (argument, 5)  # as many blocks as the larger dimension needs
        made = BYTE.Create_darray(6, rank, sizes, (kind, kind), arguments, (3, 2), order).Commit()
        assert (made.Get_size(), made.Get_extent(), made.Get_true_extent()) == (0, (0, 0), (0, 0))
        assert packed(made, bytearray(8)) == b""
        made.Free()


@pytest.mark.parametrize(
    ("digits", "size"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 4), (9, 4), (10, 8), (18, 8)]
)
def test_an_integer_of_fortran_has_room_for_its_digits(digits: int, size: int) -> None:
    made = Datatype.Create_f90_integer(digits)
    assert made.Get_size() == size
    assert made.decode()[1:] == ("F90_INTEGER", {"r": digits})
    assert made.is_predefined
    assert made == Datatype.Create_f90_integer(digits)  # the standard has one handle for both


@pytest.mark.parametrize(
    ("digits", "exponent", "size"),
    [
        (6, 37, 4), (7, 37, 8), (6, 38, 8), (15, 307, 8), (16, 307, 16), (15, 308, 16),
        (33, 4931, 16), (15, constants.UNDEFINED, 8), (constants.UNDEFINED, 37, 4),
    ],
)  # fmt: skip
def test_reals_of_fortran_have_digits_and_an_exponent(
    digits: int, exponent: int, size: int
) -> None:
    for make, times, kind in (
        (Datatype.Create_f90_real, 1, "F90_REAL"),
        (Datatype.Create_f90_complex, 2, "F90_COMPLEX"),
    ):
        made = make(digits, exponent)
        assert made.Get_size() == times * size
        assert made.decode()[1:] == (kind, {"p": digits, "r": exponent})
        assert made == make(digits, exponent)
        assert made != make(digits - 1, exponent)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: INT.Create_indexed([1, 2], [0]), "Create_indexed: 2 blocklengths and 1 displ"),
        (lambda: INT.Create_hindexed([1], [0, 8]), "Create_hindexed: 1 blocklengths and 2 displ"),
        (lambda: Datatype.Create_struct([1, 2], [0], [INT]), "Create_struct: 2 blocklengths and 1"),
        (lambda: Datatype.Create_struct([1], [0], [INT] * 2), "1 blocklengths and 2 datatypes"),
    ],
)
def test_lists_of_different_lengths_are_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_a_struct_is_padded_as_a_struct_of_c() -> None:
    made = Datatype.Create_struct([1, 2, 1], [0, 4, 16], [CHAR, INT, DOUBLE])
    layout = np.dtype([("a", "c"), ("b", "i4", 2), ("c", "f8")], align=True)
    assert made.Get_extent() == (0, layout.itemsize)
    assert made.Get_size() == 17


def test_random_types_pack_their_items() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(200):
        made, items = INT, [0]
        for _ in range(draw.randrange(1, 4)):
            extent = made.extent
            lengths = [draw.randrange(3) for _ in range(draw.randrange(1, 4))]
            places, place = [], 0
            for length in lengths:
                place += draw.randrange(3) * 4
                places.append(place)
                place += length * extent
            made = made.Create_hindexed(lengths, places)
            items = [
                start + step * extent + item
                for start, length in zip(places, lengths, strict=True)
                for step in range(length)
                for item in items
            ]
        memory = memory_of(max([0, *items]) + 4)
        expected = b"".join(memory[item : item + 4] for item in items)
        assert made.Get_size() == len(expected)
        if expected:
            assert packed(made, memory) == expected
            back = bytearray(len(memory))
            made.Unpack(expected, 0, back, COMM)
            again = bytearray(len(expected))
            made.Pack(back, again, 0, COMM)
            assert again == expected


def test_external32_is_big_endian() -> None:
    out = bytearray(16)
    assert INT.Pack_external("external32", np.array([1, -2], np.int32), out, 0) == 8
    assert bytes(out[:8]) == b"\0\0\0\1\xff\xff\xff\xfe"
    back = np.zeros(2, np.int32)
    INT.Unpack_external("external32", out, 0, back)
    assert back.tolist() == [1, -2]
    wide = np.array([1.5, -0.25], np.longdouble)
    out = bytearray(32)
    datatype.LONG_DOUBLE.Pack_external("external32", wide, out, 0)
    assert out[:2] == b"\x3f\xff"
    again = np.zeros(2, np.longdouble)
    datatype.LONG_DOUBLE.Unpack_external("external32", out, 0, again)
    assert again.tolist() == wide.tolist()


def test_pickles_make_the_same_type_again() -> None:
    made = Datatype.Create_struct([1, 2], [0, 8], [LONG.Create_vector(2, 1, 3), DOUBLE.Dup()])
    again = pickle.loads(pickle.dumps(made))
    assert again.Get_extent() == made.Get_extent()
    assert again.envelope == made.envelope
    assert pickle.loads(pickle.dumps(INT)) is INT


def test_a_resized_type_repeats_at_its_extent() -> None:
    column = INT.Create_vector(3, 1, 3).Create_resized(0, 4).Commit()
    square = np.arange(9, dtype=np.int32).reshape(3, 3)
    out = np.zeros(9, np.int32)
    column.Pack(square, out, 0, COMM)
    assert out.reshape(3, 3).tolist() == square.T.tolist()


def test_packing_takes_the_items_that_are_in_the_buffer() -> None:
    ahead = INT.Create_hindexed([1], [4]).Commit()
    memory, out = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    assert ahead.Pack(memory, out, 0, COMM) == 12  # the fourth would be read behind the end
    assert out.tolist() == [1, 2, 3, 0]
    assert ahead.Pack(b"", out, 0, COMM) == 0
    assert ahead.Pack(bytes(3), out, 0, COMM) == 0  # not as long as an item


@pytest.mark.parametrize(
    "outside",
    [INT.Create_hindexed([1], [-4]), INT.Create_hindexed([1], [16]), INT.Create_vector(5, 1, 1)],
    ids=["before", "behind", "longer"],
)
def test_packing_no_item_of_a_buffer_that_is_long_enough_is_an_error(outside: Datatype) -> None:
    one = outside.Create_resized(0, 4).Commit()
    memory = np.arange(4, dtype=np.int32)
    for packs in (
        lambda: one.Pack(memory, bytearray(99), 0, COMM),
        lambda: one.Unpack(bytes(99), 0, memory, COMM),
        lambda: one.Pack_external("external32", memory, bytearray(99), 0),
        lambda: one.Unpack_external("external32", bytes(99), 0, memory),
    ):
        with pytest.raises(ValueError, match=r"k(_external)?: an item takes the bytes .* of 16 by"):
            packs()


def test_packing_trusts_the_program_about_an_address() -> None:
    before = INT.Create_hindexed([1], [-4]).Commit()
    memory, out = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    second = buffer.fromaddress(memory.ctypes.data + 4, 12)
    assert before.Pack(second, out, 0, COMM) == 12
    assert out.tolist() == [0, 1, 2, 0]


def test_numbers_that_fit_no_int_are_counts() -> None:
    ints, _, counts, _ = BYTE.Create_contiguous(1 << 40).contents
    assert (ints, counts) == ([], [1 << 40])


@pytest.mark.parametrize("order", [constants.ORDER_C, constants.ORDER_FORTRAN])
@pytest.mark.parametrize(
    ("sizes", "part"), [((4, 0), (4, 0)), ((0, 3), (0, 2)), ((0,), (0,)), ((2, 3), (0, 3))]
)
def test_a_part_of_an_array_may_be_empty(sizes, part, order: int) -> None:
    """Ranks that have no row of an array make a subarray as the others do."""
    made = INT.Create_subarray(sizes, part, (0,) * len(sizes), order).Commit()
    assert (made.Get_size(), made.Get_extent()) == (0, (0, 4 * math.prod(sizes)))
    assert made.decode()[2]["sizes"] == list(sizes)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: datatype.DATATYPE_NULL.Dup(), constants.ERR_TYPE),
        (lambda: INT.Free(), constants.ERR_TYPE),
        (lambda: INT.Create_vector(-1, 1, 1), constants.ERR_COUNT),
        (lambda: INT.Create_subarray((4,), (3,), (2,)), constants.ERR_ARG),
        (lambda: INT.Create_subarray((-1,), (0,), (0,)), constants.ERR_ARG),
        (lambda: INT.Pack(bytes(8), bytearray(4), 0, COMM), constants.ERR_TRUNCATE),
        (lambda: INT.Pack(bytes(8), bytearray(8), 9, COMM), constants.ERR_ARG),
        (lambda: INT.Pack(bytes(8), bytearray(8), 0, None), constants.ERR_COMM),
    ],
)
def test_invalid_calls_of_a_type_are_errors_of_mpi(call, code) -> None:
    with pytest.raises(MPIException) as caught:
        call()
    assert caught.value.Get_error_class() == code


def test_every_code_leads_back_to_a_type_that_is_alike() -> None:
    for code, made in itertools.chain(datatype._typedict.items()):
        found = Datatype.fromcode(code)
        assert found is made
        assert (found.typechar, found.typestr) == (made.typechar, made.typestr)
