# SPDX-License-Identifier: Apache-2.0
"""Readers of a blackboard."""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmnd.common.arguments import shown
from shmnd.common.closing import Closing
from shmnd.common.deadline import end_of
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.ipc.blackboard.board import Board
from shmnd.ipc.blackboard.keys import BLACKBOARD, Key, check_version, key_given, no_key, unsettled
from shmnd.ipc.common.closed import announce_closed, descriptor_while_open
from shmnd.ipc.common.members import GATE
from shmnd.ipc.common.ringing import PAUSE, Bell
from shmnd.ipc.common.sleeping_tasks import POLL, Poller, TaskSleeper, task_at
from shmnd.ipc.errors import NoPublisher, require_process, unusable
from shmnd.ipc.naming.shared_name import SharedName
from shmnd.status import NdError, NdMemoryError
from shmnd.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BlackboardReader"]


class _Since(NamedTuple):
    """What a wait calls new: the versions after this one, of the writer that it belongs to."""

    after: int | None
    writer: int
    """The number of the writer that the reader met, from 1; 0 for any."""


class BlackboardReader(Closing):
    """A reader of a blackboard, whether its writer is there already or comes later."""

    def __init__(
        self, name: str, *, namespace: str | None = None, group: int | str | None = None
    ) -> None:
        self._board: Board | None = None
        self._writers_met = 0
        self._asked_of: dict[str, int] = {}  # by key: whose version `version` returned last
        self._bell: Bell | None = None
        self._has_descriptor = False  # the waiter's descriptor includes the bell
        self._seen: dict[str, int] = {}
        self._next_search = 0.0
        self.name: Final[str] = name
        self._closed = False
        self._named: SharedName | None = SharedName(
            "BlackboardReader", BLACKBOARD, name, namespace=namespace, group=group
        )
        self._pid = os.getpid()
        try:
            # Reports writers that come; one that is there is watched as a member.
            self._writers = self._named.directory.watch(BLACKBOARD, name)
            self._waiter = Waiter(self._named.adapter, self._news)
            self._search()
        except BaseException:
            self.close()
            raise

    def _news(self) -> bool:
        return bool(self._writers.pending)

    def _search(self) -> None:
        """Find a writer, or the one that came after the last."""
        try:
            self._search_open()
        except (NdError, OSError):
            if self._closed:  # by another thread
                raise unusable("BlackboardReader", "reader", closed=True) from None
            raise

    def _search_open(self) -> None:
        named = self._named
        if named is None:
            raise unusable("BlackboardReader", "reader", closed=True)
        for _ in self._writers.changes():
            pass
        self._next_search = time.monotonic() + PAUSE
        before = self._board
        if before is not None and before.lives:
            return
        trouble: NdError | OSError | None = None
        for entry in named.every_entry():
            if entry.data.get("role") != "writer":
                continue
            try:
                board = Board(named, entry, "BlackboardReader")
            except NoPublisher:
                continue
            except (NdError, OSError) as exc:
                pass_on(exc)
                trouble = exc  # of this record; the writer may have another one
                continue
            if not board.lives:
                board.close()
                continue
            if before is not None:
                before.close()
            self._writers_met += 1
            board.number = self._writers_met
            self._board = board
            self._seen.clear()
            if self._bell is not None and board.table is not None:
                board.table.set_address(self._bell.address)
            return
        if trouble is not None and before is None:
            raise trouble

    def _check(self, call: str) -> None:
        if self._closed or self._pid != os.getpid():
            raise unusable(call, "reader", closed=self._closed)

    def _current(self, call: str) -> Board:
        """Return the newest writer's board."""
        self._check(call)
        if self._board is None or time.monotonic() >= self._next_search:
            self._search()
        board = self._board
        if board is None:
            raise NoPublisher(
                f"{call}: no process writes the blackboard {self.name!r}; start one, or wait for "
                "a key of it"
            )
        return board

    def _key(self, key: str, call: str) -> tuple[Board, Key]:
        board = self._current(call)
        found = board.keys.get(key)
        if found is None:
            board.read_keys(call)
            found = board.keys.get(key)
        if found is None:
            raise no_key(call, self.name, key, board.keys)
        return board, found

    def _read(self, key: str, call: str, end: float = math.inf) -> tuple[int, Any]:
        board, found = self._key(key, call)
        words, array = found.fresh()
        left = math.inf if end == math.inf else end - time.monotonic()
        version = board.words.read_cell(found.offset, words, left)
        if version < 0:
            raise unsettled(call, key, self.name, board.pid)
        return version, found.value_of(array)

    def __getitem__(self, key: str) -> Any:
        """Return the newest value of a key, a copy of one's own."""
        version, value = self._read(key, "BlackboardReader")
        self._seen[key] = version
        if version == 0:
            raise LookupError(f"{shown(key)} was not written yet; wait({shown(key)}) waits for it")
        return value

    def version(self, key: str) -> int:
        """Return how often a key was written by this writer; 0 for never."""
        writer, version = self._version(key, "BlackboardReader.version")
        self._asked_of[key] = writer
        return version

    def _version(self, key: str, call: str) -> tuple[int, int]:
        """Return the number of the present writer and its version of the key."""
        board, found = self._key(key, call)
        return board.number, board.words.cell_version(found.offset)

    def keys(self) -> tuple[str, ...]:
        """Return all keys that there are now."""
        board = self._current("BlackboardReader.keys")
        board.read_keys("BlackboardReader.keys")
        return tuple(board.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    @property
    def writer(self) -> int | None:
        """The process of the writer; None when it has died or there is none yet."""
        board = self._board
        here = not self._closed and self._pid == os.getpid()
        if here and (board is None or not board.lives):
            self._search()
            board = self._board
        return board.pid if board is not None and board.lives else None

    # -- waiting --

    def _since(self, key: str, after: int | None, call: str) -> _Since:
        key_given(key, call)  # no writer has any other, and it may be meant as the time-out
        check_version(after, call)
        return _Since(after, self._asked_of.get(key) or self._writers_met)

    def _newer(self, key: str, since: _Since, end: float, call: str) -> tuple[bool, Any]:
        if not self._is_newer(key, since, call):
            return False, None
        try:
            version, value = self._read(key, call, end)
        except (NoPublisher, KeyError, RuntimeError) as exc:
            pass_on(exc)
            if isinstance(exc, RuntimeError) and time.monotonic() < end:
                raise
            return False, None  # the next writer has just come, or the value is written on and on
        require_process(self._pid, call, "reader")
        self._seen[key] = version  # no call from here on, behind which a handler could raise
        return True, value

    def _is_newer(self, key: str, since: _Since, call: str) -> bool:
        """Return whether a key has a version that is new to a wait; nothing counts as read."""
        try:
            writer, version = self._version(key, call)
            if since.after is None or since.writer not in (0, writer):
                # A version of an earlier writer says nothing of those of the present one.
                return version > self._seen.get(key, 0)
            return version > since.after
        except (NoPublisher, KeyError) as exc:
            pass_on(exc)
            return False

    def wait(self, key: str, after: int | None = None, timeout: float | None = None) -> Any:
        """Wait for a version after the one given and return the value; TimeoutError.

        Without `after`, for one newer than this reader has read. It waits for a writer and for
        the key, too. Each version of a writer that has come since is newer.
        """
        call = "BlackboardReader.wait"
        since = self._since(key, after, call)
        end = end_of(timeout, call)
        try:
            return self._wait(key, since, end, call)
        except BaseException as exc:
            self._require_open(exc, call)
            raise

    def _require_open(self, exc: BaseException, call: str) -> None:
        """Raise Closed where a wait has ended since the reader was closed, or is a parent's."""
        require_process(self._pid, call, "reader", exc)
        if isinstance(exc, (NdError, ValueError, OSError)) and not is_interruption(exc):
            self._check(call)  # another thread has closed it

    def _wait(self, key: str, since: _Since, end: float, call: str) -> Any:
        long = False
        while True:
            found, value = self._newer(key, since, end, call)
            if found:
                return value
            left = end - time.monotonic()
            if left <= 0:
                raise self._late(call, key, since)
            board = self._board
            if long or board is None or board.table is None:
                self._sleep_long(key, since, left, call)
                continue
            word = board.table.words.arm(GATE)
            found, value = self._newer(key, since, end, call)
            if found:
                return value
            if board is self._board:
                board.table.words.sleep(GATE, word, min(left, PAUSE))
                long = True

    def _sleep_long(self, key: str, since: _Since, left: float, call: str) -> None:
        """Sleep until a value changes, the writer dies, or one comes."""
        try:
            bell, news = self._bell_of(), self._waiter.fileno()
        except NdMemoryError:
            self._find_writer()
            time.sleep(min(left, POLL))
            return
        with bell.sleeper() as sleeper:
            self._calm(bell)
            if not self._is_newer(key, since, call) and not self._closed:
                sleeper.sleep(left, news)

    def _late(self, call: str, key: str, since: _Since) -> TimeoutError:
        writer = f"process {self.writer} writes it" if self.writer else "no process writes it"
        newer = self._is_newer(key, since, call)
        how = "was written anew during each reading" if newer else "did not change"
        return TimeoutError(
            f"{call}: the time-out ended; {shown(key)} of {self.name!r} {how}, and {writer}"
        )

    async def await_change(
        self, key: str, after: int | None = None, timeout: float | None = None
    ) -> Any:
        """Wait as `wait` does, and let other tasks run meanwhile."""
        call = "BlackboardReader.await_change"
        end = end_of(timeout, call)
        since = self._since(key, after, call)
        try:
            return await self._await(key, since, end, call)
        except BaseException as exc:
            self._require_open(exc, call)
            raise

    async def _await(self, key: str, since: _Since, end: float, call: str) -> Any:
        while True:
            found, value = self._newer(key, since, end, call)
            if found:
                return value
            left = end - time.monotonic()
            if left <= 0:
                raise self._late(call, key, since)
            with self._sleeping() as sleeper:
                if not self._is_newer(key, since, call):
                    await sleeper.sleep(left)

    @contextlib.contextmanager
    def _sleeping(self) -> Iterator[TaskSleeper | Poller]:
        """Register a task that a change of a value, a death or the next writer wakes."""
        with contextlib.ExitStack() as stack:
            sleeper = stack.enter_context(task_at(self._bell_of))
            try:
                if isinstance(sleeper, TaskSleeper):
                    stack.enter_context(self._waiter.resolving(sleeper.came))
            except NdMemoryError:
                sleeper = Poller()
            if isinstance(sleeper, TaskSleeper):
                self._calm(self._bell_of())
            else:
                self._find_writer()
            yield sleeper

    def _waits_by(self) -> tuple[Waiter, int]:
        """Return what a wait set sleeps by: a waiter and a descriptor."""
        self._check("BlackboardReader.fileno")
        return self._waiter, self._bell_of().fd

    def ready(self) -> bool:
        """Return whether a key has changed since this reader read it; and quieten `fileno`."""
        self._check("BlackboardReader.ready")
        if self._bell is not None:
            self._calm(self._bell)
        try:
            return any(
                self._version(key, "BlackboardReader.ready")[1] > self._seen.get(key, 0)
                for key in self.keys()
            )
        except NoPublisher:
            return False

    def fileno(self) -> int:
        """Return a descriptor that is readable when a key may have changed since `ready`."""
        return descriptor_while_open(self._descriptor, self._check, "BlackboardReader.fileno")

    def _descriptor(self) -> int:
        bell = self._bell_of()
        number = self._waiter.fileno()
        if not self._has_descriptor:
            self._waiter.include(bell.fd)
            self._has_descriptor = True
        return number

    def _bell_of(self) -> Bell:
        bell = self._bell
        if bell is None:
            self._check("BlackboardReader.fileno")
            made = Bell()
            made.ring()  # so that its first waiter calms it, which publishes its address
            bell = self._bell
            if bell is None:  # no call from here to the store, as another thread may store one, too
                self._bell = bell = made
            if self._closed:  # by another thread, which did not find the bell
                self.close()
        return bell

    def _calm(self, bell: Bell) -> None:
        bell.drain()
        if self._closed:
            return
        self._find_writer()
        board = self._board  # another thread may close it at any time
        if board is not None and board.table is not None:
            board.table.set_address(bell.address)
            board.table.words.arm(GATE, True)
            bell.watch(board.table.pids())

    def _find_writer(self) -> None:
        """Detect writers that came or went."""
        self._waiter.rest()  # takes what the broker has sent
        board = self._board
        if self._news() or board is None or not board.lives:
            self._search()
        self._waiter.rest()

    def close(self) -> None:
        """End the reader. Harmless when repeated."""
        self._closed = True
        board, self._board = getattr(self, "_board", None), None
        named, self._named = getattr(self, "_named", None), None
        bell, self._bell = getattr(self, "_bell", None), None
        for each in (getattr(self, "_waiter", None), getattr(self, "_writers", None)):
            if each is not None and self._pid == os.getpid():
                each.close()
        if board is not None:
            if self._pid == os.getpid():
                board.wake()
            board.close()
        if named is not None:
            named.close()
        if bell is not None:
            bell.close()
        announce_closed(self)

    def __repr__(self) -> str:
        if self._closed:
            return f"<BlackboardReader {self.name!r} closed>"
        writer = f"written by process {self.writer}" if self.writer else "without a writer"
        return f"<BlackboardReader {self.name!r} {writer}>"
