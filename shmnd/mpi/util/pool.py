# SPDX-License-Identifier: Apache-2.0
"""The interface of `multiprocessing.pool` on top of executors, as `mpi4py.util.pool` has it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, Self

from shmnd.mpi.futures.composed import compose, in_order
from shmnd.mpi.futures.pool import MPIPoolExecutor, ThreadPoolExecutor, submitted_in_chunks

__all__ = ["ApplyResult", "AsyncResult", "MapResult", "Pool", "ThreadPool"]

_NEVER_BEGAN: Final = "the pool was terminated before the task began"


def _error_of(ended: Future[Any]) -> BaseException | None:
    """Return what the result of a future that has ended raises, if anything."""
    if ended.cancelled():
        return TimeoutError(_NEVER_BEGAN)
    return ended.exception()


class AsyncResult:
    """Asynchronous result."""

    def __init__(
        self,
        future: Future[Any],
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> None:
        """Watch a future, and call one of the functions when it is done."""
        self.future = future
        self._answered = threading.Event()  # the functions have returned, or raised

        def ended(done: Future[Any]) -> None:
            try:
                error = _error_of(done)
                if error is None and callback is not None:
                    callback(done.result())
                if error is not None and error_callback is not None:
                    error_callback(error)
            finally:
                self._answered.set()

        future.add_done_callback(ended)

    def get(self, timeout: float | None = None) -> Any:
        """Return the result when it arrives, and the callback has returned."""
        if not self._answered.wait(timeout):
            raise TimeoutError
        if self.future.cancelled():
            raise TimeoutError(_NEVER_BEGAN)
        return self.future.result()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the result is available or *timeout* seconds pass."""
        self._answered.wait(timeout)

    def ready(self) -> bool:
        """Return whether the call has completed."""
        return self._answered.is_set()

    def successful(self) -> bool:
        """Return whether the call completed without raising an exception."""
        if not self.ready():
            raise ValueError("successful: the call has not completed")
        return _error_of(self.future) is None


class ApplyResult(AsyncResult):
    """Result type of `apply_async`."""


class MapResult(AsyncResult):
    """Result type of `map_async` and `starmap_async`."""


def _joined(chunks: list[list[Any]]) -> list[Any]:
    return [each for chunk in chunks for each in chunk]


class Pool:
    """Pool using MPI processes as workers."""

    Executor: type[Any] = MPIPoolExecutor

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        **kwargs: Any,
    ) -> None:
        """Start up to `processes` workers at the first task."""
        if processes is not None and processes < 1:
            raise ValueError(f"processes={processes}: expected 1 or more")
        for name in ("maxtasksperchild", "context"):
            if kwargs.pop(name, None) is not None:
                warnings.warn(f"{type(self).__name__}({name}=...): ignored", stacklevel=2)
        self.executor = self.Executor(processes, initializer, tuple(initargs), **kwargs)

    def apply(
        self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: Mapping[str, Any] = {}
    ) -> Any:
        """Call *func* with arguments *args* and keyword arguments *kwds*."""
        return self.executor.submit(func, *args, **kwds).result()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] = {},
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> ApplyResult:
        """Asynchronous version of `apply()` returning `ApplyResult`."""
        return ApplyResult(self.executor.submit(func, *args, **kwds), callback, error_callback)

    def _in_chunks(
        self, tasks: Iterable[Iterable[Any]], chunksize: int | None
    ) -> tuple[Iterable[Iterable[Any]], int]:
        """Return the tasks and the size of their chunks: without one, four for each worker."""
        if chunksize is not None:
            return tasks, chunksize
        known = list(tasks)
        chunks = max(1, 4 * self.executor.num_workers)
        return known, max(1, -(-len(known) // chunks))

    def map(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[Any]:
        """Apply *func* to each element in *iterable*."""
        tasks, size = self._in_chunks(((item,) for item in iterable), chunksize)
        return list(self.executor.starmap(func, tasks, chunksize=size))

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult:
        """Asynchronous version of `map()` returning `MapResult`."""
        tasks = ((item,) for item in iterable)
        return self.starmap_async(func, tasks, chunksize, callback, error_callback)

    def imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> Iterator[Any]:
        """Like `map()` but return an iterator."""
        return iter(self.executor.map(func, iterable, chunksize=chunksize))

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> Iterator[Any]:
        """Like `imap()` but ordering of results is arbitrary."""
        return iter(self.executor.map(func, iterable, chunksize=chunksize, unordered=True))

    def starmap(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
    ) -> list[Any]:
        """Apply *func* to each argument tuple in *iterable*."""
        tasks, size = self._in_chunks(iterable, chunksize)
        return list(self.executor.starmap(func, tasks, chunksize=size))

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult:
        """Asynchronous version of `starmap()` returning `MapResult`."""
        tasks, size = self._in_chunks(iterable, chunksize)
        chunks = in_order(submitted_in_chunks(self.executor, func, tasks, size))
        return MapResult(compose(chunks, _joined), callback, error_callback)

    def istarmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int = 1
    ) -> Iterator[Any]:
        """Like `starmap()` but return an iterator."""
        return iter(self.executor.starmap(func, iterable, chunksize=chunksize))

    def istarmap_unordered(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int = 1
    ) -> Iterator[Any]:
        """Like `istarmap()` but ordering of results is arbitrary."""
        return iter(self.executor.starmap(func, iterable, chunksize=chunksize, unordered=True))

    def close(self) -> None:
        """Prevent any more tasks from being submitted to the pool."""
        self.executor.shutdown(wait=False)

    def terminate(self) -> None:
        """Stop the worker processes without completing pending tasks."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for the worker processes to exit."""
        self.executor.shutdown(wait=True)

    def __enter__(self) -> Self:
        """Return pool."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close pool."""
        self.close()


class ThreadPool(Pool):
    """Pool using threads as workers."""

    Executor: type[Any] = ThreadPoolExecutor
