# SPDX-License-Identifier: Apache-2.0
"""Shared memory that is opened by a name: the first process makes it, the others find that one.

Each process that has the memory announces its descriptor at the broker; a process that opens the
name takes a descriptor of its own from one of them through /proc, as only a process of the same
user can. To root the kernel permits more, and root refuses it: a pickle runs code of its sender.
So the memory exists as long as one of them does, and nothing stays of it.

Two processes that open a name at once must not make two. They take numbers, as in a bakery
(Lamport, 1974), whose registers are records of the broker: a process announces that it chooses,
takes a number larger than all it finds, and waits until no process chooses and none has a
smaller one. A record ends with its process, so a death delays no other one. Where the broker ends
meanwhile, the next one does not know which process chooses: all is done again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from shmnd.common.descriptors import Descriptor
from shmnd.common.interruption import pass_on
from shmnd.common.owned import Owned
from shmnd.common.records import Entry
from shmnd.directory import Directory
from shmnd.ipc.common.limits import checked_name
from shmnd.ipc.common.processes import (
    Process,
    is_another,
    may_be_hidden,
    own_process,
    pid_in_proc,
    proc_space,
    users_of,
    why_hidden,
)
from shmnd.ipc.naming.cards import Card, cards, label_of
from shmnd.provider import open_adapter
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmnd.common.records import Announcement

__all__ = ["SharedName", "identity", "is_hidden", "open_of_process"]

_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_PATIENCE: Final = 10.0
_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.1
"""Seconds between two questions, for each process that comes before."""
_ENDING: Final = 1.0
"""Seconds within which the broker hears of a process that has ended."""


class Holder(Protocol):
    """What a process has of a file."""

    @property
    def fd(self) -> int:
        """Its descriptor."""


Here = Callable[[Any, Any], Holder | None]
"""Returns what this process has of the file of a device and a number."""
Heir = Callable[[int], bool]
"""Takes over a descriptor that is to be closed, if this process has its file open elsewhere."""


def _none(device: Any, number: Any) -> Holder | None:
    return None


class SharedName:
    """A name of one kind, as one object of this process uses it.

    Records of `kind` are announced by processes that have the memory, with `role` in their data.
    """

    def __init__(
        self,
        call: str,
        kind: str,
        name: str,
        *,
        role: str = "",
        namespace: str | None = None,
        group: int | str | None = None,
    ) -> None:
        self.name: Final = checked_name(name, call)
        self._call: Final = call
        self._kind: Final = kind
        self._role: Final = role
        self._pid: Final = os.getpid()
        self.adapter: Final = open_adapter(namespace=namespace, group=group)
        self.directory: Final = Directory(self.adapter)
        self._announcement: Announcement | None = None
        self._card: Card | None = None
        self._own: Holder | None = None  # whose descriptor was taken

    # -- one at a time --

    def file(self, make: Callable[[], Owned]) -> Owned:
        """Return a descriptor of the memory, which `make` makes when there is none."""
        found = self.holder(make)
        assert isinstance(found, Owned)
        return found

    def holder(
        self, make: Callable[[], Owned], here: Here = _none, heir: Heir | None = None, **data: Any
    ) -> Holder:
        """Return a descriptor of the memory, as `file` does, or the holder that `here` returns.

        That is of a file that may be open once. Another descriptor of it that was opened goes to
        its heir, for a close would end its locks.
        """
        file: Holder | None = None

        def take() -> None:
            nonlocal file
            self._own = self._held_here(here)
            found = self.found(heir) if self._own is None else self._own
            if found is None:
                file = make() if file is None else file
            elif file is None or not os.path.samestat(os.fstat(file.fd), os.fstat(found.fd)):
                file = found
            self.announce(file.fd, **data)

        self.in_turn(take)
        assert file is not None
        return file

    def _held_here(self, here: Here) -> Holder | None:
        found = (here(each.data.get("dev"), each.data.get("ino")) for each in self.entries())
        return next((each for each in found if each is not None), None)

    def in_turn(self, do: Callable[[], None]) -> None:
        """Do something as the only process that opens this name.

        It is done again where the broker has ended meanwhile: another process may have had its turn
        by the next one.
        """
        client = self.adapter._engine.client
        while True:
            before = client.broker
            with self.turn():
                do()
            if client.broker == before:
                return

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the turn to open this name: no other process opens it meanwhile."""
        door = f"{self._kind}.door"
        own = {"process": own_process()._asdict()}
        with self.directory.announce(door, self.name, {"chooses": True} | own):
            entries = self.directory.find(door, self.name)
            number = max(map(_number, entries), default=0) + 1
            taken = self.directory.announce(door, self.name, {"number": number} | own)
        with taken:
            self._wait_for_turn(door, number)
            yield

    def _wait_for_turn(self, door: str, number: int) -> None:
        mine = number, self.adapter.uid
        since: dict[tuple[str, int], float] = {}
        while True:
            asked = time.monotonic()
            entries = self.directory.find(door, self.name)
            before = [each for each in entries if _comes_before(each, mine) and self._opens(each)]
            if not before:
                return
            now = time.monotonic()
            holding = _holding_up(before)
            since = {each.key: since.get(each.key, now) for each in holding}
            longest = min(holding, key=lambda each: since[each.key])
            if now - since[longest.key] > _PATIENCE:
                raise error(
                    Status.IO_TIMEOUT,
                    self._call,
                    f"process {longest.pid} has been opening {self.name!r} for "
                    f"{_PATIENCE:g} seconds; it may be stopped: continue or end it",
                )
            # A process with many before it asks seldom, and all do where the broker is busy: else
            # the questions of those that wait would delay the one whose turn it is.
            time.sleep(len(before) * min(_LONGEST_PAUSE, max(_PAUSE, 2 * (now - asked))))

    def _opens(self, entry: Entry) -> bool:
        """Return whether the process of a record opens a name, as far as this one sees.

        A record that names a process which did not announce it is of no call of this library.
        """
        process = _process_in(entry.data.get("process"))
        with self._seeing():
            return process is not None and not is_another(process, entry.pid, entry.pid_space)

    # -- the processes that have it --

    def entries(self) -> tuple[Entry, ...]:
        """Return the records of all that have it, as far as the present broker knows."""
        return self.directory.find(self._kind, self.name)

    def unannounced(self) -> Iterator[Entry]:
        """Return the records of those that have it and that the present broker does not know."""
        engine = self.adapter._engine
        label = label_of(engine.place, self._kind, self.name)
        shown = cards(engine.place, engine.client.broker, label)
        while True:
            with self._seeing():
                card = next(shown, None)
            if card is None:
                return
            yield Entry(self._kind, self.name, card.record, "", "", card.pid, 0, 0, proc_space())

    def every_entry(self) -> Iterator[Entry]:
        """Return the records of all that have it; first those that the present broker knows."""
        yield from self.entries()
        yield from self.unannounced()

    def found(self, heir: Heir | None = None) -> Owned | None:
        """Return a descriptor of the memory, from another process that has it; None without one."""
        deadline = time.monotonic() + _ENDING
        while True:
            entries = [each for each in self.entries() if each.adapter != self.adapter.uid]
            for entry in entries:
                file = self.open_from(entry, "", os.O_RDWR, heir)
                if file is not None:
                    return file
            hidden = [entry.pid for entry in entries if self.hides(entry)]
            if not hidden:
                break
            # To make another memory would divide the users of the name into two that never meet.
            if time.monotonic() > deadline:
                raise self.hidden_error(hidden[0])
            time.sleep(_PAUSE)  # it may have ended, and the broker says so soon
        files = (self.open_from(entry, "", os.O_RDWR, heir) for entry in self.unannounced())
        return next((file for file in files if file is not None), None)

    def hides(self, entry: Entry) -> bool:
        """Return `is_hidden` of a record; NdMemoryError where this process cannot see."""
        with self._seeing():
            return is_hidden(entry)

    @contextlib.contextmanager
    def _seeing(self) -> Iterator[None]:
        """Raise NdMemoryError where this process has no descriptor or memory to see others."""
        try:
            yield
        except OSError as exc:
            pass_on(exc)
            if exc.errno not in _LIMITS:
                raise
            raise self._no_descriptor(exc) from exc

    def hidden_error(self, pid: int) -> NdError:
        """Return the error of a process that has the memory and is not seen in /proc."""
        return error(
            Status.ACCESS_VIOLATION,
            self._call,
            f"the memory of {self.name!r} belongs to process {pid}, which this one does not see in "
            f"/proc: {why_hidden()}",
        )

    def seen_as(self) -> int:
        """Return the number that the broker has of this process."""
        own = (entry.pid for entry in self.entries() if entry.adapter == self.adapter.uid)
        return next(own, self._pid)

    def open_from(
        self, entry: Entry, which: str, flags: int, heir: Heir | None = None
    ) -> Owned | None:
        """Return a descriptor from one process; None when it has just ended or closed it."""
        try:
            number = int(entry.data[f"{which}fd"])
            wanted = entry.data[f"{which}dev"], entry.data[f"{which}ino"]
            return open_of_process(_pid_in_proc(entry), number, wanted, flags, heir)
        except (FileNotFoundError, KeyError, TypeError, ValueError) as exc:
            pass_on(exc)
            return None
        except OSError as exc:
            pass_on(exc)
            if exc.errno in _LIMITS:
                raise self._no_descriptor(exc) from exc
            raise error(
                Status.ACCESS_VIOLATION,
                self._call,
                f"the memory of {self.name!r} belongs to process {entry.pid} and cannot be opened: "
                f"{exc.strerror}; it is for the processes of one user that see each other in /proc",
            ) from exc

    def _no_descriptor(self, exc: OSError) -> NdError:
        return error(
            Status.INSUFFICIENT_RESOURCES,
            self._call,
            f"no descriptor was free for the memory of {self.name!r}: {exc.strerror} (ulimit -n)",
        )

    def announce(self, fd: int, **data: Any) -> None:
        """Announce that this process has the memory."""
        process = own_process()._asdict()
        whole: dict[str, Any] = identity("", fd) | process | {"role": self._role} | data
        self._retract()
        # First the card: a broker that hears of the record may end at once.
        self._card = Card(label_of(self.adapter._engine.place, self._kind, self.name), whole)
        self._announcement = self.directory.announce(self._kind, self.name, whole)

    def _retract(self) -> None:
        card, self._card = self._card, None
        announcement, self._announcement = self._announcement, None
        if card is not None:
            card.close()
        if announcement is not None:
            announcement.close()

    def close(self) -> None:
        """End this process's part in the name. Harmless twice."""
        if self._pid != os.getpid():
            return
        self._own = None
        self._retract()
        self.adapter.close()


