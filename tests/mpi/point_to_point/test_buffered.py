# SPDX-License-Identifier: Apache-2.0
"""Sends in buffered mode, which take room of a buffer that the program attaches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from shmnd.mpi import MPI

COMM: Any = MPI.COMM_SELF
LARGE = 1 << 20
DATA, INTO = np.ones(LARGE, "u1"), np.zeros(LARGE, "u1")


@contextmanager
def attached(owner: Any, nbytes: int) -> Iterator[bytearray]:
    """A buffer of an owner, with room for the overhead of one message more."""
    memory = bytearray(nbytes + MPI.BSEND_OVERHEAD)
    owner.Attach_buffer(memory)
    try:
        yield memory
    finally:
        assert owner.Detach_buffer() is memory


def received() -> None:
    INTO[:] = 0
    COMM.Recv(INTO, 0, 3)
    assert INTO.all()


@pytest.mark.parametrize(
    "send",
    [
        lambda: COMM.Bsend(DATA, 0, 3),
        lambda: COMM.Ibsend(DATA, 0, 3),
        lambda: COMM.Bsend_init(DATA, 0, 3).Start(),
        lambda: COMM.bsend(5, 0, 3),
        lambda: COMM.ibsend(5, 0, 3),
    ],
)
def test_a_send_without_a_buffer_is_an_error(send: Any) -> None:
    with pytest.raises(MPI.Exception, match="no buffer is attached; call MPI") as raised:
        send()
    assert raised.value.Get_error_class() == MPI.ERR_BUFFER
    assert not COMM.Iprobe(0, 3)


def test_a_send_to_proc_null_needs_no_buffer() -> None:
    COMM.Bsend(DATA, MPI.PROC_NULL, 3)


def test_a_request_whose_start_failed_can_be_started_later() -> None:
    request = COMM.Bsend_init(DATA, 0, 3)
    with pytest.raises(MPI.Exception, match="no buffer"):
        request.Start()
    with attached(MPI, LARGE):
        request.Start()
        request.Wait()
        received()
    request.Free()


def test_a_message_takes_room_until_it_is_received() -> None:
    with attached(MPI, LARGE):
        COMM.Bsend(DATA, 0, 3)
        with pytest.raises(MPI.Exception, match=r"bytes has 0 left; a message needs") as raised:
            COMM.Bsend(DATA, 0, 3)
        assert raised.value.Get_error_class() == MPI.ERR_BUFFER
        received()
        COMM.Bsend(DATA, 0, 3)
        received()


def test_a_message_longer_than_the_buffer_is_an_error() -> None:
    with attached(MPI, LARGE - 1), pytest.raises(MPI.Exception, match="Bsend of 1048576 bytes"):
        COMM.Bsend(DATA, 0, 3)


def test_the_buffer_of_a_communicator_comes_before_that_of_the_process() -> None:
    too_long = pytest.raises(MPI.Exception, match="buffer of 138 bytes has 138 left")
    with attached(MPI, LARGE), attached(COMM, 10), too_long:
        COMM.Bsend(DATA, 0, 3)
    other = COMM.Dup()
    with attached(other, LARGE), pytest.raises(MPI.Exception, match="no buffer is attached"):
        COMM.Bsend(DATA, 0, 3)
    other.Free()


def test_the_buffer_of_a_session() -> None:
    session = MPI.Session.Init()
    group = session.Create_group("mpi://SELF")
    comm = MPI.Intracomm.Create_from_group(group)
    with attached(session, LARGE):
        comm.Bsend(DATA, 0, 3)
        comm.Recv(INTO, 0, 3)
        session.Flush_buffer()
    comm.Free()
    group.Free()
    session.Finalize()


def test_a_buffer_that_grows_by_itself() -> None:
    MPI.Attach_buffer(MPI.BUFFER_AUTOMATIC)
    for _ in range(3):
        COMM.Bsend(DATA, 0, 3)
    for _ in range(3):
        received()
    assert MPI.Detach_buffer() is MPI.BUFFER_AUTOMATIC


def test_iflush_does_not_wait() -> None:
    with attached(MPI, LARGE):
        COMM.Bsend(DATA, 0, 3)
        request = MPI.Iflush_buffer()
        assert not request.Test()
        received()
        request.Wait()
        assert MPI.Iflush_buffer().Test()


def test_a_flush_waits_for_no_other_sends() -> None:
    request = COMM.Isend(DATA, 0, 3)
    request.Free()
    with attached(COMM, LARGE):
        COMM.Flush_buffer()
        MPI.Flush_buffer()
    received()
