# SPDX-License-Identifier: Apache-2.0
"""Arrays of numpy in memory that all ranks map: which they are, and that programs run as before."""

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

from mpi.launcher.jobs import launch, python
from shmnd.mpi import MPI

BEGIN = """
import os, sys, threading
from mpi4py import MPI
import numpy as np
try:
    from numpy._core.multiarray import get_handler_name as handler
except ImportError:
    from numpy.core.multiarray import get_handler_name as handler
comm = MPI.COMM_WORLD
rank, other = comm.rank, 1 - comm.rank
def exchange(mine, theirs):
    'Send to the other rank and receive from it, one after the other.'
    for turn in range(2):
        if turn == rank:
            comm.Send(mine, other)
        else:
            comm.Recv(theirs, other)
def shared_bytes():
    return os.fstat(int(os.environ["SHMND_MPI_JOB"])).st_blocks * 512
"""


def run(program: str, *options: str) -> None:
    """Run a program as two ranks, each of which has to print `well`."""
    ran = launch(2, *options, "-c", BEGIN + program + "\nprint('well')")
    assert ran.stdout.count("well") == 2, ran.stdout + ran.stderr
    assert "shmnd.mpi:" not in ran.stderr, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "name"), [((), "shmnd_mpi"), (("--private-arrays",), "default_allocator")]
)
def test_arrays_of_every_size_arrive(options: tuple[str, ...], name: str) -> None:
    run(
        f"""
for n in (1, 8191, 8193, 20000, 131072, 131073, 700001, 1 << 20, 4 << 20, (16 << 20) + 5):
    here, there = np.zeros(n, np.uint8), np.empty(n, np.uint8)
    assert handler(here) == {name!r}
    for k in range(4):
        here[:] = np.arange(n) % 251 + k + rank
        exchange(here, there)
        assert (there == (np.arange(n) % 251 + k + other).astype(np.uint8)).all(), (n, k)
        there[:] = 9
    del there
    assert not np.zeros(n, np.uint8).any()
""",
        *options,
    )


@pytest.mark.slow
def test_shared_and_private_memory_mix() -> None:
    run("""
n = 1_500_000
shared, private = np.arange(n, dtype=np.uint8), bytearray(bytes(range(250)) * (n // 250))
target, room = np.empty(n, np.uint8), bytearray(n)
exchange(shared, room)
assert room == shared.tobytes()
exchange(private, target)
assert target.tobytes() == private
exchange(shared[1000:-1000], target[77:])
assert (target[77 : 77 + n - 2000] == shared[1000:-1000]).all()
both = np.empty(n, np.uint8)
comm.Sendrecv(shared, other, recvbuf=both)
assert (both == shared).all()
if rank == 0:
    comm.Send(shared, 1)
else:
    short = np.full(n, 9, np.uint8)
    try:
        comm.Recv(short[:-1], 0)
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_TRUNCATE
    else:
        raise AssertionError("a message that is too long")
    assert short[-1] == 9 and (short[:-1] == shared[:-1]).all()
try:
    comm.Bcast(shared[:-1] if rank else shared, 0)
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_TRUNCATE
    said = "rank 0 takes part with 1500000 bytes" if rank else "it failed at rank 1"
    assert said in str(error), error
else:
    assert not rank
total = np.empty(n, np.float64)
comm.Allreduce(np.full(n, 1.5), total)
assert (total == 3).all()
comm.Barrier()
""")


@pytest.mark.slow
def test_many_messages_at_a_time_between_all_kinds_of_memory() -> None:
    run("""
rng = np.random.default_rng(rank)
for turn in range(12):
    sizes = [9000 + 40009 * k for k in range(24)]
    out = [np.full(n, (k + rank + turn) % 256, np.uint8) for k, n in enumerate(sizes)]
    out = [bytearray(each) if k % 5 == turn % 5 else each for k, each in enumerate(out)]
    into = [np.empty(n, np.uint8) if k % 3 else bytearray(n) for k, n in enumerate(sizes)]
    order = rng.permutation(len(sizes))
    requests = [comm.Irecv(into[k], other, int(k)) for k in order[:12]]
    requests += [comm.Isend(each, other, k) for k, each in enumerate(out)]
    requests += [comm.Irecv(into[k], other, int(k)) for k in order[12:]]
    MPI.Request.Waitall(requests)
    for k, each in enumerate(into):
        assert (np.frombuffer(each, np.uint8) == (k + other + turn) % 256).all(), (turn, k)
""")