def identity(which: str, fd: int) -> dict[str, Any]:
    """Return the words of a record that lead to a descriptor."""
    found = os.fstat(fd)
    return {f"{which}fd": fd, f"{which}dev": found.st_dev, f"{which}ino": found.st_ino}


def open_of_process(
    pid: int, number: int, wanted: tuple[Any, Any], flags: int, heir: Heir | None = None
) -> Owned | None:
    """Return a file that a process has open under a number; None when it is another one by now.

    FileNotFoundError when that process is not seen (a number of 0), or has closed it.
    PermissionError also where the kernel lets root have the file of another user, or one that such
    a user holds: it may be memory that root has allocated for its peers.
    """
    own, kind = os.geteuid(), Owned if heir else Descriptor
    # Of one process, also if its number is given away meanwhile.
    with contextlib.closing(Descriptor.of(os.open, f"/proc/{pid}", _FOLDER)) as process:
        others = users_of(process.fd) - {own}
        if others:
            raise PermissionError(errno.EACCES, f"user {min(others)} holds it")
        # Non-blocking: it may be any file by now.
        path = f"/proc/self/fd/{process.fd}/fd/{number}"
        file = kind.of(os.open, path, flags | os.O_CLOEXEC | os.O_NONBLOCK, heir=heir)
    found = os.fstat(file.fd)
    if (found.st_dev, found.st_ino) != wanted:
        return None
    if found.st_uid != own:
        file.close()  # at once: the exception keeps what this call has
        raise PermissionError(errno.EACCES, f"user {found.st_uid} made it")
    return file


