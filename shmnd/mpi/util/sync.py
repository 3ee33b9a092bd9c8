# SPDX-License-Identifier: Apache-2.0
"""Synchronization between ranks: in turn, by a counter, a mutex, a condition, a semaphore.

All but the first lie in a window of one rank, and change by atomic operations on it. A rank that
waits reads the window until it has changed, and lets other processes run in between.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self, TypeVar

from shmnd.common.held import Held
from shmnd.mpi.collectives.op import REPLACE
from shmnd.mpi.communicators.intracomm import COMM_SELF, Intracomm
from shmnd.mpi.objects.info import INFO_NULL, Info
from shmnd.mpi.util.turns import Turns
from shmnd.mpi.util.words import Words, wait_until

__all__ = ["Condition", "Counter", "Mutex", "Semaphore", "Sequential"]

T = TypeVar("T")


class Sequential:
    """Sequential execution."""

    def __init__(self, comm: Intracomm, tag: int = 0) -> None:
        """Have the ranks of `comm` run one after the other, by messages with `tag`."""
        self.comm = comm
        self.tag = tag

    def __enter__(self) -> Self:
        """Enter sequential execution."""
        self.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        """Exit sequential execution."""
        self.end()

    def begin(self) -> None:
        """Begin sequential execution."""
        if self.comm.Get_rank() > 0:
            self.comm.Recv([None, 0, "B"], self.comm.Get_rank() - 1, self.tag)

    def end(self) -> None:
        """End sequential execution."""
        if self.comm.Get_rank() < self.comm.Get_size() - 1:
            self.comm.Send([None, 0, "B"], self.comm.Get_rank() + 1, self.tag)


class Counter:
    """Global counter."""

    def __init__(
        self,
        start: int = 0,
        step: int = 1,
        *,
        typecode: str = "i",
        comm: Intracomm = COMM_SELF,
        info: Info = INFO_NULL,
        root: int = 0,
    ) -> None:
        """Count from `start` in steps, in the window of rank `root`."""
        self._root = root
        self._step = step
        mine = comm.Get_rank() == root
        words = Words(comm, info, 1 if mine else 0, typecode)
        if mine:
            words.change(root, 0, start, REPLACE)
        comm.Barrier()
        self._words: Words | None = words

    def __iter__(self) -> Self:
        """Implement ``iter(self)``."""
        return self

    def __next__(self) -> int:
        """Implement ``next(self)``."""
        return self.next()

    def next(self, incr: int | None = None) -> int:
        """Return current value and increment."""
        if self._words is None:
            raise RuntimeError("Counter.next: the counter was freed")
        value: int = self._words.change(self._root, 0, self._step if incr is None else incr)
        return value

    def free(self) -> None:
        """Free counter resources."""
        words, self._words = self._words, None
        if words is not None:
            words.free()


class Mutex:
    """Mutual exclusion."""

    def __init__(
        self,
        *,
        recursive: bool = False,
        comm: Intracomm = COMM_SELF,
        info: Info = INFO_NULL,
    ) -> None:
        """Make a mutex, that its owner may acquire again if it is recursive."""
        self._recursive = recursive
        self._comm = comm
        self._turns: Turns | None = Turns(comm, info)

    def __enter__(self) -> Self:
        """Acquire mutex."""
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release mutex."""
        if kind is None or self.locked():  # a wait for it may have failed within
            self.release()

    def _there(self, call: str) -> Turns:
        if self._turns is None:
            raise RuntimeError(f"Mutex.{call}: the mutex was freed")
        return self._turns

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire mutex, blocking or non-blocking."""
        return self._take("Mutex.acquire", blocking)

    def _take(self, call: str, blocking: bool = True) -> bool:
        """Acquire the mutex for a call, which errors name; return whether it was acquired."""
        turns = self._there("acquire")
        if turns.count:
            if not self._recursive:
                raise RuntimeError("Mutex.acquire: this process holds the mutex")
            turns.count += 1
            return True
        if not blocking:
            return turns.take()
        turns.wait(call)
        return True

    def release(self) -> None:
        """Release mutex."""
        turns = self._there("release")
        if not turns.count:
            raise RuntimeError("Mutex.release: this process does not hold the mutex")
        if turns.count > 1:
            turns.count -= 1
        else:
            turns.end()

    def locked(self) -> bool:
        """Return whether the mutex is held."""
        return bool(self._there("locked").count)

    def count(self) -> int:
        """Return the recursion count."""
        return self._there("count").count

    def free(self) -> None:
        """Free mutex resources."""
        turns = self._turns
        if turns is None:
            return
        self._release_all()
        self._turns = None
        turns.free()

    def _release_all(self) -> None:
        """Release the mutex as often as this process has acquired it, if it is there."""
        turns = self._turns
        if turns is not None and turns.count:
            turns.count = 1
            self.release()


class Condition:
    """Condition variable."""

    # Words of rank 0, changed by the holder of the mutex: how many ranks began to wait, how many
    # were notified, and which ranks those are, in a ring. The last word of each rank is its bell.

    def __init__(
        self,
        mutex: Mutex | None = None,
        *,
        recursive: bool = True,
        comm: Intracomm = COMM_SELF,
        info: Info = INFO_NULL,
    ) -> None:
        """Make a condition on a mutex, or on one of its own."""
        self._own = mutex is None
        self._mutex = Mutex(recursive=recursive, comm=comm, info=info) if mutex is None else mutex
        self._comm = self._mutex._comm
        self._size = self._comm.Get_size()
        self._words: Words | None = Words(self._comm, info, self._size + 3)

    def __enter__(self) -> Self:
        """Acquire the underlying mutex."""
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the underlying mutex."""
        if kind is None or self.locked():  # a wait for it may have failed within
            self.release()

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the underlying mutex."""
        return self._take("Condition.acquire", blocking)

    def _take(self, call: str, blocking: bool = True) -> bool:
        self._there("acquire")
        return self._mutex._take(call, blocking)

    def release(self) -> None:
        """Release the underlying mutex."""
        self._there("release")
        self._mutex.release()

    def locked(self) -> bool:
        """Return whether the underlying mutex is held."""
        return self._mutex.locked()

    def _there(self, call: str) -> Words:
        if self._words is None:
            raise RuntimeError(f"Condition.{call}: the condition was freed")
        return self._words

    def _held(self, call: str) -> Words:
        words = self._there(call)
        if not self._mutex.locked():
            raise RuntimeError(f"Condition.{call}: this process does not hold the mutex")
        return words

    def wait(self) -> Literal[True]:
        """Wait until notified by another process."""
        self._wait("Condition.wait")
        return True

    def _wait(self, call: str) -> None:
        """Wait until notified, and for the mutex, under the name of this call."""
        words, turns = self._held("wait"), self._mutex._there("release")
        me, bell = self._comm.Get_rank(), self._size + 2
        held, notified = turns.count, False
        try:
            words.change(0, 2 + words.read(0, 0) % self._size, me, REPLACE)
            words.change(0, 0, 1)
            turns.count = 1
            self._mutex.release()
            wait_until(words, call, lambda: bool(words.read(me, bell)))
            notified = True
        finally:
            try:
                if not turns.count:
                    turns.wait(call)
                turns.count = held
                if not notified:
                    self._withdraw(words, me)
            finally:
                words.change(me, bell, 0, REPLACE)

    def _withdraw(self, words: Words, me: int) -> None:
        """Wait no longer, behind an exception; another rank gets what this one is notified of."""
        if words.read(me, self._size + 2):
            self.notify()
            return
        woken = words.read(0, 1)
        places = range(woken, words.read(0, 0))
        ranks = [words.read(0, 2 + place % self._size) for place in places]
        if me in ranks:
            ranks.remove(me)
            for place, rank in enumerate(ranks, woken):
                words.change(0, 2 + place % self._size, rank, REPLACE)
            words.change(0, 0, -1)

    def wait_for(self, predicate: Callable[[], T]) -> T:
        """Wait until a predicate evaluates to `True`."""
        self._held("wait_for")
        result = predicate()
        while not result:
            self._wait("Condition.wait_for")
            result = predicate()
        return result

    def notify(self, n: int = 1) -> int:
        """Wake up one or more processes waiting."""
        words = self._held("notify")
        began, woken = words.read(0, 0), words.read(0, 1)
        number: int = min(n, began - woken)
        for turn in range(woken, woken + number):
            rank = words.read(0, 2 + turn % self._size)
            words.change(rank, self._size + 2, 1, REPLACE)
        words.change(0, 1, number)
        return number

    def notify_all(self) -> int:
        """Wake up all processes waiting."""
        return self.notify(self._size)

    def free(self) -> None:
        """Free condition resources."""
        words, self._words = self._words, None
        if words is not None:
            if self._own:
                self._mutex.free()
            else:
                self._mutex._release_all()
            words.free()


class _Taken:
    """A condition as another call of the program takes it: a wait for it is one of that call."""

    def __init__(self, condition: Condition, call: str) -> None:
        self._condition = condition
        self._call = call

    def acquire(self, blocking: bool = True) -> bool:
        return self._condition._take(self._call, blocking)

    def release(self) -> None:
        if self._condition.locked():  # a wait for it may have failed within
            self._condition.release()


class Semaphore:
    """Semaphore object."""

    def __init__(
        self,
        value: int = 1,
        *,
        bounded: bool = True,
        comm: Intracomm = COMM_SELF,
        info: Info = INFO_NULL,
    ) -> None:
        """Make a semaphore, that does not exceed `value` if it is bounded."""
        if value < 0:
            raise ValueError(f"Semaphore({value}): expected a value of 0 or more")
        self._bounded = bounded
        self._value = value
        self._counter = Counter(value, comm=comm, info=info)
        self._condition = Condition(comm=comm, info=info)

    def __enter__(self) -> Self:
        """Acquire semaphore."""
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release semaphore."""
        self.release()

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire semaphore, decrementing the internal counter by one."""
        call = "Semaphore.acquire"
        with Held(_Taken(self._condition, call)):
            while self._counter.next(0) == 0:
                if not blocking:
                    return False
                self._condition._wait(call)
            self._counter.next(-1)
        return True

    def release(self, n: int = 1) -> None:
        """Release semaphore, incrementing the internal counter by one or more."""
        if n < 1:
            raise ValueError(f"Semaphore.release({n}): expected 1 or more")
        with Held(_Taken(self._condition, "Semaphore.release")):
            if self._bounded and self._counter.next(0) + n > self._value:
                raise ValueError(f"Semaphore.release({n}): the value would exceed {self._value}")
            self._counter.next(n)
            self._condition.notify(n)

    def free(self) -> None:
        """Free semaphore resources."""
        self._counter.free()
        self._condition.free()
