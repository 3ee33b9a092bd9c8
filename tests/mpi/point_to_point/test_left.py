# SPDX-License-Identifier: Apache-2.0
"""Operations whose requests the program drops or frees: they end, and hold memory until then."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from shmnd.mpi import MPI

COMM = MPI.COMM_SELF
LARGE = 1 << 20


class Memory(np.ndarray):
    """An array whose end can be seen."""


def memory(value: int) -> tuple[np.ndarray, "weakref.ref[Memory]"]:
    made = np.full(LARGE, value, "u1").view(Memory)
    return made, weakref.ref(made)


def begin_another() -> None:
    """Begin an operation: that is when the memory of those that have ended is returned."""
    COMM.Irecv(bytearray(1), 0, 99).Cancel()
    gc.collect()


def test_a_dropped_send_keeps_its_memory_until_it_is_received() -> None:
    sent, alive = memory(7)
    COMM.Isend(sent, 0, 1)
    del sent
    begin_another()
    assert alive() is not None
    came = np.zeros(LARGE, "u1")
    COMM.Recv(came, 0, 1)
    assert (came == 7).all()
    begin_another()
    assert alive() is None


def test_a_dropped_send_of_a_type_with_gaps_arrives() -> None:
    gaps = MPI.BYTE.Create_vector(LARGE // 2, 1, 2).Commit()
    sent, alive = memory(7)
    COMM.Isend([sent, 1, gaps], 0, 1)
    del sent
    came = np.zeros(LARGE // 2, "u1")
    COMM.Recv(came, 0, 1)
    assert (came == 7).all()
    begin_another()
    assert alive() is None
    gaps.Free()


@pytest.mark.parametrize("way", ["Isend", "isend"])
def test_a_freed_send_keeps_its_memory_until_it_is_received(way: str) -> None:
    sent, alive = memory(7)
    getattr(COMM, way)(sent, 0, 1).Free()
    del sent
    came = COMM.recv(source=0, tag=1) if way == "isend" else np.zeros(LARGE, "u1")
    if way == "Isend":
        COMM.Recv(came, 0, 1)
    assert (came == 7).all()
    begin_another()
    assert alive() is None


def test_a_freed_receive_of_a_type_with_gaps_gets_its_message() -> None:
    gaps = MPI.INT.Create_vector(2, 1, 2).Commit()
    into = np.zeros(4, "i4")
    COMM.Irecv([into, 1, gaps], 0, 1).Free()
    COMM.Send(np.array([5, 6], "i4"), 0, 1)
    begin_another()
    assert into.tolist() == [5, 0, 6, 0]
    gaps.Free()


def test_a_dropped_receive_gets_its_message_and_keeps_its_memory_until_then() -> None:
    into, alive = memory(0)
    view = into[:1]  # a view of the memory, and not the object that was given
    COMM.Irecv(into, 0, 1)
    del into
    gc.collect()
    assert alive() is not None
    COMM.Send(np.full(LARGE, 9, "u1"), 0, 1)
    assert view[0] == 9
    del view
    begin_another()
    assert alive() is None


def test_a_dropped_receive_of_a_type_with_gaps_gets_its_message() -> None:
    gaps = MPI.BYTE.Create_vector(LARGE // 2, 1, 2).Commit()
    into, alive = memory(0)
    view = into[:4]
    COMM.Irecv([into, 1, gaps], 0, 1)
    del into
    COMM.Send(np.full(LARGE // 2, 9, "u1"), 0, 1)
    begin_another()
    assert view.tolist() == [9, 0, 9, 0]
    del view
    assert alive() is None
    gaps.Free()


def test_a_receive_of_a_type_with_gaps_that_is_dropped_late_has_its_message() -> None:
    gaps = MPI.INT.Create_vector(2, 1, 2).Commit()
    into = np.zeros(4, "i4")
    request = COMM.Irecv([into, 1, gaps], 0, 1)
    COMM.Send(np.array([5, 6], "i4"), 0, 1)
    del request
    assert into.tolist() == [5, 0, 6, 0]
    gaps.Free()


def test_a_list_that_changes_while_a_call_waits_frees_no_memory() -> None:
    sent, alive = memory(3)
    message = [sent, MPI.BYTE]
    del sent
    rest = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    came = np.zeros(LARGE, "u1")

    def other() -> None:
        while not COMM.Iprobe(0, 1):
            pass
        message.clear()
        gc.collect()
        assert alive() is not None
        COMM.Recv(came, 0, 1)

    try:
        with_it = threading.Thread(target=other)
        with_it.start()
        COMM.Ssend(message, 0, 1)
        with_it.join(30)
    finally:
        sys.setswitchinterval(rest)
    assert (came == 3).all()
    gc.collect()
    assert alive() is None
