# SPDX-License-Identifier: Apache-2.0
"""Reductions: the kernels against numpy, pairs, functions of the program, refusals."""

import ctypes
import pickle
from array import array

import numpy as np
import pytest

from shmnd.mpi import MPI, constants
from shmnd.mpi.collectives import op
from shmnd.mpi.datatypes import datatype
from shmnd.mpi.objects.errors import Exception as MPIException

LETTERS = "bhilqBHILQfdg"
NUMBERS = {
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SUM": np.add,
    "PROD": np.multiply,
}
BITS = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
TRUTH = {"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor}


def arrays(letter: str, count: int = 37) -> tuple[np.ndarray, np.ndarray]:
    left = (np.arange(count) * 7 % 11 - 3 * (letter.islower())).astype(letter)
    right = (np.arange(count)[::-1] * 5 % 13).astype(letter)
    return left, right


@pytest.mark.parametrize("letter", LETTERS)
def test_kernels_reckon_as_numpy_does(letter: str) -> None:
    tables = NUMBERS if letter in "fdg" else {**NUMBERS, **BITS, **TRUTH}
    for name, function in tables.items():
        left, right = arrays(letter)
        expected = function(left, right).astype(letter)
        getattr(op, name).Reduce_local(left, right)
        assert right.tolist() == expected.tolist(), name


@pytest.mark.parametrize("letter", "FDG")
def test_complex_numbers_are_added_and_multiplied(letter: str) -> None:
    for name, function in (("SUM", np.add), ("PROD", np.multiply)):
        left, right = (part.astype(letter) * (1 + 2j) for part in arrays("d"))
        left, right = left.astype(letter), right.astype(letter)
        expected = function(left, right)
        getattr(op, name).Reduce_local(left, right)
        assert np.allclose(right, expected)


def test_unaligned_memory_is_reduced() -> None:
    memory = bytearray(1 + 8 * 16)
    inside = memoryview(memory)[1:]
    op.SUM.Reduce_local([np.full(16, 2.5), datatype.DOUBLE], [inside, datatype.DOUBLE])
    assert np.frombuffer(bytes(inside)).tolist() == [2.5] * 16


@pytest.mark.parametrize("name", ["MAXLOC", "MINLOC"])
@pytest.mark.parametrize("value", ["i2", "i4", "i8", "f4", "f8"])
def test_pairs_keep_the_lower_index_of_equal_values(name: str, value: str) -> None:
    pair = np.dtype([("value", value), ("index", "i4")], align=True)
    made = datatype.Datatype.Get_value_index(datatype.Datatype.fromcode(value), datatype.INT)
    left, right = np.zeros(3, pair), np.zeros(3, pair)
    left["value"], left["index"] = [1, 5, 4], [7, 8, 9]
    right["value"], right["index"] = [2, 4, 4], [1, 2, 3]
    expected = [(2, 1), (5, 8), (4, 3)] if name == "MAXLOC" else [(1, 7), (4, 2), (4, 3)]
    getattr(op, name).Reduce_local([left, 3, made], [right, 3, made])
    assert right.tolist() == expected


def test_a_function_of_the_program_sees_both_buffers_and_the_type() -> None:
    seen = []

    def function(first, second, kind) -> None:
        seen.append((bytes(first), kind))
        second[:] = bytes(a ^ b for a, b in zip(bytes(first), bytes(second), strict=True))

    made = op.Op.Create(function, commute=True)
    memory = bytearray(b"\1\2\3\4")
    made.Reduce_local([b"\xf0\xf0\xf0\xf0", datatype.INT], [memory, datatype.INT])
    made.Free()
    assert seen == [(b"\xf0" * 4, datatype.INT)]
    assert memory == b"\xf1\xf2\xf3\xf4"


def test_a_function_of_the_program_may_use_both_buffers_as_arrays_of_ctypes() -> None:
    """Which takes memory that can be written, also where the function only reads it."""

    def add(first, second, kind) -> None:
        left, right = ((ctypes.c_int * 2).from_buffer(each) for each in (first, second))
        for place, value in enumerate(left):
            right[place] += value

    made = op.Op.Create(add, commute=True)
    result = array("i", [10, 20])
    made.Reduce_local(array("i", [1, 2]), result)
    made.Free()
    assert result.tolist() == [11, 22]


def test_an_exception_in_a_function_comes_out() -> None:
    made = op.Op.Create(lambda first, second, kind: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        made.Reduce_local(bytes(1), bytearray(1))
    made.Free()


def test_a_type_that_an_operation_does_not_take_is_an_error() -> None:
    for name, made in (("SUM", datatype.CHAR), ("BAND", datatype.DOUBLE), ("MAXLOC", datatype.INT)):
        with pytest.raises(MPIException, match=name) as caught:
            getattr(op, name).Reduce_local([bytes(16), 1, made], [bytearray(16), 1, made])
        assert caught.value.Get_error_class() == constants.ERR_OP


def test_messages_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="datatypes"):
        op.SUM.Reduce_local(np.zeros(2), np.zeros(2, "f"))
    with pytest.raises(ValueError, match="items"):
        op.SUM.Reduce_local(np.zeros(2), np.zeros(3))


def test_constants_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(op.SUM)) is op.SUM
    again = pickle.loads(pickle.dumps(op.Op(op.SUM)))
    assert again == op.SUM
    assert again is not op.SUM


def test_a_type_that_an_operation_does_not_take_is_for_the_error_handler() -> None:
    """And nothing has moved before."""
    called: list[int] = []
    handler = MPI.Comm.Create_errhandler(lambda _, code: called.append(code))
    of_windows = MPI.Win.Create_errhandler(lambda _, code: called.append(code))
    comm = MPI.COMM_SELF.Dup()
    comm.Set_errhandler(handler)
    window = MPI.Win.Allocate(8, comm=comm)
    window.Set_errhandler(of_windows)
    got = np.full(1, 5.0)
    with pytest.raises(MPIException, match=r"Comm\.Allreduce: BAND does not take"):
        comm.Allreduce(np.zeros(1), got, MPI.BAND)
    window.Lock(0)
    with pytest.raises(MPIException, match=r"Win\.Get_accumulate: BAND does not take"):
        window.Get_accumulate(np.zeros(1), got, 0, op=MPI.BAND)
    window.Unlock(0)
    assert called == [constants.ERR_OP] * 2
    assert got.tolist() == [5.0]
    for each in (window, comm, handler, of_windows):
        each.Free()
