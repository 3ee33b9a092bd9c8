# SPDX-License-Identifier: Apache-2.0
"""Pools of workers with the interface of `concurrent.futures`, as `mpi4py.futures` has them."""

from concurrent.futures import ALL_COMPLETED as ALL_COMPLETED
from concurrent.futures import FIRST_COMPLETED as FIRST_COMPLETED
from concurrent.futures import FIRST_EXCEPTION as FIRST_EXCEPTION
from concurrent.futures import BrokenExecutor as BrokenExecutor
from concurrent.futures import CancelledError as CancelledError
from concurrent.futures import Executor as Executor
from concurrent.futures import Future as Future
from concurrent.futures import InvalidStateError as InvalidStateError
from concurrent.futures import TimeoutError as TimeoutError
from concurrent.futures import as_completed as as_completed
from concurrent.futures import wait as wait

from shmnd.mpi.futures.composed import collect as collect
from shmnd.mpi.futures.composed import compose as compose
from shmnd.mpi.futures.pool import MPICommExecutor as MPICommExecutor
from shmnd.mpi.futures.pool import MPIPoolExecutor as MPIPoolExecutor
from shmnd.mpi.futures.pool import ProcessPoolExecutor as ProcessPoolExecutor
from shmnd.mpi.futures.pool import ThreadPoolExecutor as ThreadPoolExecutor
from shmnd.mpi.futures.workers import get_comm_workers as get_comm_workers

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "BrokenExecutor",
    "CancelledError",
    "Executor",
    "Future",
    "InvalidStateError",
    "MPICommExecutor",
    "MPIPoolExecutor",
    "ProcessPoolExecutor",
    "ThreadPoolExecutor",
    "TimeoutError",
    "as_completed",
    "collect",
    "compose",
    "get_comm_workers",
    "wait",
]
