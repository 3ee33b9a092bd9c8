# SPDX-License-Identifier: Apache-2.0
"""What a call of messages or a collective leaves where a handler of a signal raises in its wait."""

from typing import Final

import pytest

from mpi.launcher.jobs import launch

KIT: Final = """
import signal
import numpy as np
from mpi4py import MPI
from mpi4py.util import pkl5
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
pickles = pkl5.Intracomm(comm)
large = np.full(200_000, 1.0)

class Raised(Exception):
    pass

def fail(*_):
    raise Raised

def interrupted(call):
    # The call has to wait, for as long as it takes until the timer has run down.
    signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        call()
    except Raised:
        return
    raise AssertionError("the call has ended")
"""

RECEIVES: Final = {
    "Recv": ("comm.Recv(large, 1)", "comm.Send(large, 0)"),
    "recv": ("comm.recv(None, 1)", "comm.send(8, 0)"),
    "recv of any": ("comm.recv()", "comm.send(8, 0)"),
    "Sendrecv": ("comm.Sendrecv(b'', -2, 0, large, 1)", "comm.Send(large, 0)"),
    "Probe": ("comm.Probe(1)", "comm.send(8, 0)"),
    "mprobe": ("comm.mprobe(1)", "comm.send(8, 0)"),
    "recv of pkl5": ("pickles.recv(None, 1)", "pickles.send(large, 0)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", RECEIVES)
def test_a_receive_is_taken_back(call: str) -> None:
    receive, send = RECEIVES[call]
    again = receive
    if "robe" in receive:
        again = "comm.recv(None, 1)"
    program = f"""
if rank == 0:
    interrupted(lambda: {receive})
    comm.Barrier()
    {again}
else:
    comm.Barrier()
    {send}
comm.Barrier()
assert not comm.iprobe()
print("well")
"""
    ran = launch(2, "-c", KIT + program)
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr


SENDS: Final = {
    "Send": ("comm.Send(large, 1)", "comm.Recv(into, 0)"),
    "Ssend": ("comm.Ssend(large, 1)", "comm.Recv(into, 0)"),
    "send": ("comm.send(large, 1)", "into[:] = comm.recv(None, 0)"),
    "ssend of pkl5": ("pickles.ssend(large, 1)", "into[:] = pickles.recv(None, 0)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", SENDS)
def test_a_send_continues(call: str) -> None:
    send, receive = SENDS[call]
    program = f"""
into = np.zeros_like(large)
if rank == 0:
    interrupted(lambda: {send})
    del large  # the message keeps its memory
    comm.Barrier()
else:
    comm.Barrier()
    {receive}
    assert (into == 1).all()
comm.Barrier()
assert not comm.iprobe()
print("well")
"""
    ran = launch(2, "-c", KIT + program)
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr


COLLECTIVES: Final = {
    "Barrier": "comm.Barrier()",
    "Bcast": "comm.Bcast(large, 1)",
    "Allreduce": "comm.Allreduce(large, into)",
    "small Allreduce": "comm.Allreduce(large[:1], into[:1])",
    "Alltoall": "comm.Alltoall(large, into)",
    "Dup": "comm.Dup()",
}


@pytest.mark.slow
@pytest.mark.parametrize("call", COLLECTIVES)
def test_a_collective_of_buffers_continues(call: str) -> None:
    program = f"""
into = np.zeros_like(large)
messages = comm.Dup()
if rank == 0:
    interrupted(lambda: {COLLECTIVES[call]})
    messages.send(None, 1)
else:
    messages.recv(None, 0)
    {COLLECTIVES[call]}
assert [comm.allreduce(1) for _ in range(3)] == [2, 2, 2]
print("well")
"""
    ran = launch(2, "-c", KIT + program)
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr
