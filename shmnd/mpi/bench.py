# SPDX-License-Identifier: Apache-2.0
"""Small programs that show that a job works, and how fast: `python -m mpi4py.bench`.

Their options, their results and the lines that they print are those of mpi4py, without arrays of
cupy and numba, and without an executor of interpreters.
"""

from __future__ import annotations

import argparse
import concurrent.futures as cf
import contextlib
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from shmnd.mpi import environment
from shmnd.mpi.buffers.pickle import pickle
from shmnd.mpi.rc import rc
from shmnd.mpi.transport import hooks

__all__ = ["futures", "helloworld", "main", "pingpong", "ringtest"]

Result = list[tuple[int, float, float]]
"""For each size: the bytes, the mean of the seconds, and their standard deviation."""


def _parser(name: str, verbose: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m mpi4py.bench {name}")
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_false",
        dest="verbose",
        default=verbose,
        help="print nothing",
    )
    return parser


def _add_numbers(parser: argparse.ArgumentParser, **numbers: tuple[str, int, str]) -> None:
    """Add options of numbers: a letter or nothing, the default, and the help."""
    for name, (letter, default, text) in numbers.items():
        letters = [f"-{letter}"] if letter else []
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(
            *letters, option, type=int, default=default, help=f"{text} (default: {default})"
        )


def _add_turns(
    parser: argparse.ArgumentParser, size: str, above: int, *, skip: int, loop: int
) -> None:
    """Add the options of `large` or `huge` sizes: where they begin, and their most turns."""
    numbers = {
        f"skip_{size}": ("", skip, f"turns of {size} ones that are not measured, at most"),
        f"loop_{size}": ("", loop, f"turns of {size} ones that are measured, at most"),
        f"{size}_size": ("", above, f"bytes above which one is {size}"),
    }
    _add_numbers(parser, **numbers)


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-header", action="store_false", dest="header", help="no line on top")
    parser.add_argument("--no-stats", action="store_false", dest="stats", help="only the rates")


class _Table:
    """The lines of a program that measures messages of several sizes."""

    def __init__(self, options: argparse.Namespace, title: str, column: str, rate: str) -> None:
        self._options = options
        self._rate = rate
        self._header = f"# {title}\n# Size [B]  {column}"
        if options.stats:
            self._header += " | Time Mean [s] \u00b1 StdDev [s]  Samples"
        self.result: Result = []

    def add(self, nbytes: int, samples: Sequence[float], amount: float, shown: bool) -> None:
        """Keep the seconds that were measured with a size, and print how much went a second."""
        mean = statistics.mean(samples) if samples else float("nan")
        deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
        self.result.append((nbytes, mean, deviation))
        if not shown:
            return
        if self._options.header and len(self.result) == 1:
            print(self._header)
        line = f"{nbytes:10d}" + self._rate.format(amount / mean)
        if self._options.stats:
            line += f" | {mean:.7e} \u00b1 {deviation:.4e} {len(samples):8d}"
        print(line, flush=True)


def _turns(options: argparse.Namespace) -> Iterator[tuple[int, int, int]]:
    """Yield each size, with its numbers of turns before the measurement and in it."""
    skip, loop = options.skip, options.loop
    for nbytes in (1 << power for power in range(33)):
        if not options.min_size <= nbytes <= options.max_size:
            continue
        if nbytes > options.large_size:
            skip, loop = min(skip, options.skip_large), min(loop, options.loop_large)
        if nbytes > options.huge_size:
            skip, loop = min(skip, options.skip_huge), min(loop, options.loop_huge)
        yield nbytes, skip, loop


def _numpy(wanted: bool) -> Any:
    """Return the module, or None where it is not wanted or not installed."""
    if wanted:
        try:
            import numpy
        except ImportError:
            return None
        return numpy
    return None


def helloworld(comm: Any, args: Sequence[str] | None = None, verbose: bool = True) -> str:
    """Print a line for each rank, in order."""
    options = _parser("helloworld", verbose).parse_args(args)
    size, rank = comm.Get_size(), comm.Get_rank()
    digits = len(str(size - 1))
    line = (
        f"Hello, World! I am process {rank:>{digits}} of {size} on "
        f"{environment.Get_processor_name()}.\n"
    )
    comm.Barrier()
    if rank > 0:
        comm.Recv([None, "B"], rank - 1)
    if options.verbose:
        sys.stdout.write(line)
        sys.stdout.flush()
    if rank < size - 1:
        comm.Send([None, "B"], rank + 1)
    comm.Barrier()
    return line


