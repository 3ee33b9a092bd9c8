# SPDX-License-Identifier: Apache-2.0
"""Message specifications: what they take, and that nothing outside a buffer is touched.

A message of a rank to itself takes two specifications, and copies.
"""

import array
import sys

import numpy as np
import pytest

from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.buffers.sentinels import BOTTOM
from shmnd.mpi.communicators.intracomm import COMM_SELF
from shmnd.mpi.datatypes import addresses
from shmnd.mpi.datatypes.datatype import INT


def copied(send, receive) -> None:
    COMM_SELF.Sendrecv(send, 0, 0, receive, 0)


@pytest.mark.parametrize("make", [np.array, lambda items: array.array("l", items)])
def test_a_bare_buffer_is_all_of_its_items(make) -> None:
    target = make([0, 0, 0])
    copied(make([1, 2, 3]), target)
    assert list(target) == [1, 2, 3]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (lambda a: [a, 2], [1, 2, 0, 0]),
        (lambda a: [a, (2, None)], [1, 2, 0, 0]),
        (lambda a: [a, (1, 2)], [0, 0, 3, 0]),
        (lambda a: [a, [1, 2]], [0, 0, 3, 0]),
        (lambda a: [a, [1, 2], INT], [0, 0, 3, 0]),
        (lambda a: [a, [2, None]], [1, 2, 0, 0]),
        (lambda a: [a, (None, 3)], [0, 0, 0, 4]),
        (lambda a: [a, 2, "i"], [1, 2, 0, 0]),
        (lambda a: [a, 1, 1, INT], [0, 2, 0, 0]),
        (lambda a: [a, None, 2, INT], [0, 0, 3, 4]),
        (lambda a: (a, INT), [1, 2, 3, 4]),
        (lambda a: [a, None, None], [1, 2, 3, 4]),
    ],
)
def test_every_form_of_a_list(message, expected) -> None:
    target = np.zeros(4, "i")
    copied(message(np.array([1, 2, 3, 4], "i")), message(target))
    assert target.tolist() == expected


@pytest.mark.parametrize(
    "message",
    [
        lambda a: [a, 5],
        lambda a: [a, 4, 1, INT],
        lambda a: [a, -1],
        lambda a: [a, 1, -1, INT],
        lambda a: [a, 1, INT.Create_vector(3, 1, 2).Commit()],
        lambda a: [a, 1, INT.Create_hindexed([1], [-4]).Commit()],
        lambda a: [a, 1, INT.Create_resized(0, 4).Create_hindexed([1, 1], [0, 16]).Commit()],
        lambda a: [None, 1, INT],
        lambda a: [a, 1, 1, 1, INT],
        lambda a: [a, (1,)],
        lambda a: [a, [1, 1, 1], INT],
    ],
)
def test_messages_that_do_not_fit_are_value_errors(message) -> None:
    target = np.zeros(4, "i")
    with pytest.raises(ValueError, match=r"^Comm\.Send"):
        copied(message(target), message(target))


def test_read_only_and_foreign_memory() -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    copied(fixed, np.zeros(3))
    with pytest.raises((BufferError, ValueError)):
        copied(np.zeros(3), fixed)
    with pytest.raises(BufferError):
        copied(np.zeros(3, ">i4"), np.zeros(3, ">i4"))
    with pytest.raises((BufferError, ValueError)):
        copied(np.zeros((3, 3))[:, 0], np.zeros(3))
    for wrong in (None, 5, object(), [1, 2, 3, 4]):
        with pytest.raises(TypeError):
            copied(wrong, np.zeros(3))
    with pytest.raises(KeyError):
        copied([bytes(3), "no such type"], bytearray(3))


def test_memory_of_a_device_is_refused() -> None:
    class Device:
        __cuda_array_interface__ = {  # noqa: RUF012
            "version": 3,
            "data": (16, False),
            "typestr": "<f8",
            "shape": (4,),
        }

    with pytest.raises(BufferError, match="device"):
        copied(Device(), np.zeros(4))


def test_an_error_of_a_buffer_that_takes_other_arguments_keeps_its_text() -> None:
    class Lost(BufferError):
        def __init__(self, place: str, number: int) -> None:
            super().__init__(f"{place} {number} is lost")

    class Array:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **keywords):
            raise Lost("page", 3)

    with pytest.raises(BufferError, match=r"^Comm.Send: page 3 is lost$") as caught:
        COMM_SELF.Send(Array(), dest=0)
    assert isinstance(caught.value.__cause__, Lost)


def test_dlpack_arrays_are_taken_in_place() -> None:
    class Tensor:
        def __init__(self, items: np.ndarray) -> None:
            self.items = items

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.items.__dlpack_device__()

        def __dlpack__(self, **keywords):
            return self.items.__dlpack__(**keywords)

    target = np.zeros(4)
    copied(Tensor(np.arange(4.0)), Tensor(target))
    assert target.tolist() == [0, 1, 2, 3]


def test_bottom_takes_addresses() -> None:
    memory = np.arange(4, dtype="i")
    made = INT.Create_hindexed([4], [addresses.Get_address(memory)]).Commit()
    assert made.Get_true_extent() == (addresses.Get_address(memory), 16)
    copied([BOTTOM, 1, made], [BOTTOM, 1, made])
    assert memory.tolist() == [0, 1, 2, 3]


def test_buffers_are_views_of_memory() -> None:
    memory = bytearray(b"abcdef")
    view = buffer(memory)
    part = view[2:4]
    part[:] = b"XY"
    assert memory == b"abXYef"
    assert view.toreadonly().readonly
    assert view.cast("B", (2, 3)).tolist() == [[97, 98, 88], [89, 101, 102]]
    with pytest.raises(IndexError):
        view[6]
    with pytest.raises(ValueError, match="slice"):
        view[0:2] = b"abc"
    numbers = view.cast("H")
    part.release()
    view.release()
    assert numbers[1] == int.from_bytes(b"XY", sys.byteorder)
    del numbers
    memory.append(0)
