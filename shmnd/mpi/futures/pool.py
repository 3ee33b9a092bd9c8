# SPDX-License-Identifier: Apache-2.0
"""Executors whose workers are ranks, processes or threads.

Under `python -m mpi4py.futures` and in `MPICommExecutor` the workers are ranks of the job. In other
programs an `MPIPoolExecutor` starts processes of this host, which are not ranks of the job.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import queue
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures as cf
from concurrent.futures import Executor, Future
from typing import Any, Final, Self

from shmnd.common.arguments import shown
from shmnd.common.interruption import pass_on
from shmnd.mpi.communicators.intracomm import COMM_SELF, COMM_WORLD
from shmnd.mpi.futures.local import Processes, Threads, prepare_process
from shmnd.mpi.futures.workers import Ranks, Team, begin, name_program, prepare, serve

_OPTIONS: Final = frozenset(
    {
        "python_exe", "python_args", "mpi_info", "globals", "main", "path", "wdir", "env",
        "use_pkl5", "backoff",
    }
)  # fmt: skip
_open: Final[weakref.WeakSet[MPIPoolExecutor]] = weakref.WeakSet()
_shared: Ranks | None = None


def share(ranks: Ranks | None) -> None:
    """Have all executors of this process use these workers."""
    global _shared
    _shared = ranks


def close_all() -> None:
    """Shut down all executors of this process."""
    for each in list(_open):
        each.shutdown()


def _workers(given: Any, name: str) -> int:
    """Return a number of workers; as in mpi4py, all that `int` takes is one."""
    try:
        number = int(given)
    except (TypeError, ValueError, OverflowError) as error:
        pass_on(error)
        kinds = (TypeError, OverflowError, ValueError)  # those of others may take no text alone
        kind = next(each for each in kinds if isinstance(error, each))
        raise kind(f"{name}={shown(given)}: expected a number of workers") from None
    if number <= 0:
        raise ValueError(f"{name}={shown(given)}: expected 1 or more")
    return number


def _chunk(function: Any, tasks: list[tuple[Any, ...]]) -> list[Any]:
    return [function(*task) for task in tasks]


def submitted_in_chunks(
    executor: cf.Executor, function: Any, calls: Iterable[Iterable[Any]], chunksize: int
) -> Iterator[Future[list[Any]]]:
    """Return an iterator that submits a task of so many calls at each step, for its future."""
    if chunksize < 1:
        raise ValueError(f"chunksize={chunksize}: expected 1 or more")
    left = iter(calls)
    chunks = iter(lambda: [tuple(call) for call in itertools.islice(left, chunksize)], [])
    return (executor.submit(_chunk, function, chunk) for chunk in chunks)


class _Ordered:
    """Futures in the order in which they were made."""

    def __init__(self) -> None:
        self._left: deque[Future[Any]] = deque()

    def __len__(self) -> int:
        return len(self._left)

    def add(self, future: Future[Any]) -> None:
        self._left.append(future)

    def result(self, timeout: float | None) -> Any:
        """Return the next result."""
        found = self._left[0].result(timeout)
        self._left.popleft()
        return found

    def cancel(self) -> None:
        for each in self._left:
            each.cancel()


class _Unordered:
    """Futures in the order in which they end."""

    def __init__(self) -> None:
        self._left: set[Future[Any]] = set()
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def __len__(self) -> int:
        return len(self._left)

    def add(self, future: Future[Any]) -> None:
        self._left.add(future)
        future.add_done_callback(self._done.put)

    def result(self, timeout: float | None) -> Any:
        """Return the next result."""
        try:
            future = self._done.get(timeout=timeout)
        except queue.Empty:
            raise cf.TimeoutError from None
        self._left.discard(future)
        return future.result()

    def cancel(self) -> None:
        for each in self._left:
            each.cancel()


def _results(
    begun: _Ordered | _Unordered, futures: Iterator[Future[Any]], until: float | None
) -> Iterator[Any]:
    """Yield the results of chunks, and begin one more for each that is done."""
    try:
        while begun:
            results = begun.result(None if until is None else max(0.0, until - time.monotonic()))
            for future in itertools.islice(futures, 1):
                begun.add(future)
            yield from results
    finally:
        begun.cancel()


class MPIPoolExecutor(Executor):
    """MPI-based asynchronous executor."""

    Future: type[cf.Future[Any]] = cf.Future
    """The type of the futures that `submit` returns; a subclass may name another."""

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        **kwargs: Any,
    ) -> None:
        """Start up to `max_workers` workers at the first task.

        Options of mpi4py that say how processes are started are known; `globals`, `main`, `path`,
        `wdir` and `env` are followed.
        """
        if max_workers is None:
            text = os.environ.get("MPI4PY_FUTURES_MAX_WORKERS") or 1
            max_workers = _workers(text, "MPI4PY_FUTURES_MAX_WORKERS")
        else:
            max_workers = _workers(max_workers, "max_workers")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer={initializer!r}: expected a function")
        for name in kwargs.keys() - _OPTIONS:
            warnings.warn(f"MPIPoolExecutor({name}=...): unknown option", stacklevel=2)
        self._max_workers = max_workers
        self._initializer = initializer
        self._initargs = tuple(initargs)
        self._options = kwargs
        self._backend: Any = None
        self._given: Ranks | None = None
        self._closed = False
        self._futures: weakref.WeakSet[cf.Future[Any]] = weakref.WeakSet()
        _open.add(self)

    @property
    def num_workers(self) -> int:
        """Number of worker processes; 0 where the executor is broken or was shut down."""
        return 0 if self._closed else int(self._begun().count())

    def bootup(self, wait: bool = True) -> Self:
        """Allocate executor resources eagerly."""
        if self._closed:
            raise RuntimeError("bootup: the executor was shut down")
        backend = self._begun()
        if wait:
            with contextlib.suppress(cf.BrokenExecutor):  # of an initializer: tasks raise it
                backend.submit(int, (), {}).exception()
        return self

    def _setting(self) -> dict[str, Any]:
        """Return what workers are to be."""
        given = {key: dict(self._options.get(key) or ()) for key in ("globals", "env")}
        setting: dict[str, Any] = {**given, "path": list(self._options.get("path") or ())}
        setting["wdir"] = self._options.get("wdir")
        if self._options.get("main", True):
            setting["main"] = getattr(sys.modules["__main__"], "__file__", None)
        return setting

    def _ranks(self) -> Ranks | None:
        """Return the ranks that are the workers, `None` if the executor starts its own."""
        return self._given or _shared

    def _make(self) -> Any:
        context = multiprocessing.get_context("spawn")
        setting = {**self._setting(), "main": None}
        return Processes(
            self._max_workers,
            cf.ProcessPoolExecutor(
                self._max_workers,
                context,
                initializer=prepare_process,
                initargs=(setting, self._initializer, self._initargs),
            ),
        )

    def _begun(self) -> Any:
        """Return the workers; begin with them if this is the first task."""
        if self._backend is None:
            ranks = self._ranks()
            if ranks is None:
                self._backend = self._make()
            else:
                name_program()
                self._backend = Team(ranks)
                self._backend.everywhere(prepare, (self._setting(),))
                if self._initializer is not None:
                    self._backend.everywhere(begin, (self._initializer, self._initargs))
        return self._backend

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> cf.Future[Any]:
        """Submit a callable to be executed with the given arguments."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: cf.Future[Any] = self._begun().submit(fn, args, kwargs, self.Future)
        self._futures.add(future)
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Return an iterator equivalent to ``map(fn, *iterables)``."""
        tasks = zip(*iterables, strict=False)
        return self.starmap(fn, tasks, timeout, chunksize, buffersize, **kwargs)

    def starmap(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        unordered: bool = False,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Return an iterator equivalent to ``itertools.starmap(...)``."""
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize={buffersize}: expected 1 or more")
        function = functools.partial(fn, **kwargs) if kwargs else fn
        futures = submitted_in_chunks(self, function, iterable, chunksize)
        begun = _Unordered() if unordered else _Ordered()
        for future in itertools.islice(futures, buffersize):
            begun.add(future)
        until = None if timeout is None else time.monotonic() + timeout
        return _results(begun, futures, until)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Clean-up the resources associated with the executor."""
        self._closed = True
        _open.discard(self)
        if cancel_futures:
            for future in list(self._futures):
                future.cancel()
        backend = self._backend
        if isinstance(backend, Team):
            if wait:
                cf.wait(list(self._futures))
        elif backend is not None:
            backend.close(wait)


class ThreadPoolExecutor(MPIPoolExecutor):
    """`MPIPoolExecutor` subclass using a pool of threads."""

    def _ranks(self) -> None:
        """Take none: tasks and results of threads need no pickle."""

    def _make(self) -> Any:
        return Threads(self._max_workers, self._initializer, self._initargs)


class _Alone(ThreadPoolExecutor):
    """The executor of the only rank of a communicator, with a thread as the other rank."""

    def _make(self) -> Any:
        return Threads(1, self._initializer, self._initargs, COMM_SELF)


class ProcessPoolExecutor(MPIPoolExecutor):
    """`MPIPoolExecutor` subclass using a pool of processes."""

    def _ranks(self) -> None:
        """Take none: the program asks for processes."""


class MPICommExecutor:
    """Context manager for `MPIPoolExecutor`."""

    def __init__(self, comm: Any = None, root: int = 0, **kwargs: Any) -> None:
        """Have the other ranks of `comm` work for its rank `root`."""
        self._comm = COMM_WORLD if comm is None else comm
        if self._comm.Is_inter():
            raise ValueError("MPICommExecutor: expected an intracommunicator")
        if not 0 <= root < self._comm.Get_size():
            raise ValueError(f"MPICommExecutor(root={root}): {self._comm.Get_size()} ranks")
        self._root = root
        self._options = kwargs
        self._executor: MPIPoolExecutor | None = None
        self._own: Any = None

    def __enter__(self) -> MPIPoolExecutor | None:
        """Return executor instance at the root, `None` at the workers, which work here."""
        if self._executor is not None:
            raise RuntimeError("MPICommExecutor: __enter__ was called before")
        size, rank = self._comm.Get_size(), self._comm.Get_rank()
        if _shared is not None:  # the other ranks serve already, and do not come here
            self._executor = MPIPoolExecutor(**self._options)
            return self._executor
        if size == 1:
            self._executor = _Alone(**self._options)
            return self._executor
        self._own = self._comm.Dup()
        workers = self._own.Split(int(rank == self._root), rank)
        if rank != self._root:
            serve(self._own, self._root, workers)
            workers.Free()
            self._own.Free()
            return None
        workers.Free()
        self._executor = MPIPoolExecutor(**self._options)
        self._executor._options.setdefault("main", False)
        others = [other for other in range(size) if other != rank]
        self._executor._given = Ranks(self._own, others)
        return self._executor

    def __exit__(self, *exc: object) -> bool:
        """Shutdown executor instance at master."""
        executor, self._executor = self._executor, None
        if executor is not None:
            ranks = executor._given
            executor.shutdown()
            if ranks is not None:
                ranks.close()
                self._own.Free()
            return False
        return True
