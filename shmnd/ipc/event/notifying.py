# SPDX-License-Identifier: Apache-2.0
"""Events: a notifier signals a number, and each listener of the name wakes up and takes it.

A number that is signalled again before a listener took it is one; none is lost. A listener hears
all numbers that are signalled after it was made.
"""

from __future__ import annotations

import os
import time
from typing import Final

from shmnd.common.arguments import within
from shmnd.common.closing import Closing
from shmnd.common.deadline import end_of
from shmnd.common.late import asyncio
from shmnd.common.loops import Loop
from shmnd.ipc.common.closed import announce_closed, descriptor_while_open
from shmnd.ipc.common.members import MemberTable, make_member_table
from shmnd.ipc.common.ringing import PAUSE, Bell
from shmnd.ipc.common.shared_words import SIGNALS
from shmnd.ipc.common.sleeping_tasks import POLL, task_at
from shmnd.ipc.errors import Closed, require_process, unusable
from shmnd.ipc.naming.shared_name import SharedName
from shmnd.status import NdMemoryError

__all__ = ["EVENT", "Listener", "Notifier"]

EVENT: Final = "ipc.event"
_NUMBERS: Final = 0
"""What all tasks of a listener wait for: one of them takes all numbers that there are."""


class _End(Closing):
    """One end of an event: it has the table of members of the name."""

    _role = ""
    _waits = False

    def __init__(
        self, name: str, *, namespace: str | None = None, group: int | str | None = None
    ) -> None:
        call = type(self).__name__
        self._table: MemberTable | None = None
        self._named: SharedName | None = SharedName(
            call, EVENT, name, role=self._role, namespace=namespace, group=group
        )
        self.name: Final[str] = name
        self._pid: Final = os.getpid()
        try:
            self._table = MemberTable(self._named.file(lambda: make_member_table(call)), call)
            self._table.join(call, waits=self._waits)
        except BaseException:
            self.close()
            raise

    def _open(self, call: str) -> MemberTable:
        if self._table is None or self._table.fd < 0:
            raise unusable(call, type(self).__name__.lower(), closed=self._table is None)
        return self._table

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._table is None

    def close(self) -> None:
        """Leave the name. Harmless when repeated."""
        table, self._table = getattr(self, "_table", None), None
        named, self._named = getattr(self, "_named", None), None
        if table is not None:
            if min(table.fd, table.number) >= 0 and self._pid == os.getpid():
                table.words.open(table.gate)  # another thread may sleep there
            table.close()
        if named is not None:
            named.close()

    def __repr__(self) -> str:
        state = "closed" if self._table is None or self._table.fd < 0 else "open"
        return f"<{type(self).__name__} {self.name!r} {state}>"


class Notifier(_End):
    """What signals numbers to all listeners of a name."""

    _role = "notifier"

    def notify(self, id: int = 0) -> None:
        """Signal a number from 0 to 4095. Never waits."""
        table = self._open("Notifier.notify")
        number = within("Notifier.notify", 1, "id", id, 0, SIGNALS - 1)
        members = table.members()
        left = [table.signals_of(member) for member in members]
        try:
            table.words.signal_each(left, number)
            self._wake(table, members)
        except BaseException:  # of a handler of a signal
            if not left:  # they have the number
                self._wake(table, members)
            raise

    def _wake(self, table: MemberTable, members: list[int]) -> None:
        words = table.words
        for member in members:
            gate = table.gate_of(member)
            descriptor = words.open(gate)
            if descriptor:
                table.ring([member])
                words.rung(gate, descriptor)

    @property
    def listeners(self) -> int:
        """How many listeners there are."""
        table = self._open("Notifier.listeners")
        return sum(table.lives(member) for member in table.members())