def _ring(comm: Any, nbytes: int, loop: int, skip: int) -> float:
    """Send a message around all ranks, and return the seconds that the rounds take."""
    size, rank = comm.Get_size(), comm.Get_rank()
    message, received = array("B", [42]) * nbytes, array("B", [0]) * nbytes
    begun = hooks.wtime()
    for turn in range(loop + skip):
        if turn == skip:
            begun = hooks.wtime()
        if size == 1:
            comm.Sendrecv(message, 0, 0, received, 0, 0)
        elif rank == 0:
            comm.Send(message, 1)
            comm.Recv(received, size - 1)
        else:
            comm.Recv(received, rank - 1)
            comm.Send(received, (rank + 1) % size)
    elapsed = hooks.wtime() - begun
    if loop + skip > 0 and received != message:
        print("ringtest: the message that came back is another one", file=sys.stderr, flush=True)
        comm.Abort(2)
    return elapsed


def ringtest(comm: Any, args: Sequence[str] | None = None, verbose: bool = True) -> float:
    """Time a message going around the ring of processes."""
    parser = _parser("ringtest", verbose)
    _add_numbers(
        parser,
        size=("n", 1, "bytes of the message"),
        skip=("s", 0, "rounds that are not measured"),
        loop=("l", 1, "rounds that are measured"),
    )
    options = parser.parse_args(args)
    comm.Barrier()
    elapsed = _ring(comm, options.size, options.loop, options.skip)
    if options.verbose and comm.Get_rank() == 0:
        print(
            f"time for {options.loop} loops = {elapsed:g} seconds "
            f"({comm.Get_size()} processes, {options.size} bytes)",
            flush=True,
        )
    return elapsed


def _pingpong_options(args: Sequence[str] | None, verbose: bool) -> argparse.Namespace:
    parser = _parser("pingpong", verbose)
    _add_numbers(
        parser,
        min_size=("m", 1, "bytes of the shortest message"),
        max_size=("n", 1 << 30, "bytes of the longest message"),
        skip=("s", 100, "messages that are not measured"),
        loop=("l", 10000, "messages that are measured"),
    )
    _add_turns(parser, "large", 1 << 14, skip=10, loop=1000)
    _add_turns(parser, "huge", 1 << 20, skip=1, loop=10)
    parser.add_argument(
        "-a",
        "--array",
        default="numpy",
        choices=["numpy", "none"],
        help="the messages are arrays of numpy, or bytearrays",
    )
    parser.add_argument("-p", "--pickle", action="store_true", help="send and recv of objects")
    parser.add_argument("--protocol", type=int, help="of pickle")
    parser.add_argument(
        "-o", "--outband", action="store_true", help="send and recv of mpi4py.util.pkl5"
    )
    parser.add_argument("--threshold", type=int, help="bytes above which they go out of band")
    _add_table(parser)
    return parser.parse_args(args)


def _exchange(comm: Any, objects: bool) -> Callable[[Any, Any], None]:
    """Return the function that sends a message to the other rank and back."""
    send, recv, both = comm.Send, comm.Recv, comm.Sendrecv
    if objects:
        send, recv, both = comm.send, comm.recv, comm.sendrecv
    rank, size = comm.Get_rank(), comm.Get_size()

    def alone(message: Any, room: Any) -> None:
        both(message, 0, 0, room, 0, 0)
        both(message, 0, 0, room, 0, 0)

    def first(message: Any, room: Any) -> None:
        send(message, 1)
        recv(room, 1)

    def second(message: Any, room: Any) -> None:
        recv(room, 0)
        send(message, 0)

    if size == 1:
        return alone
    return [first, second][rank] if rank < 2 else lambda message, room: None


def pingpong(comm: Any, args: Sequence[str] | None = None, verbose: bool = True) -> Result:
    """Time messages between the first two processes."""
    from shmnd.mpi.util import pkl5

    options = _pingpong_options(args, verbose)
    numpy = _numpy(options.array == "numpy")
    objects = options.pickle or options.outband
    if options.outband:
        comm = pkl5.Intracomm(comm)
        if options.threshold is not None:
            pkl5.pickle.THRESHOLD = options.threshold
    if objects and options.protocol is not None:
        pickle.PROTOCOL = options.protocol
    exchange = _exchange(comm, objects)
    shown = options.verbose and comm.Get_rank() == 0
    table = _Table(options, "MPI PingPong Test", "Bandwidth [MB/s]", "{:18.2f}")
    for nbytes, skip, loop in _turns(options):
        message = numpy.empty(nbytes, "B") if numpy else bytearray(nbytes)
        room = None
        if not objects:
            room = numpy.empty(nbytes, "B") if numpy else bytearray(nbytes)
        samples = []
        comm.Barrier()
        for turn in range(skip + loop):
            begun = hooks.wtime()
            exchange(message, room)
            if turn >= skip:
                samples.append((hooks.wtime() - begun) / 2)
        table.add(nbytes, samples, nbytes / 1e6, shown)
    return table.result


