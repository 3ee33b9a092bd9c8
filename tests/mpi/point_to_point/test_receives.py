# SPDX-License-Identifier: Apache-2.0
"""Blocking receives: the order of messages of every kind, and what they carry on meanwhile."""

from mpi.launcher.jobs import launch

ORDER = """
import random
from mpi4py import MPI
comm = MPI.COMM_WORLD
twin = comm.Dup()
chance = random.Random(7)
plan = [
    (chance.choice(["short", "long", "sync", "other", "left"]), chance.choice(["now", "posted"]))
    for _ in range(400)
]
def sent(kind, k):
    first = k.to_bytes(4, "little")
    if kind == "long":
        comm.Send(first + bytes(20000), 0, k % 2)
    elif kind == "sync":
        comm.Ssend(first, 0, k % 2)
    elif kind == "left":
        left.append(comm.Isend(first, 0, k % 2))
    else:
        comm.Send(first, 0, k % 2)
def check(into, status, source, k):
    assert into[:4] == k.to_bytes(4, "little"), (into[:4], k)
    assert (status.source, status.tag) == (source, k % 2)
    assert status.count == (20004 if plan[k][0] == "long" else 4)
if comm.rank:
    left = []
    for k, (kind, _) in enumerate(plan):
        if kind == "other":
            twin.Send(b"twin", 0, 3)
        sent(kind, k)
    MPI.Request.Waitall(left)
else:
    status = MPI.Status()
    into = bytearray(20004)
    for source in range(1, comm.size):
        posted = []
        for k, (_, way) in enumerate(plan):
            if way == "posted":
                posted.append((k, each := bytearray(20004), comm.Irecv(each, source, k % 2)))
                continue
            comm.Recv(into, source, k % 2, status)
            check(into, status, source, k)
        for k, each, request in posted:
            request.Wait(status)
            check(each, status, source, k)
    several = sum(kind == "other" for kind, _ in plan)
    for k in range(several * (comm.size - 1)):
        twin.Recv(into, MPI.ANY_SOURCE, 3, status)
        assert into[:4] == b"twin" and status.count == 4
print("well")
"""


def test_messages_of_every_kind_come_in_their_order() -> None:
    assert launch(3, "-c", ORDER).stdout.count("well") == 3


CARRIED = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
one = bytearray(8)
if comm.rank == 0:
    long = bytearray(3_000_000)
    request = comm.Irecv(long, 2)
    turns = 0
    while not one[0]:  # no call but these, and the long message ends
        comm.Recv(one, 1)
        comm.Send(one, 1)
        turns += 1
    assert request.Test() and long == b"x" * len(long)
elif comm.rank == 1:
    done = comm.Irecv(last := bytearray(1), 2)
    over = False
    while not over:
        over = done.Test()
        comm.Send(bytes([over]) + bytes(7), 0)
        comm.Recv(one, 0)
else:
    comm.Ssend(b"x" * 3_000_000, 0)
    comm.Send(b"x", 1)
print("well")
"""


def test_receives_from_one_rank_carry_on_a_message_of_another() -> None:
    assert launch(3, "-c", CARRIED).stdout.count("well") == 3


NULL = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
status = MPI.Status()
into = bytearray(b"kept")
for buffer in (into, [into, 2, MPI.SHORT], [into, MPI.BYTE], memoryview(into)[::2], None):
    comm.Recv(buffer, MPI.PROC_NULL, 5, status)
    assert (status.source, status.tag, status.count) == (MPI.PROC_NULL, MPI.ANY_TAG, 0)
    comm.Send(buffer, MPI.PROC_NULL, 5)
    comm.Rsend(buffer, MPI.PROC_NULL, 5)
    request = comm.Isend(buffer, MPI.PROC_NULL, 5)
    request.Wait(status)
    assert status.count == 0 and not status.Is_cancelled()
assert into == b"kept"
print("well")
"""


def test_calls_with_no_rank_end_at_once() -> None:
    assert launch(1, "-c", NULL).stdout.count("well") == 1
