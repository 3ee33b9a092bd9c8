# SPDX-License-Identifier: Apache-2.0
"""Small programs that show that a job works, and how fast: `python -m mpi4py.bench`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from shmnd.mpi import environment
from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.communicators.intracomm import COMM_WORLD
from shmnd.mpi.transport import hooks


def _options(name: str, args: Sequence[str] | None, **defaults: Any) -> argparse.Namespace:
    """Read the options of a program, all of them numbers but `quiet` and the array module."""
    parser = argparse.ArgumentParser(prog=f"{__name__} {name}")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    for option, default in defaults.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args(args)


def helloworld(comm: Any, args: Sequence[str] | None = None, verbose: bool = True) -> str:
    """Print a line for each rank, in order."""
    options = _options("helloworld", args)
    size, rank = comm.Get_size(), comm.Get_rank()
    digits = len(str(size - 1))
    line = (
        f"Hello, World! I am process {rank:>{digits}} of {size} on "
        f"{environment.Get_processor_name()}.\n"
    )
    comm.Barrier()
    if rank > 0:
        comm.Recv([None, "B"], rank - 1)
    if verbose and not options.quiet:
        sys.stdout.write(line)
        sys.stdout.flush()
    if rank < size - 1:
        comm.Send([None, "B"], rank + 1)
    comm.Barrier()
    return line


def _ring(comm: Any, nbytes: int, loop: int, skip: int) -> float:
    """Send a message around all ranks, and return the seconds that a round takes."""
    size, rank = comm.Get_size(), comm.Get_rank()
    message = buffer.allocate(nbytes, True)
    begun = hooks.wtime()
    for turn in range(loop + skip):
        if turn == skip:
            comm.Barrier()
            begun = hooks.wtime()
        if size == 1:
            comm.Sendrecv_replace(message, 0, 0, 0, 0)
        elif rank == 0:
            comm.Send(message, 1)
            comm.Recv(message, size - 1)
        else:
            comm.Recv(message, rank - 1)
            comm.Send(message, (rank + 1) % size)
    return (hooks.wtime() - begun) / max(loop, 1)


def ringtest(comm: Any, args: Sequence[str] | None = None, verbose: bool = True) -> float:
    """Time a message going around the ring of processes."""
    options = _options("ringtest", args, size=1, loop=1, skip=0)
    elapsed = _ring(comm, options.size, options.loop, options.skip)
    if verbose and not options.quiet and comm.Get_rank() == 0:
        print(
            f"time for {options.loop} loops = {elapsed * options.loop:g} seconds "
            f"({comm.Get_size()} processes, {options.size} bytes)",
            flush=True,
        )
    return elapsed


def _sizes(least: int, most: int) -> list[int]:
    return [1 << power for power in range(least.bit_length() - 1, most.bit_length())]


def pingpong(
    comm: Any, args: Sequence[str] | None = None, verbose: bool = True
) -> list[tuple[int, float, float]]:
    """Time messages between pairs of processes."""
    options = _options("pingpong", args, min_size=1, max_size=1 << 20, loop=1000, skip=100)
    rank, size = comm.Get_rank(), comm.Get_size()
    peer = rank ^ 1
    results = []
    if verbose and not options.quiet and rank == 0:
        print("# MPI PingPong Test\n# Size [B]  Bandwidth [MB/s] | Time one way [us]", flush=True)
    for nbytes in _sizes(options.min_size, options.max_size):
        message = buffer.allocate(nbytes, True)
        loop = options.loop if nbytes <= 1 << 14 else max(1, options.loop // 10)
        comm.Barrier()
        begun = hooks.wtime()
        for turn in range(loop + options.skip):
            if turn == options.skip:
                begun = hooks.wtime()
            if peer >= size:
                continue
            if rank < peer:
                comm.Send(message, peer)
                comm.Recv(message, peer)
            else:
                comm.Recv(message, peer)
                comm.Send(message, peer)
        one_way = max((hooks.wtime() - begun) / loop / 2, 1e-12)
        results.append((nbytes, one_way, nbytes / one_way))
        if verbose and not options.quiet and rank == 0:
            print(f"{nbytes:10d} {nbytes / one_way / 1e6:17.2f} | {one_way * 1e6:.3f}", flush=True)
    return results


def _same(item: Any) -> Any:
    return item


def futures(
    comm: Any, args: Sequence[str] | None = None, verbose: bool = True
) -> list[tuple[int, float, float]]:
    """Time tasks that an executor gives to the other processes."""
    from shmnd.mpi.futures import MPICommExecutor

    options = _options("futures", args, min_size=1, max_size=1 << 16, num_tasks=100)
    results = []
    with MPICommExecutor(comm) as executor:
        if executor is not None:
            if verbose and not options.quiet:
                print("# MPI Futures Test\n# Size [B]  Tasks/s | Time a task [us]", flush=True)
            for nbytes in _sizes(options.min_size, options.max_size):
                tasks = [bytes(nbytes)] * options.num_tasks
                begun = time.perf_counter()
                list(executor.map(_same, tasks))
                elapsed = (time.perf_counter() - begun) / options.num_tasks
                results.append((nbytes, elapsed, 1 / elapsed))
                if verbose and not options.quiet:
                    print(f"{nbytes:10d} {1 / elapsed:9.0f} | {elapsed * 1e6:.1f}", flush=True)
    return results


_PROGRAMS: Final[dict[str, Callable[..., Any]]] = {
    "helloworld": helloworld,
    "ringtest": ringtest,
    "pingpong": pingpong,
    "futures": futures,
}


def main(args: Sequence[str] | None = None) -> None:
    """Run the program that the first argument names."""
    parser = argparse.ArgumentParser(prog="mpi4py.bench", description=__doc__)
    parser.add_argument("command", choices=list(_PROGRAMS))
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args(args)
    _PROGRAMS[options.command](COMM_WORLD, options.args)