@pytest.mark.slow
def test_arrays_beyond_the_arena_are_private_and_arrive() -> None:
    run("""
kept = [np.empty(16 << 20, np.uint8) for _ in range(80)]  # 1.25 GiB, hardly a page of it touched
last, first = kept[-1][:200000], kept[0][:200000]
last[:] = 3
exchange(last, first)
assert (first == 3).all()
del kept, last, first
again = np.zeros(16 << 20, np.uint8)
assert not again.any()
""")


@pytest.mark.slow
def test_memory_of_arrays_that_are_gone_is_returned() -> None:
    run("""
before = shared_bytes()
comm.Barrier()
kept = [np.ones(4 << 20, np.uint8) for _ in range(64)]
comm.Barrier()
assert shared_bytes() - before > 400 << 20
comm.Barrier()
del kept
comm.Barrier()
assert shared_bytes() - before < 140 << 20, shared_bytes() - before
""")


@pytest.mark.slow
def test_arrays_grow_and_shrink() -> None:
    run("""
for steps in ((100, 9000, 30000, 31000, 100, 5_000_000, 20_000_000, 12000, 10),):
    array = np.arange(50, dtype=np.int32)
    for n in steps:
        array.resize(n, refcheck=False)
        kept = min(50, n)
        assert (array[:kept] == np.arange(kept)).all() and not array[50:].any(), n
""")


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "import numpy",
        "import mpi4py.MPI",
        "import mpi4py.MPI, importlib.util; assert importlib.util.find_spec('numpy').loader",
    ],
)
def test_the_order_of_the_imports_does_not_matter(first: str) -> None:
    program = (
        f"{first}\n"
        "import numpy as np\n"
        "from mpi4py import MPI\n"
        "from numpy.lib import recfunctions\n"
        "import sys\n"
        "core = sys.modules.get('numpy._core.multiarray') or sys.modules['numpy.core.multiarray']\n"
        "print(core.get_handler_name(np.empty(50000)), np.arange(3).sum())"
    )
    ran = launch(2, "-c", program)
    assert ran.stdout.split() == ["shmnd_mpi", "3"] * 2, ran.stdout + ran.stderr


@pytest.mark.slow
def test_memory_of_alloc_mem_is_zeroed_and_shared() -> None:
    run("""
for n in (0, 5, 100_000, 20 << 20):
    memory = MPI.Alloc_mem(n)
    assert len(memory) == n and memory.tobytes() == bytes(n)
    view = np.frombuffer(memory, np.uint8)
    view[:] = 1 + rank
    there = MPI.Alloc_mem(n)
    exchange(memory, there)
    assert there.tobytes() == bytes([1 + other]) * n
    del view
    MPI.Free_mem(memory)
    MPI.Free_mem(there)
""")


@pytest.mark.slow
def test_memory_of_alloc_mem_is_aligned_as_its_info_asks() -> None:
    """A number that is not a power of two asks for nothing."""
    run("""
for asked, alignment in (("64", 64), ("65536", 65536), ("3", 1), ("0", 1), ("none", 1)):
    info = MPI.Info.Create({"mpi_minimum_memory_alignment": asked})
    for n in (0, 100, 1 << 20):
        memory = MPI.Alloc_mem(n, info)
        assert len(memory) == n and MPI.Get_address(memory) % alignment == 0, (asked, n)
        memory[:] = bytes([1 + rank]) * n
        there = MPI.Alloc_mem(n, info)
        exchange(memory, there)
        assert there.tobytes() == bytes([1 + other]) * n
        MPI.Free_mem(memory)
        assert len(memory) == 0
""")


def test_views_and_parts_of_memory_outlive_its_end() -> None:
    memory = MPI.Alloc_mem(1 << 20)  # so long that its pages go back to the system
    view, part = np.frombuffer(memory, "u1"), memory[10:20]
    array: np.ndarray = np.ndarray(1 << 20, "u1", memory)  # refers to the object, without a view
    words = memory[7:].toreadonly()
    MPI.Free_mem(memory)
    assert len(memory) == 0
    view[:] = 5
    assert (part[0], words[1 << 19], len(words)) == (5, 5, (1 << 20) - 7)
    array[:] = 6
    assert (part[0], words[0]) == (6, 6)


def test_an_aligned_block_is_as_long_as_asked_for_in_each_form() -> None:
    memory = MPI.Alloc_mem(100, MPI.Info.Create({"mpi_minimum_memory_alignment": "64"}))
    array: np.ndarray = np.ndarray(100, "u1", memory)
    words = memory.toreadonly()
    assert (len(words), words.address) == (100, memory.address)
    MPI.Free_mem(memory)
    array[:] = 3
    assert words.tobytes() == bytes([3]) * 100


def test_a_cycle_through_a_part_of_a_buffer_is_collected() -> None:
    class Array(np.ndarray):
        part: object

    array = np.zeros(100).view(Array)
    array.part = MPI.buffer(array)[:8]
    gone = weakref.ref(array)
    del array
    gc.collect()
    assert gone() is None


