# SPDX-License-Identifier: Apache-2.0
"""Blocking calls on messages of the commonest forms, which make no objects.

Each form gives the bytes that the general way gives, a wrong one gives the same errors, and memory
is held for as long as the call needs it.
"""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from mpi.launcher.jobs import UNTIL_WAITS
from shmnd.mpi import MPI

COMM = MPI.COMM_SELF
INT = MPI.INT
GAPS = INT.Create_vector(2, 1, 2).Commit()

FORMS = {
    "array": (lambda a: a, 16),
    "array of two dimensions": (lambda a: a.reshape(2, 2), 16),
    "bytearray": (lambda a: bytearray(a.tobytes()), 16),
    "with a type": (lambda a: [a, INT], 16),
    "with a count": (lambda a: (a, 2, INT), 8),
    "bytes of it": ((lambda a: (a, 5, MPI.BYTE)), 5),
    "none of it": (lambda a: [a, 0, INT], 0),
    "counts by default": (lambda a: [a, None, INT], 16),
    "a type with gaps": (lambda a: [a, 1, GAPS], 8),
    "an own integer": (lambda a: [a, np.int64(3), INT], 12),
    "a type by its code": (lambda a: [a, 3, "i"], 12),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_sends_and_receives_the_same_bytes(form: str) -> None:
    make, nbytes = FORMS[form]
    sent, came = np.array([1, 2, 3, 4], "i4"), np.zeros(4, "i4")
    into = make(came)
    status = MPI.Status()
    COMM.Send(make(sent), 0, 3)
    COMM.Recv(into, 0, 3, status)
    assert (status.Get_count(MPI.BYTE), status.source, status.tag) == (nbytes, 0, 3)
    expected = np.zeros(4, "i4")
    if make is FORMS["a type with gaps"][0]:
        expected[:] = (1, 0, 3, 0)
    else:
        expected.view("u1")[:nbytes] = sent.view("u1")[:nbytes]
    found = np.frombuffer(into, "i4") if isinstance(into, bytearray) else came
    assert found.tolist() == expected.tolist()


WRONG = {
    "too many": (lambda: (bytearray(3), 4, MPI.BYTE), ValueError),
    "fewer than none": (lambda: (bytearray(3), -1, MPI.BYTE), ValueError),
    "beyond an index": (lambda: (bytearray(3), 1 << 80, MPI.BYTE), (ValueError, OverflowError)),
    "a part of an item": (lambda: [bytearray(7), INT], ValueError),
    "no type": (lambda: [bytearray(3), 3, MPI.DATATYPE_NULL], MPI.Exception),
    "foreign numbers": (lambda: np.zeros(3, ">i4"), BufferError),
    "every second item": (lambda: np.zeros(6, "i4")[::2], (BufferError, ValueError)),
}


@pytest.mark.parametrize("form", WRONG)
@pytest.mark.parametrize("call", ["Send", "Recv"])
def test_messages_that_do_not_fit_are_errors_of_both_calls(form: str, call: str) -> None:
    make, error = WRONG[form]
    with pytest.raises(error):
        getattr(COMM, call)(make(), 0)
    assert not COMM.Iprobe(0)


@pytest.mark.parametrize(
    "fixed", [b"abc", (b"abc", 3, MPI.BYTE), np.broadcast_to(np.zeros(1), (4,))]
)
def test_nothing_is_received_into_memory_that_is_read_only(fixed: object) -> None:
    with pytest.raises((BufferError, ValueError)):
        COMM.Recv(fixed, 0)


def test_a_message_that_is_too_long_is_an_error_and_gives_the_memory_back() -> None:
    memory, status = bytearray(4), MPI.Status()
    COMM.Send(bytearray(b"abcdefgh"), 0)
    with pytest.raises(MPI.Exception, match="longer than the buffer of 4 bytes") as caught:
        COMM.Recv((memory, 4, MPI.BYTE), 0, 0, status)
    assert caught.value.Get_error_class() == MPI.ERR_TRUNCATE == status.Get_error()
    assert bytes(memory) == b"abcd"
    memory.append(0)  # nothing holds it any more


def test_a_bytearray_is_held_while_a_receive_waits_for_its_message() -> None:
    memory, failures = bytearray(8), []

    def meddle() -> None:
        until = time.monotonic() + 60
        while not failures and time.monotonic() < until:
            try:
                memory.append(0)  # until the Receive has begun
                memory.pop()
            except BufferError as error:
                failures.append(error)
        COMM.Send(b"12345678", 0)

    meddler = threading.Thread(target=meddle)
    meddler.start()
    COMM.Recv(memory, 0)
    meddler.join()
    assert len(failures) == 1
    assert memory[:8] == b"12345678"
    memory.clear()


def run_to_its_end(program: str, *ranks: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *ranks, "-c", textwrap.dedent(program)]
    if ranks:
        command[-2:-2] = [sys.executable]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_receive_that_is_interrupted_takes_no_later_message() -> None:
    done = run_to_its_end(
        f"""
        import os, signal, threading
        from shmnd.mpi import MPI
        memory = bytearray(b"unchanged")
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), {int(signal.SIGINT)})).start()
            MPI.COMM_SELF.Recv(memory, 0)
        except KeyboardInterrupt:
            print("interrupted")
        MPI.COMM_SELF.Send(b"a message", 0)
        assert memory == b"unchanged", memory
        memory.clear()
        later = bytearray(9)
        MPI.COMM_SELF.Recv(later, 0)
        assert later == b"a message", later
        """
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_long_send_that_is_interrupted_still_has_its_memory() -> None:
    done = run_to_its_end(
        UNTIL_WAITS
        + textwrap.dedent("""
        import os, signal
        from mpi4py import MPI
        comm = MPI.COMM_WORLD
        if comm.rank == 0:
            memory = bytearray(b"x" * (1 << 20))
            try:
                comm.Send(memory, 1)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            comm.send("interrupted", 1, 5)
            try:
                memory.clear()
            except BufferError:
                print("held", flush=True)
            del memory
            comm.Barrier()
        else:
            os.kill(until_waits(0, "Send"), signal.SIGINT)
            comm.recv(source=0, tag=5)
            memory = bytearray(1 << 20)
            comm.Recv(memory, 0)
            assert memory == b"x" * (1 << 20)
            comm.Barrier()
        """),
        "-m", "shmnd.mpi", "-n", "2", "--oversubscribe",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "interrupted\nheld\n"), done.stderr
