# SPDX-License-Identifier: Apache-2.0
"""Large objects between ranks: messages are pickles, and the objects are those of the module."""

import pytest

from mpi.launcher.jobs import launch

OBJECTS = """
import dataclasses, pickle, random
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
SIZES = [0, 10, 5000, 8192, 20000, 65528, 65535, 65536, 65537, 100_000, 300_000, 1_000_000]

@dataclasses.dataclass
class Pair:
    first: object
    second: object

def make(dice, depth=2):
    kind, n = dice.randrange(11), dice.choice(SIZES)
    if kind == 0:
        return dice.randbytes(n)
    if kind == 1:
        return bytearray(dice.randbytes(n))
    if kind == 2:
        return np.frombuffer(dice.randbytes(n), "u1").copy()
    if kind == 3:
        return np.arange(n // 8 * 2, dtype="f4").reshape(2, -1).T
    if kind == 4:
        fixed = np.arange(n // 4)
        fixed.flags.writeable = False
        return fixed
    if kind == 5:
        return "x" * n + "\\u00e9" * (n % 3)
    if kind == 6 and depth:
        return [make(dice, depth - 1) for _ in range(dice.randrange(5))]
    if kind == 7 and depth:
        return {i: make(dice, depth - 1) for i in range(dice.randrange(4))}
    if kind == 8 and depth:
        twice = make(dice, depth - 1)
        return (twice, twice, Pair(twice, dice.random()))
    return [dice.random() for _ in range(n // 50)]

def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        like = a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides
        return like and a.flags.writeable == b.flags.writeable and a.tobytes() == b.tobytes()
    if isinstance(a, Pair):
        return same(a.first, b.first) and same(a.second, b.second)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b
"""

MESSAGES = (
    OBJECTS
    + """
for protocol in (5, 5, 4, 2):  # twice, as types that were large before are written in another way
    MPI.pickle.PROTOCOL = protocol
    dice = random.Random(protocol)
    for tag in range(60):
        obj = make(dice)
        if comm.rank == 0:
            comm.send(obj, 1, tag)
        else:
            status = MPI.Status()
            comm.Probe(0, tag, status)
            message = bytearray(status.Get_count(MPI.BYTE))
            comm.Recv(message, 0, tag)
            assert message == pickle.dumps(obj, protocol), (protocol, tag, type(obj))
"""
)

WAYS = (
    OBJECTS
    + """
for seed in range(3):
    dice = random.Random(seed)
    for tag in range(100):
        obj, sends, way = make(dice), dice.randrange(3), dice.randrange(5)
        if comm.rank == 0:
            if sends == 0:
                comm.isend(obj, 1, tag).wait()
            elif sends == 1:
                comm.ssend(obj, 1, tag)
            else:
                comm.send(obj, 1, tag)
            continue
        if way == 0:
            got = comm.irecv(bytearray(16 << 20), 0, tag).wait()
        elif way == 1:
            got = comm.mprobe(0, tag).recv()
        else:
            got = comm.recv(None, 0 if way == 2 else MPI.ANY_SOURCE, tag)
        assert same(got, pickle.loads(pickle.dumps(obj, 5))), (seed, tag, way, type(obj))
        if isinstance(got, tuple) and isinstance(got[0], (list, np.ndarray, bytearray)):
            assert got[0] is got[1] is got[2].first
"""
)

OWN = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
for size in (20_000, 1_000_000, 20_000_000):
    for each in range(3):
        if comm.rank == 0:
            sent = np.full(size, each, "u1")
            comm.send(sent, 1)
            sent[:] = 99  # the received one stays
            comm.barrier()
        else:
            got = comm.recv(source=0)
            comm.barrier()
            assert got.min() == got.max() == each
            got[:] = 77  # its own, to write to
            assert got.flags.writeable
"""

ASKS = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
class Asks:
    def __init__(self):
        self.data = bytearray(300_000)
    def __reduce__(self):
        return Asks.answered, (self.data,)
    @staticmethod
    def answered(data):
        # The sender waits for nothing that happens here.
        comm.send("asked", 0)
        return comm.recv(source=0), len(data)
for _ in range(3):
    if comm.rank == 0:
        comm.send(Asks(), 1)
        assert comm.recv(source=1) == "asked"
        comm.send("answer", 1)
    else:
        assert comm.recv(source=0) == ("answer", 300_000)
"""

RAISES = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
class Raises:
    def __init__(self):
        self.data = bytes(300_000)
    def __setstate__(self, state):
        raise ValueError("not this one")
for number in range(3):
    if comm.rank == 0:
        comm.send(Raises(), 1)
        comm.send(bytes(200_000 + number), 1)
    else:
        try:
            comm.recv(source=0)
        except ValueError as error:
            assert "does not unpickle" in error.__notes__[0], error.__notes__
        else:
            raise AssertionError
        assert comm.recv(source=0) == bytes(200_000 + number)
"""

FUNCTIONS = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
kept = []
MPI.pickle.__init__(dumps=lambda obj, *_: memoryview(obj), loads=lambda data: data)
if comm.rank == 0:
    for i in range(4):
        comm.send(bytes([i]) * 500_000, 1)
else:
    for i in range(4):
        kept.append(comm.recv(source=0))
    assert kept == [bytes([i]) * 500_000 for i in range(4)]
"""

DAMAGED = """
import pickle, random
from mpi4py import MPI
import numpy as np
comm = MPI.COMM_WORLD
dice = random.Random(1)
memory = np.frombuffer(MPI.Alloc_mem(1 << 20), "u1")  # that receivers read in place
for number in range(200):
    size = dice.choice([65_536, 70_000, 200_000])
    damaged = bytearray(pickle.dumps([bytes(size), bytearray(size)], 5))
    for _ in range(dice.randrange(3)):  # lengths, opcodes, and some in the bodies
        damaged[dice.choice([2, 3, 4, 5, 6, 7, 8, size + 12, size + 16, -2])] = dice.randrange(256)
    del damaged[dice.choice([len(damaged), len(damaged), dice.randrange(9000, len(damaged))]):]
    if comm.rank == 0:
        memory[: len(damaged)] = damaged
        comm.Send([memory, len(damaged), MPI.BYTE], 1)
    else:
        def outcome(load):
            try:
                return load()
            except Exception as error:
                return type(error)
        got = outcome(lambda: comm.recv(source=0))
        assert got == outcome(lambda: pickle.loads(damaged)), number
"""

PROGRAMS = {
    "messages are pickles": MESSAGES,
    "every way to receive": WAYS,
    "objects of their own": OWN,
    "a sender that is asked meanwhile": ASKS,
    "objects that raise": RAISES,
    "functions of the program": FUNCTIONS,
    "damaged pickles": DAMAGED,
}


@pytest.mark.parametrize("options", [(), ("--private-arrays",)], ids=["shared", "private"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_large_objects(program: str, options: tuple[str, ...]) -> None:
    launch(2, *options, "-c", program)