def test_memory_that_a_view_uses_is_not_collected() -> None:
    class Array(np.ndarray):
        whole: object

    array = np.ones(1 << 19).view(Array)
    whole = array.whole = MPI.buffer(array)
    part = whole[:]
    view = memoryview(part)
    part.release()
    del array, whole, part
    gc.collect()
    assert view[6:8] == np.float64(1).tobytes()[6:]


def test_released_memory_is_free_when_its_last_view_has_ended() -> None:
    source = bytearray(100)
    memory = MPI.buffer.frombuffer(source)
    views = [memoryview(memory), memoryview(memory)]
    memory.release()
    for view in views:
        with pytest.raises(BufferError):
            source.append(1)
        view.release()
    del memory, view, views
    source.append(1)


def test_foreign_memory_outlives_a_released_buffer() -> None:
    class Source:
        def __init__(self) -> None:
            self.array = np.arange(8)

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    source: Any = Source()
    memory = MPI.buffer.frombuffer(source)
    view = memoryview(memory)
    memory.release()
    gc.collect()
    assert np.frombuffer(view, "i8").tolist() == list(range(8))


@pytest.mark.slow
def test_threads_make_arrays_at_the_same_time() -> None:
    run("""
import contextvars
wrong = []
def work(seed):
    rng = np.random.default_rng(seed)
    kept = {}
    for step in range(3000):
        k = int(rng.integers(20))
        if k in kept and not (kept[k] == seed).all():
            wrong.append(step)
        kept[k] = np.full(int(rng.integers(5000, 90000)), seed, np.uint8)
inside = [contextvars.copy_context().run for _ in range(3)]
threads = [threading.Thread(target=each, args=(work, 1 + k)) for k, each in enumerate(inside)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert not wrong
""")


@pytest.mark.slow
def test_a_forked_child_has_arrays_of_its_own() -> None:
    run("""
import multiprocessing
array, small, gone = np.full(300_000, 1.0), np.ones(10), np.ones(70_000)
del gone
reads, writes = os.pipe()
child = os.fork()
if child == 0:
    os.read(reads, 1)  # the parent has changed its array
    fits = (array == 1).all() and (small == 1).all()
    array[:] = 2
    more = np.full(300_000, 4.0)
    fits = fits and (more == 4).all() and handler(more) == "shmnd_mpi"
    del more, array
    os._exit(0 if fits else 1)
array[:] = 3
os.write(writes, b"x")
assert os.waitpid(child, 0)[1] == 0
assert (array == 3).all()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(np.sum, [array[:10], array[10:20]]) == [30.0, 30.0]
theirs = np.empty_like(array)
exchange(array, theirs)
assert (theirs == 3).all()
""")


@pytest.mark.slow
def test_a_child_that_dies_at_once_holds_up_no_rank() -> None:
    run("""
array = np.ones(200_000)
for _ in range(20):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), 9)
    assert os.waitpid(child, 0)[1] == 9
assert (array == 1).all() and len(os.listdir("/proc/self/fd")) < 40
""")


@pytest.mark.slow
def test_a_handler_of_the_program_stays() -> None:
    program = """
import ctypes, sys
import numpy as np
from numpy._core import _multiarray_umath as core
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = ctypes.cast(get(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
current = ctypes.PYFUNCTYPE(ctypes.py_object)(table[305])()
whole = bytearray(ctypes.string_at(get(current, b"mem_handler"), 256))
whole[:4] = b"mine"
whole[4] = 0
kept = (ctypes.c_char * 256).from_buffer(whole)
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
ours = new(ctypes.addressof(kept), b"mem_handler", None)
ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304])(ours)
from mpi4py import MPI
print(core.get_handler_name(np.empty(50000)))
"""
    ran = launch(2, "-c", program)
    assert ran.stdout.split() == ["mine", "mine"], ran.stdout + ran.stderr


def test_arrays_are_private_where_a_file_may_not_be_as_long_as_all_of_them() -> None:
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", _NAMES_ALLOCATOR]
    limited = f"""
import os, resource
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, hard))
os.execv({sys.executable!r}, {line})
"""
    ran = python("-c", limited)
    assert set(ran.stdout.split()) == {"default_allocator"}, ran.stdout


_NAMES_ALLOCATOR = """
from mpi4py import MPI
import numpy as np
from numpy._core import _multiarray_umath as core
mine, total = np.full(100_000, MPI.COMM_WORLD.rank, "d"), np.empty(100_000)
MPI.COMM_WORLD.Allreduce(mine, total)
assert (total == 1).all()
print(core.get_handler_name(mine))
"""
