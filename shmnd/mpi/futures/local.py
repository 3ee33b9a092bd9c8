# SPDX-License-Identifier: Apache-2.0
"""The workers of an executor apart from the ranks of a job: threads, or processes of their own."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent import futures as cf
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from shmnd.common.interruption import is_interruption
from shmnd.mpi.futures.remote import Remote, execute
from shmnd.mpi.futures.workers import begin, prepare, work_with
from shmnd.mpi.transport.place import outside

__all__ = ["Processes", "Threads", "prepare_process"]


class Threads:
    """Workers that are threads, each of which runs the initializer before its first task.

    The pool of the standard library leaves tasks pending if that fails and another task was
    cancelled.
    """

    def __init__(
        self, workers: int, initializer: Any, initargs: tuple[Any, ...], comm: Any = None
    ) -> None:
        """Start no thread yet: each starts with a task. A single one may work with `comm`."""
        self._comm = comm
        self._workers = workers
        self._executor = cf.ThreadPoolExecutor(workers, "pool")
        self._initializer = initializer, initargs
        self._thread = threading.local()
        self._failure: BaseException | None = None

    def submit(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: type[Future[Any]] = Future,
    ) -> Future[Any]:
        """Return the future of a task, one of that type."""
        self._check()
        future = kind()
        self._executor.submit(self._work, future, function, args, kwargs)
        return future

    def _check(self) -> None:
        if self._failure is not None:
            raise cf.BrokenExecutor(f"an initializer failed: {self._failure!r}") from self._failure

    def _work(
        self, future: Future[Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Run a task that was not cancelled, and end its future."""
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = self._run(function, args, kwargs)
        except BaseException as error:
            future.set_exception(error)
            del future  # the traceback has this frame: no cycle with the exception
        else:
            future.set_result(value)

    def _run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not hasattr(self._thread, "begun"):
            self._thread.begun = True
            work_with(self._comm)
            try:
                begin(*self._initializer)
            except BaseException as error:
                self._failure = error
        self._check()
        return function(*args, **kwargs)

    def count(self) -> int:
        """Return the number of workers, 0 where an initializer failed."""
        return self._workers if self._failure is None else 0

    def close(self, wait: bool) -> None:
        """Shut the workers down, after their tasks."""
        self._executor.shutdown(wait=wait)


class Processes:
    """Workers that are processes of their own."""

    def __init__(self, workers: int, executor: cf.ProcessPoolExecutor) -> None:
        """Take so many processes of a pool of the standard library."""
        self._workers = workers
        self.executor = executor

    def submit(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: type[Future[Any]] = Future,
    ) -> Future[Any]:
        """Return the future of a task, one of that type."""
        future = Remote.of(kind)
        try:
            task = pickle.dumps((function, args, kwargs))
        except Exception as error:
            if is_interruption(error):
                raise
            future.set_exception(error)
            return future
        # A process that starts now must not take itself for this rank of the job.
        names = os.environ.keys() - outside(os.environ).keys()
        hidden = {name: os.environ.pop(name) for name in names}
        try:
            inner = self.executor.submit(execute, task)
        except BrokenProcessPool:  # by a process that died between tasks
            self._workers = 0
            raise
        finally:
            os.environ.update(hidden)
        inner.add_done_callback(self._look_at)
        future.follow(inner)
        return future

    def _look_at(self, inner: Future[bytes]) -> None:
        """Find out whether the pool broke with a task."""
        if not inner.cancelled() and isinstance(inner.exception(), BrokenProcessPool):
            self._workers = 0

    def count(self) -> int:
        """Return the number of workers, 0 where an initializer failed or a worker has died.

        The death of one that had no task shows in the next task or `submit`.
        """
        return self._workers

    def close(self, wait: bool) -> None:
        """Shut the workers down, after their tasks."""
        self.executor.shutdown(wait=wait)


def prepare_process(setting: dict[str, Any], initializer: Any, initargs: tuple[Any, ...]) -> None:
    """Prepare a process for the tasks of a pool."""
    prepare(setting)
    begin(initializer, initargs)
