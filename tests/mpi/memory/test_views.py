# SPDX-License-Identifier: Apache-2.0
"""Messages that reach to before the view that they name."""

from collections.abc import Callable

import numpy as np
import pytest

from shmnd.mpi import MPI


@pytest.mark.parametrize(
    "view", [lambda a: a[5:], lambda a: memoryview(a)[5:], lambda a: a[1:][4:]]
)
def test_a_type_reaches_before_a_view_as_far_as_its_memory_does(
    view: Callable[[np.ndarray], object],
) -> None:
    """Bytes before the view are the program's too; those after it are a count that is too large."""
    before = MPI.INT.Create_indexed([2, 1], [-3, 1]).Commit()
    source, target = np.arange(12, dtype="i4"), np.full(12, -1, "i4")
    comm = MPI.COMM_SELF
    comm.Sendrecv([view(source), 1, before], 0, 0, [view(target), 1, before], 0, 0)
    assert target.tolist() == [-1, -1, 2, 3, -1, -1, 6, -1, -1, -1, -1, -1]
    for far in ([-6, 1], [-3, 7]):
        wrong = MPI.INT.Create_indexed([2, 1], far).Commit()
        with pytest.raises(ValueError, match="of a buffer of 28 bytes"):
            comm.Send([view(source), 1, wrong], 0)
        wrong.Free()
    before.Free()


def test_a_type_does_not_reach_before_memory_that_is_not_a_view() -> None:
    before = MPI.BYTE.Create_hindexed([1, 1], [-1, 1]).Commit()
    for memory in (bytearray(9), np.zeros(9, "u1"), memoryview(bytes(9)), np.zeros(9, "u1")[:]):
        with pytest.raises(ValueError, match="take the bytes -1 to 2"):
            MPI.COMM_SELF.Send([memory, 1, before], 0)
    before.Free()


@pytest.mark.parametrize(
    ("place", "taken"),
    [(4, "4 to 36"), (-8, "-8 to 24")],
    ids=["behind the extents", "before the extents"],
)
def test_items_whose_number_follows_from_the_buffer_lie_in_it(place: int, taken: str) -> None:
    """They were taken as far as their extents: a receive wrote behind the end of its array."""
    shifted = MPI.INT.Create_hindexed([2], [place]).Create_resized(0, 8).Commit()
    numbers, comm = np.zeros(8, "i4"), MPI.COMM_SELF
    for call in (comm.Isend, comm.Issend, comm.Irecv, comm.Recv_init):
        with pytest.raises(ValueError, match=f"take the bytes {taken} of a buffer of 32 bytes"):
            call([numbers, shifted], 0)
    shifted.Free()


def test_columns_without_a_count_do_not_reach_behind_their_matrix() -> None:
    column = MPI.INT.Create_vector(3, 1, 3).Create_resized(0, 4).Commit()
    matrix, comm = np.arange(9, dtype="i4"), MPI.COMM_SELF
    with pytest.raises(ValueError, match="9 items at displacement 0 take the bytes 0 to 60 of a b"):
        comm.Isend([matrix, column], 0)
    row = np.empty(9, "i4")
    comm.Sendrecv([matrix, 3, column], 0, 0, row, 0, 0)
    assert row.tolist() == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    column.Free()


@pytest.mark.parametrize("nbytes", [0, 4, 40])
def test_memory_at_an_address_has_no_end_but_that_of_the_message(nbytes: int) -> None:
    """As in mpi4py: programs with tensors name an address, and a length that they do not count."""
    source, target = np.arange(10, dtype="i4"), np.full(10, -1, "i4")
    comm = MPI.COMM_SELF
    given, taken = (MPI.buffer.fromaddress(a.ctypes.data, nbytes) for a in (source, target))
    other = MPI.INT.Create_vector(5, 1, 2).Commit()
    for step, message in (1, [10, MPI.INT]), (2, [1, other]):
        vector = [[message[0]], [0], message[1]]
        for call, into in (comm.Allgather, message), (comm.Allgatherv, vector):
            target[:] = -1
            call([given, *message], [taken, *into])
            assert (target[::step] == source[::step]).all()
            assert step == 1 or (target[1::2] == -1).all()
    other.Free()
    for memory in given[:4] if nbytes else b"", bytearray(target):
        with pytest.raises(ValueError, match="of a buffer of"):
            comm.Allgather([memory, 11, MPI.INT], [taken, 11, MPI.INT])