class Listener(_End):
    """What takes the numbers that are signalled to a name."""

    _role = "listener"
    _waits = True

    def __init__(
        self, name: str, *, namespace: str | None = None, group: int | str | None = None
    ) -> None:
        self._bell: Bell | None = None
        self._taken: set[int] = set()
        super().__init__(name, namespace=namespace, group=group)

    def wait(self, timeout: float | None = None) -> set[int]:
        """Wait for numbers and take them: a set, empty when `timeout` seconds end first."""
        call = "Listener.wait"
        end = end_of(timeout, call)
        found: set[int] = set()
        try:
            found = self._wait(end, call)
            require_process(self._pid, call, "listener")
        except BaseException as exc:
            self._taken |= found  # for the next call
            require_process(self._pid, call, "listener", exc)
            raise
        return found

    def _wait(self, end: float, call: str) -> set[int]:
        table = self._open(call)
        if found := self._take(table):
            return found
        long = False
        while True:
            left = end - time.monotonic()
            if left <= 0:
                break
            if long:
                self._sleep_long(table, left)
            else:
                word = table.words.arm(table.gate)
                if not self._signalled(table) and not self.closed:
                    table.words.sleep(table.gate, word, min(left, PAUSE))
                long = True
            table = self._open(call)
            if found := self._take(table):
                return found
        if self._bell is not None:
            self._calm(self._bell)
        return set()

    def _take(self, table: MemberTable) -> set[int]:
        """Return the signalled numbers, also those that an interrupted call has taken."""
        none: set[int] = set()
        table.words.take_signals(table.signals, self._taken)
        # No calls from here on, behind which a handler could raise.
        found = self._taken
        if found:
            self._taken = none
            return found
        return none

    def _sleep_long(self, table: MemberTable, left: float) -> None:
        """Sleep until a number is signalled, or a process dies that was to wake this one."""
        try:
            bell = self._bell_of()
        except NdMemoryError:
            time.sleep(min(left, POLL))
            return
        with bell.sleeper() as sleeper:
            self._calm(bell)
            if not self._signalled(table):
                sleeper.sleep(left)

    def _signalled(self, table: MemberTable) -> bool:
        return bool(self._taken) or table.words.signalled(table.signals)

    def ready(self) -> bool:
        """Return whether `wait` would return numbers at once."""
        table = self._open("Listener.ready")
        if self._bell is not None and not self._signalled(table):
            self._calm(self._bell)
        return self._signalled(table)

    def __iter__(self) -> NumberLoop:
        """Return sets of numbers as they come, until it is closed."""
        return NumberLoop(self)

    # -- descriptors and asyncio --

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are numbers to take.

        It stays readable until a `wait` finds none.
        """
        return descriptor_while_open(lambda: self._bell_of().fd, self._open, "Listener.fileno")

    def _bell_of(self) -> Bell:
        bell = self._bell
        if bell is None:
            made = Bell()
            self._calm(made)
            bell = self._bell
            if bell is None:  # no call from here to the store, as another thread may store one, too
                # Now that it is rung: a handler of a signal may have raised before.
                self._bell = bell = made
            if bell is not made:  # that of another thread, which has the address no more
                self._calm(bell)
            if self.closed:  # by another thread, which did not find the bell
                self.close()
        return bell

    def _calm(self, bell: Bell) -> None:
        table = self._open("Listener")
        there = True  # also where it raises: the rings were taken
        try:
            bell.drain(_NUMBERS)
            table.set_address(bell.address)
            table.words.arm(table.gate, True)
            bell.watch(table.pids())
            there = self._signalled(table)
        finally:
            if there:
                bell.ring()

    async def await_ids(self, timeout: float | None = None) -> set[int]:
        """Wait as `wait` does, and let other tasks run meanwhile."""
        call = "Listener.await_ids"
        end = end_of(timeout, call)
        loop = None  # in whose line it has waited
        found: set[int] = set()
        try:
            while not (found := self._wait(0.0, call)) and (left := end - time.monotonic()) > 0:
                loop = asyncio.get_running_loop()
                with task_at(self._bell_of, _NUMBERS) as sleeper:
                    if not self.ready():
                        await sleeper.sleep(left)
            self._wake_next(loop)
            require_process(self._pid, call, "listener")
            return found
        except BaseException as exc:
            self._taken |= found  # for the next call
            self._wake_next(loop)
            require_process(self._pid, call, "listener", exc)
            raise

    def _wake_next(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Wake the next task of the line in which this one has waited, if there are numbers."""
        bell = self._bell
        if loop is not None and bell is not None:
            bell.wake_next(loop, _NUMBERS, self.ready)

    def __aiter__(self) -> NumberLoop:
        """Return sets of numbers as they come, until it is closed."""
        return NumberLoop(self)

    def _require_own(self) -> None:
        """Raise Closed in a child of the process that made it, where nothing has closed it."""
        require_process(self._pid, "Listener", "listener")

    def close(self) -> None:
        """Leave the name. Harmless when repeated."""
        super().close()  # first: a thread that makes a bell from here on finds it closed
        bell, self._bell = getattr(self, "_bell", None), None
        if bell is not None:
            bell.close()
        announce_closed(self)


class NumberLoop(Loop[Listener]):
    """The sets of numbers of a listener as they come."""

    def __next__(self) -> set[int]:
        listener = self._source
        if listener is None:
            raise StopIteration
        try:
            return listener.wait()
        except Closed:
            listener._require_own()
        self._source = None
        raise StopIteration

    async def __anext__(self) -> set[int]:
        listener = self._source
        if listener is None:
            raise StopAsyncIteration
        try:
            return await listener.await_ids()
        except Closed:
            listener._require_own()
        self._source = None
        raise StopAsyncIteration
