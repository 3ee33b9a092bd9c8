# SPDX-License-Identifier: Apache-2.0
"""Ranks that work for another rank: how tasks reach them, and results come back.

The master has a thread that gives each free worker the next task. A worker waits for tasks until it
gets None. Tasks and results are pickles; a result that cannot be pickled is an exception that says
so.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading
import time
from collections import deque
from concurrent.futures import BrokenExecutor, Future
from typing import Any, Final, NoReturn

from shmnd.common.held import Condition, Held
from shmnd.common.interruption import is_interruption
from shmnd.mpi.buffers.pickle import pickle
from shmnd.mpi.constants import ANY_SOURCE
from shmnd.mpi.futures.remote import carried, settle
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.point_to_point.message import Message
from shmnd.mpi.point_to_point.status import Status
from shmnd.mpi.transport.leaving import has_left

TASK: Final = 1
RESULT: Final = 2
_MAIN: Final = "__worker__"
"""The program's name in its workers: pickles of what it defines name it, in both directions."""
_pause = float(os.environ.get("MPI4PY_FUTURES_BACKOFF") or 0.001)
_at_work: Any = None
_thread: Final = threading.local()


def get_comm_workers() -> Any:
    """Return the communicator of the workers, to be called in one of them.

    Raise RuntimeError elsewhere.
    """
    comm = getattr(_thread, "comm", _at_work)
    if comm is None:
        raise RuntimeError("get_comm_workers: this process is not a worker of a pool of ranks")
    return comm


def work_with(comm: Any) -> None:
    """Have this thread work with a communicator: it is all workers of a rank that has no other."""
    _thread.comm = comm


def name_program() -> None:
    """Have pickles from the workers find the program, here or in a worker."""
    sys.modules[_MAIN] = sys.modules["__main__"]


def prepare(setting: dict[str, Any]) -> None:
    """Make this process what the master asks of its workers, before the first task."""
    sys.path.extend(setting.get("path", ()))
    os.environ.update(setting.get("env", {}))
    if setting.get("wdir"):
        os.chdir(setting["wdir"])
    main = sys.modules["__main__"]
    script = setting.get("main")
    if script and getattr(main, "__file__", None) != script:
        main.__dict__.update(runpy.run_path(script, run_name=_MAIN))
    main.__dict__.update(setting.get("globals", {}))
    name_program()


def begin(initializer: Any, initargs: tuple[Any, ...]) -> None:
    """Run the initializer of a pool."""
    if initializer is not None:
        initializer(*initargs)


def _received(comm: Any, master: int) -> Any:
    """Return the next task; one that does not unpickle raises that when it runs."""
    try:
        return comm.recv(source=master, tag=TASK)
    except MPIException:
        raise
    except Exception as error:
        if is_interruption(error):
            raise
        return _raise, (error,), {}


def _raise(error: Exception) -> NoReturn:
    raise error


def serve(comm: Any, master: int, workers: Any = None) -> None:
    """Work for the rank `master` of `comm` until it sends None."""
    global _at_work
    _at_work = workers
    try:
        while True:
            task = _received(comm, master)
            if task is None:
                return
            try:
                outcome = (True, task[0](*task[1], **task[2]))
            except BaseException as error:
                outcome = (False, carried(error, pickle))
            try:
                comm.send(outcome, master, RESULT)
            except MPIException:
                raise
            except Exception as error:
                comm.send((False, carried(error, pickle)), master, RESULT)
    finally:
        _at_work = None