def _same(item: Any) -> Any:
    return item


def _futures_options(args: Sequence[str] | None, verbose: bool) -> argparse.Namespace:
    parser = _parser("futures", verbose)
    parser.add_argument(
        "-e",
        "--executor",
        default="mpi",
        choices=["mpi", "process", "thread"],
        help="whose workers execute the tasks",
    )
    parser.add_argument("-w", "--num-workers", type=int, dest="workers", help="how many workers")
    _add_numbers(
        parser,
        num_tasks=("t", 50, "tasks a worker"),
        min_size=("m", 0, "bytes of the shortest argument"),
        max_size=("n", 1 << 20, "bytes of the longest argument"),
        chunksize=("c", 1, "tasks that go together"),
        skip=("s", 1, "turns that are not measured"),
        loop=("l", 10, "turns that are measured"),
    )
    _add_turns(parser, "large", 1 << 16, skip=1, loop=5)
    _add_turns(parser, "huge", 1 << 18, skip=1, loop=3)
    parser.add_argument(
        "-a",
        "--allocator",
        default="numpy",
        choices=["numpy", "array", "bytes"],
        help="the type of the arguments",
    )
    parser.add_argument(
        "-b", "--backoff", type=float, default=0.0, help="seconds, as of MPIPoolExecutor"
    )
    parser.add_argument("-o", "--outband", action="store_true", help="pickles out of band")
    _add_table(parser)
    return parser.parse_args(args)


def _executor(options: argparse.Namespace) -> tuple[cf.Executor, int]:
    """Return an executor, and the number of its workers."""
    from shmnd.mpi.futures import MPIPoolExecutor

    if options.executor == "mpi":
        made = MPIPoolExecutor(options.workers, backoff=options.backoff, use_pkl5=options.outband)
        return made, made.num_workers
    kind: Any = cf.ProcessPoolExecutor if options.executor == "process" else cf.ThreadPoolExecutor
    chosen = kind(options.workers)
    return chosen, chosen._max_workers


def futures(comm: Any, args: Sequence[str] | None = None, verbose: bool = True) -> Result:
    """Time tasks that an executor gives to its workers."""
    options = _futures_options(args, verbose)
    numpy = _numpy(options.allocator == "numpy")
    makers: dict[str, Callable[[int], Any]] = {
        "numpy": (lambda nbytes: numpy.zeros(nbytes, "B")) if numpy else bytes,
        "array": lambda nbytes: array("B", bytes(nbytes)),
        "bytes": bytes,
    }
    executor, workers = _executor(options)
    shown = options.verbose and comm.Get_rank() == 0
    title = f"{type(executor).__name__} - {workers} workers, {options.num_tasks} tasks/worker"
    table = _Table(options, title, "Tasks/s", "{:9.0f}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(executor)
        list(executor.map(time.sleep, [0.001] * workers))
        for nbytes, skip, loop in _turns(options):
            number = options.num_tasks * workers
            tasks = [makers[options.allocator](nbytes) for _ in range(number)]
            samples = []
            for turn in range(skip + loop):
                begun = time.perf_counter()
                for _ in executor.map(_same, tasks, chunksize=options.chunksize):
                    pass
                if turn >= skip:
                    samples.append(time.perf_counter() - begun)
            table.add(nbytes, samples, number, shown)
    return table.result


_PROGRAMS: Final[dict[str, Callable[..., Any]]] = {
    "helloworld": helloworld,
    "ringtest": ringtest,
    "pingpong": pingpong,
    "futures": futures,
}


def main(args: Sequence[str] | None = None) -> None:
    """Run the program that the first argument names."""
    parser = argparse.ArgumentParser(prog="python -m mpi4py.bench", description=__doc__)
    parser.add_argument("--threads", action=argparse.BooleanOptionalAction, help="set mpi4py.rc")
    levels = ["single", "funneled", "serialized", "multiple"]
    parser.add_argument("--thread-level", choices=levels, help="set mpi4py.rc")
    parser.add_argument("command", choices=list(_PROGRAMS))
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args(args)
    if options.threads is not None:
        rc.threads = options.threads
    if options.thread_level is not None:
        rc.thread_level = options.thread_level
    from shmnd.mpi import MPI  # which initialises MPI, as `rc` says

    _PROGRAMS[options.command](MPI.COMM_WORLD, options.args)
