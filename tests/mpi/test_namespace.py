# SPDX-License-Identifier: Apache-2.0
"""The namespace of MPI, its front, and the modules around it, in a job of one rank."""

import inspect
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmnd.mpi.MPI as MPI
from mpi.launcher.jobs import launch
from shmnd.common.native import direct_calls
from shmnd.mpi import futures
from shmnd.mpi.util import dtlib, pkl5, pool, sync

FRONT = Path(MPI.__file__).parent / "front"
NAMES = """
    Add_error_class Alloc_mem Attach_buffer BOTTOM BYTE COMM_SELF COMM_WORLD Cartcomm Comm
    Compute_dims DATATYPE_NULL DOUBLE Datatype Detach_buffer Distgraphcomm ERRORS_RETURN Errhandler
    Exception FILE_NULL File Finalize Flush_buffer Free_mem GROUP_EMPTY Get_address
    Get_error_string Get_library_version Get_processor_name Get_version Graphcomm Grequest Group
    IN_PLACE INFO_ENV INFO_NULL Iflush_buffer Info Init_thread Intercomm Intracomm Is_finalized
    MESSAGE_NO_PROC Message OP_NULL Op Open_port Pcontrol Pickle Prequest REQUEST_NULL Request
    SESSION_NULL SUM Session Status Topocomm WIN_NULL Win Wtime _comm_lock_table _sizeof buffer
    get_vendor memory pickle
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_the_namespace_has(name: str) -> None:
    assert getattr(MPI, name) is not None


def test_calls_that_are_left_out_name_the_page() -> None:
    calls: dict[str, tuple[object, ...]] = {
        "Open_port": (),
        "Publish_name": ("name", "port"),
        "Register_datarep": ("external64", None, None, None),
    }
    for name, arguments in calls.items():
        with pytest.raises(NotImplementedError, match=rf"^{name}: .*docs/mpi\.md.* a real MPI"):
            getattr(MPI, name)(*arguments)


SIGNATURES = {
    "Comm.Send": "(self, /, buf, dest, tag=0)",
    "Comm.recv": "(self, /, buf=None, source=-1, tag=-1, status=None)",
    "Request.Waitall": "(requests, statuses=None)",
    "Request.fromint": "(arg, /)",
    "Op.Create": "(function, commute=False)",
    "buffer.allocate": "(nbytes, clear=False)",
    "Wtime": "()",
    "Alloc_mem": "(size, info=None)",
}
"""Of functions and methods of C, whose texts have the types."""


@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_of_c_have_signatures(name: str) -> None:
    function = attrgetter(name)(MPI)
    assert str(inspect.signature(function)) == SIGNATURES[name]
    first = function.__doc__.partition("\n")[0]
    assert first.startswith(function.__name__ + "(")
    assert " -> " in first


def test_every_call_has_a_signature_and_a_text_that_begins_with_it() -> None:
    for owner in [MPI, *(each for each in vars(MPI).values() if isinstance(each, type))]:
        for name, call in inspect.getmembers(owner, callable):
            if name.startswith("_") or isinstance(call, type | MPI.Op):
                continue
            if owner is MPI.Exception and hasattr(Exception, name):
                continue
            assert inspect.signature(call), (owner, name)
            called = name if owner is MPI else call.__name__  # Datatype.Create_dup is its Dup
            assert call.__doc__.startswith(called + "("), (owner, name, call.__doc__)


def test_the_front_is_the_same_module() -> None:
    program = (
        "import mpi4py, mpi4py.MPI, mpi4py.util.sync, mpi4py.futures, shmnd.mpi.MPI as MPI\n"
        "from mpi4py import MPI as front\n"
        "assert front is MPI and mpi4py.MPI is MPI, front\n"
        "assert type(mpi4py.rc) is mpi4py.Rc and mpi4py.Rc(errors='fatal').errors == 'fatal'\n"
        "print(mpi4py.rc.threads, front.COMM_WORLD.size)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{FRONT}:{FRONT.parents[2]}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True 1\n", "")


STARS = {
    "bench": "futures helloworld main pingpong ringtest",
    "futures.util": "collect compose",
    "typing": """
        Aint Bottom BufSpec BufSpecB BufSpecV BufSpecW Buffer Count Displ InPlace Offset
        SupportsBuffer SupportsCAI SupportsDLPack TargetSpec TypeSpec
    """,
    "util.dtlib": "MPI from_numpy_dtype to_numpy_dtype",
    "util.pkl5": """
        ANY_SOURCE ANY_TAG Comm Intercomm Intracomm MPI Message PROC_NULL Pickle ROOT Request
        Status pickle
    """,
}
"""What a star imports from modules of mpi4py 4.1.2."""


def test_a_star_imports_the_names_that_mpi4py_has() -> None:
    program = (
        f"for module, names in {STARS!r}.items():\n"
        "    found = {}\n"
        "    exec(f'from mpi4py.{module} import *', found)\n"
        "    assert found.keys() - {'__builtins__'} == set(names.split()), (module, *found)\n"
    )
    launch(1, "-c", program)


@pytest.mark.parametrize(
    "dtype", ["i4", "f8", "(2,3)i2", "c16,i4", [("a", "u1"), ("b", "f4", 2)], "S1", "S5", "U3,i4"]
)
def test_dtypes_become_datatypes_and_back(dtype: object) -> None:
    made = dtlib.from_numpy_dtype(np.dtype(dtype))
    back = dtlib.to_numpy_dtype(made)
    assert back.itemsize == np.dtype(dtype).itemsize == made.extent
    assert dtlib.from_numpy_dtype(back).Get_extent() == made.Get_extent()
    made.Free()


def test_records_with_strings_and_dates_are_sent_whole() -> None:
    """Each item has all characters of its strings."""
    fields = [("name", "S5"), ("letters", "U3"), ("when", "M8[s]"), ("long", "m8[ns]"), ("n", "u1")]
    items = np.zeros(4, np.dtype(fields, align=True))
    items["name"], items["letters"], items["n"] = b"abcde", "xyz", 7
    items["when"], items["long"] = np.datetime64("2026-08-22T10:11:12"), 12345
    made = dtlib.from_numpy_dtype(items.dtype).Commit()
    got = np.zeros_like(items)
    # As bytes: numpy exports no memory with dates.
    sent, into = items.view("u1"), got.view("u1")
    MPI.COMM_SELF.Sendrecv([sent, 4, made], 0, 0, [into, 4, made], 0, 0)
    assert (got == items).all()
    made.Free()
    for kind in ("V4", "S0"):
        with pytest.raises(ValueError, match="no datatype is like it"):
            dtlib.from_numpy_dtype(kind)


def test_pools_of_threads() -> None:
    with futures.ThreadPoolExecutor(1) as executor:
        assert list(executor.map(pow, [2, 3], [5, 2], chunksize=2)) == [32, 9]
        assert sorted(executor.map(abs, [-1, 2], unordered=True)) == [1, 2]
    with pytest.raises(RuntimeError):
        executor.submit(abs, 1)
    with futures.MPICommExecutor(MPI.COMM_SELF) as executor:
        assert executor is not None
        assert executor.submit(abs, -42).result() == 42
    with pool.ThreadPool(1) as threads:
        assert threads.starmap(divmod, [(7, 2)]) == [(3, 1)]


def test_synchronization_of_one_rank() -> None:
    counter = sync.Counter(start=3, step=2)
    assert [next(counter), next(counter)] == [3, 5]
    counter.free()
    mutex = sync.Mutex(recursive=True)
    with mutex, mutex:
        assert mutex.count() == 2
    mutex.free()
    semaphore = sync.Semaphore(1)
    assert semaphore.acquire()
    assert not semaphore.acquire(blocking=False)
    semaphore.release()
    with pytest.raises(ValueError, match="exceed"):
        semaphore.release()
    semaphore.free()


def test_pickles_of_protocol_5_by_messages() -> None:
    comm = pkl5.Intracomm(MPI.COMM_SELF)
    kept = np.arange(1 << 15)
    request = comm.isend(kept, 0, 5)
    assert comm.mprobe(0, 5).recv().tolist() == kept.tolist()
    request.wait()
    assert not request
    with pytest.raises(RuntimeError):
        comm.irecv()


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("helloworld --quiet", []),
        ("helloworld", ["Hello, World! I am process 0 of 1 on .*"]),
        ("ringtest -n 10 -s 1 -l 3", [r"time for 3 loops = \S+ seconds \(1 processes, 10 bytes\)"]),
        (
            "pingpong -m 2 -n 4 -s 1 -l 3 -a none",
            [
                "# MPI PingPong Test",
                r"# Size \[B\]  Bandwidth \[MB/s\] \| Time Mean \[s\] ± StdDev \[s\]  Samples",
                r" {9}2 +[\d.]+ \| \d\S+ ± \d\S+        3",
                r" {9}4 +[\d.]+ \| \d\S+ ± \d\S+        3",
            ],
        ),
        ("pingpong -n 2 -l 2 -p --protocol 4 --no-header --no-stats", [r" {9}[12] +[\d.]+"] * 2),
        ("pingpong -n 1 -l 1 -o --threshold 1 --no-header --no-stats", [r" {9}1 +[\d.]+"]),
        (
            "futures -m 1 -n 1 -t 2 -l 2 -w 1 -e thread -a array -c 2 --no-stats",
            [
                "# ThreadPoolExecutor - 1 workers, 2 tasks/worker",
                r"# Size \[B\]  Tasks/s",
                r" {9}1 +\d+",
            ],
        ),
    ],
)
def test_the_programs_of_bench_have_the_options_and_lines_of_mpi4py(
    command: str, lines: list[str]
) -> None:
    printed = launch(1, "-m", "mpi4py.bench", *command.split()).stdout.splitlines()
    assert len(printed) == len(lines), printed
    assert all(map(re.fullmatch, lines, printed)), printed


@pytest.mark.parametrize("command", ["ringtest -n 10 -l 2", "pingpong -n 2 -l 2 --no-header"])
def test_the_ranks_of_a_job_run_the_programs_of_bench(command: str) -> None:
    """The first two exchange messages, or all pass one around; one rank prints."""
    printed = launch(3, "-m", "mpi4py.bench", *command.split()).stdout.splitlines()
    assert len(printed) == (1 if "ringtest" in command else 2)


def test_the_options_of_bench_choose_the_thread_level() -> None:
    program = (
        "from mpi4py import bench\n"
        "bench.main(['--thread-level', 'single', 'helloworld', '-q'])\n"
        "from mpi4py import MPI\n"
        "assert MPI.Is_initialized()\n"
        "assert MPI.Query_thread() == MPI.THREAD_SINGLE\n"
    )
    launch(1, "-c", program)


def test_a_pool_of_ranks_runs_the_tasks_of_bench() -> None:
    command = "-m mpi4py.futures -m mpi4py.bench futures -n 1 -t 2 -l 1 --no-stats"
    printed = launch(3, *command.split()).stdout.splitlines()
    assert printed[0] == "# MPIPoolExecutor - 2 workers, 2 tasks/worker"
    assert len(printed) == 3


KINDS = ("Intracomm", "Intercomm", "Topocomm", "Cartcomm", "Graphcomm", "Distgraphcomm")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["Send", "Recv", "Isend", "Irecv", "send", "recv", "Get_rank"])
def test_the_interpreter_calls_the_methods_of_communicators_directly(kind: str, call: str) -> None:
    method = getattr(getattr(MPI, kind), call)
    assert method.__objclass__ is getattr(MPI, kind)  # which it demands
    assert method.__doc__ == getattr(MPI.Comm, call).__doc__
    assert method.__doc__.startswith(f"{call}(self")


def test_methods_of_a_program_stay_in_classes_made_of_its_own() -> None:
    class Counting(MPI.Intracomm):
        def Get_rank(self) -> int:  # noqa: N802
            return super().Get_rank() + 100

    @direct_calls
    class Below(Counting):
        pass

    below = Below(MPI.COMM_SELF)
    assert below.Get_rank() == below.rank == 100
    assert vars(Below)["Get_size"].__objclass__ is Below
    assert below.Get_size() == below.size == 1
    other: Any = object()
    with pytest.raises(TypeError, match="Below"):
        Below.Get_size(other)


@pytest.mark.parametrize("name", ["rank", "size"])
def test_a_null_communicator_has_no_rank_and_no_size(name: str) -> None:
    with pytest.raises(MPI.Exception, match=f"Comm.Get_{name}: the communicator is null"):
        getattr(MPI.COMM_NULL, name)
    with pytest.raises(MPI.Exception, match=f"Comm.Get_{name}: the communicator is null"):
        getattr(MPI.COMM_NULL, f"Get_{name}")()