def is_hidden(entry: Entry) -> bool:
    """Return whether this process does not see that of a record, which may live all the same.

    A record that names no process, or another one than has announced it, is of no object of this
    library. OSError when this process is out of descriptors or memory, and cannot see.
    """
    process = _process_in(entry.data)
    if process is None or not may_be_hidden(process) or _pid_in_proc(entry):
        return False
    return not is_another(process, entry.pid, entry.pid_space)


def _pid_in_proc(entry: Entry) -> int:
    """Return the number that the process of a record has in /proc; 0 when it is not seen."""
    process = _process_in(entry.data)
    return 0 if process is None else pid_in_proc(process, entry.pid)


def _process_in(words: object) -> Process | None:
    """Return the process that words of a record name."""
    if not isinstance(words, Mapping):
        return None
    space, number = (words.get(word) for word in Process._fields)
    if not isinstance(space, int) or not isinstance(number, int):
        return None
    return Process(space, number)


def _comes_before(entry: Entry, mine: tuple[int, str]) -> bool:
    if entry.adapter == mine[1]:
        return False
    if entry.data.get("chooses"):
        return True
    return (_number(entry), entry.adapter) < mine


def _holding_up(before: list[Entry]) -> list[Entry]:
    """Return those that all others wait for: the one that chooses, or that whose turn it is."""
    choosing = [entry for entry in before if entry.data.get("chooses")]
    return choosing or [min(before, key=lambda entry: (_number(entry), entry.adapter))]


def _number(entry: Entry) -> int:
    """Return the number that a process took; 0 for a record that makes no sense."""
    number = entry.data.get("number", 0)
    return number if isinstance(number, int) else 0