class Ranks:
    """The master's side of a pool of ranks."""

    def __init__(self, comm: Any, workers: list[int]) -> None:
        """Have the ranks `workers` of `comm` work; each runs `serve`."""
        self.comm = comm
        self.workers = workers
        self._tasks: deque[Any] = deque()
        self._lock = threading.RLock()
        self._news = Condition(self._lock)
        self._free = list(workers)
        self._given: dict[int, Future[Any]] = {}
        self._thread = threading.Thread(target=self._manage, name="shmnd-futures", daemon=True)
        self._thread.start()

    def put(self, task: Any) -> None:
        """Queue a task of an executor for the next worker that is free; None: the end."""
        with Held(self._lock):
            # In this order: between them a handler of a signal may raise, and no task that is
            # queued has a thread that sleeps.
            self._news.notify_all()
            self._tasks.append(task)

    def close(self) -> None:
        """Let the workers return from `serve` when all tasks have ended; wait for that."""
        self.put(None)
        self._thread.join()

    def _manage(self) -> None:
        """Assign tasks and take results until the pool is closed."""
        ending = False
        while not ending or self._given or self._tasks:
            died, gone = self._died(), self._gone()
            moved = self._take()
            if died and not moved:
                self._end_tasks_of(died)
            elif gone is not None and not moved:
                self._wait_for(gone)
            if self._tasks and (self._free or not self.workers):
                task = self._tasks.popleft()
                if task is None:
                    ending = True
                else:
                    self._give(*task)
                moved = True
            if not moved:
                self._rest()
        for worker in self.workers:
            with contextlib.suppress(MPIException):  # it has died
                self.comm.send(None, worker, TASK)

    def _died(self) -> list[int]:
        """Return workers that have died since the last time (`--enable-recovery`)."""
        state = self.comm.ob
        failed = [state.group.index(rank) for rank in state.failed()]
        return [worker for worker in failed if worker in self.workers]

    def _gone(self) -> int | None:
        """Return a worker whose process has ended within a task; all that it sent can be taken."""
        group = self.comm.ob.group
        return next((worker for worker in self._given if has_left(group[worker])), None)

    def _wait_for(self, worker: int) -> None:
        """Wait in vain for a worker that has ended, where the launcher sees it.

        One that fails ends the job, or is dead to the others, at once. One that ends with exit code
        0 does not, until another rank waits for it in a call: the launcher then ends the job, or
        declares that worker dead (`--enable-recovery`).
        """
        with contextlib.suppress(MPIException):
            self.comm.Probe(worker, RESULT)

    def _end_tasks_of(self, died: list[int]) -> None:
        """End the tasks of workers that have died, whose results have all been taken."""
        for worker in died:
            self.workers.remove(worker)
            if worker in self._free:
                self._free.remove(worker)
            future = self._given.pop(worker, None)
            if future is not None:
                future.set_exception(BrokenExecutor(f"the worker, rank {worker}, has died"))

    def _rest(self) -> None:
        """Wait for a task; shortly, if a result may come."""
        with Held(self._lock):
            if not (self._tasks and (self._free or not self.workers)):
                self._news.wait(_pause if self._given else None)

    def _give(self, team: Team, future: Future[Any] | None, task: tuple[Any, ...]) -> None:
        if future is None:
            self._begin_all(team, task)
            return
        if not future.set_running_or_notify_cancel():
            return
        if team.failure is not None:
            future.set_exception(team.broken())
            return
        if not self.workers:
            future.set_exception(BrokenExecutor("all workers have died"))
            return
        worker = self._free.pop(0)
        try:
            self.comm.send(task, worker, TASK)
        except BaseException as error:
            self._free.append(worker)
            future.set_exception(error)
            return
        self._given[worker] = future

    def _begin_all(self, team: Team, task: tuple[Any, ...]) -> None:
        """Have every worker run a function, after what it does now."""
        while self._given:
            if not self._take():
                time.sleep(_pause)
        begun = []
        try:
            for worker in self.workers:
                self.comm.send(task, worker, TASK)
                begun.append(worker)
        except BaseException as error:  # such as a function that cannot be pickled
            team.failure = error
        for worker in begun:
            try:
                good, value = self.comm.recv(source=worker, tag=RESULT)
            except BaseException as error:  # one of the function that cannot be unpickled
                good, value = False, error
            if not good:
                team.failure = value

    def _take(self) -> bool:
        """Take a result, if there is one; return whether there was."""
        status = Status()
        found = Message.iprobe(self.comm, ANY_SOURCE, RESULT, status) if self._given else None
        if found is None:
            return False
        worker = status.Get_source()
        future = self._given.pop(worker)
        self._free.append(worker)
        try:
            good, value = found.recv()
        except BaseException as error:
            good, value = False, error
        settle(future, good, value)
        return True


class Team:
    """The ranks of a pool as the workers of one executor; several may share the pool."""

    def __init__(self, ranks: Ranks) -> None:
        """Take the ranks of a pool."""
        self.ranks: Final = ranks
        self.failure: BaseException | None = None
        """Of what every worker runs first: the executor is broken, and others are not."""

    def submit(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: type[Future[Any]] = Future,
    ) -> Future[Any]:
        """Queue a task for the next worker that is free, and return its future of that type."""
        if self.failure is not None:
            raise self.broken()
        future = kind()
        self.ranks.put((self, future, (function, args, kwargs)))
        return future

    def everywhere(self, function: Any, args: tuple[Any, ...]) -> None:
        """Have every worker run a function, before all tasks that are submitted later.

        If one raises, the executor is broken: its tasks end by BrokenExecutor, and it takes no
        further ones.
        """
        self.ranks.put((self, None, (function, args, {})))

    def broken(self) -> BrokenExecutor:
        """Return the error of a task of an executor that is broken."""
        broken = BrokenExecutor(f"an initializer failed: {self.failure!r}")
        broken.__cause__ = self.failure
        return broken

    def count(self) -> int:
        """Return how many workers there are; 0 for an executor that is broken."""
        return 0 if self.failure is not None else len(self.ranks.workers)
