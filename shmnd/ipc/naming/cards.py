# SPDX-License-Identifier: Apache-2.0
"""Names that processes have, and that the present broker may not know.

A process reports to the next broker what it has at its next call that needs one. Until then another
process that opens the name would find none, and make a second memory next to the first. So a
process that has a name also holds a card: an open file without a path, which /proc shows under a
label made of the name, with a copy of the record. The kernel removes it with the process.

A process reads the cards of all processes of its user once for each broker. Those that have not
reported to this broker have their cards from an earlier time, and others need none.

To read what each descriptor of a process is takes 6 µs for each of them. So a card is in the memory
of its process as well: what memory a process has is read at once, in 0.2 ms. Of a process with many
descriptors that is read first, and its descriptors only where a card of the label is among it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmnd.common.descriptors import Descriptor
from shmnd.common.interruption import Ignoring, pass_on
from shmnd.ring.shared_memory.segment import SparseMapping
from shmnd.status import NdError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Card", "Shown", "cards", "label_of"]

_PREFIX: Final = "shmnd-name-"
_SHOWN: Final = f"/memfd:{_PREFIX}"
_MOST_BYTES: Final = 1 << 16
_PAGE: Final = 4096
_MANY: Final = 256
"""Descriptors, whose reading takes longer than that of a process's memory."""
_MAPPED: Final = re.compile(b"%s([0-9a-f]+)" % _SHOWN.encode())
_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Shown(NamedTuple):
    """A card of some process: where it is, and the record on it."""

    pid: int
    """The number that /proc has of the process."""
    record: Mapping[str, Any]


def label_of(place: str, kind: str, name: str) -> str:
    """Return the label of a name of some kind, among the processes that meet at a place."""
    words = "\0".join((place, kind, name))
    return hashlib.sha256(os.fsencode(words)).hexdigest()[:32]


class Card:
    """A card of this process, until it is closed. None is held where no descriptor is free."""

    def __init__(self, label: str, record: Mapping[str, Any]) -> None:
        self._file = Descriptor(-1)
        self._memory: SparseMapping | None = None
        try:
            self._file = Descriptor.of(os.memfd_create, _PREFIX + label, os.MFD_CLOEXEC)
            os.fchmod(self._file.fileno(), 0o600)
            os.pwrite(self._file.fileno(), json.dumps(dict(record)).encode(), 0)
        except OSError as exc:
            pass_on(exc)
            self.close()
            return
        with contextlib.suppress(NdError):  # it is seen among few descriptors all the same
            # Not of the module mmap, whose mappings have descriptors of their own.
            self._memory = SparseMapping(self._file.fileno(), _PAGE, writable=False, call="Card")

    def close(self) -> None:
        """Show it no more. Harmless twice."""
        self._file.close()
        self._memory = None


_read: dict[str, tuple[str, dict[str, list[str]]]] = {}
"""By place: the broker since when cards were read, and by their labels the paths of the cards, or
those of the processes that have them among many descriptors."""


def cards(place: str, broker: str, label: str) -> Iterator[Shown]:
    """Return the cards of a label that other processes have held since before a broker came.

    OSError when this process is out of descriptors or memory, and cannot see.
    """
    known = _read.get(place)
    if known is None or known[0] != broker:
        known = _read[place] = broker, _find()
    for path in _paths(known[1].get(label, ()), label):
        with Ignoring(ValueError, TypeError, RecursionError):
            process = path.split("/")[2]
            text = _content(path, label)
            if text is not None and _meets_here(process, place):
                yield Shown(int(process), dict(json.loads(text)))


def _find() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    own, user = str(os.getpid()), os.geteuid()
    for process in _listed("/proc"):
        if not process.isdecimal() or process == own:
            continue
        directory = f"/proc/{process}/fd"
        size = _size(directory, process, user)
        if size < 0:
            continue
        numbers = [] if size > _MANY else _listed(directory)
        if 0 < len(numbers) <= _MANY:
            for label, path in _labelled(directory, numbers):
                found.setdefault(label, []).append(path)
        else:  # older kernels do not say the number
            for label in _in_memory(process):
                found.setdefault(label, []).append(directory)
    return found


def _paths(found: Iterable[str], label: str) -> Iterator[str]:
    """Return the paths of the cards of a label, also of those among many descriptors."""
    for path in found:
        if path.endswith("/fd"):
            yield from (each for shown, each in _labelled(path, _listed(path)) if shown == label)
        else:
            yield path


def _labelled(directory: str, numbers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return the labels of the cards among descriptors, each with its path."""
    for number in numbers:
        path = f"{directory}/{number}"
        shown = _shown(path)
        if shown.startswith(_SHOWN):
            yield shown.removeprefix(_SHOWN).split(" ", 1)[0], path


def _size(directory: str, process: str, user: int) -> int:
    """Return how many descriptors a process has; 0 where the kernel does not say that.

    A negative number if it is not a process of the user.
    """
    try:
        found = os.stat(directory)  # noqa: PTH116
        # One that may not be traced is the user's, and its directory is not.
        ours = found.st_uid == user or os.stat(f"/proc/{process}").st_uid == user  # noqa: PTH116
        return found.st_size if ours else -1
    except OSError as exc:
        pass_on(exc)
        return -1


def _in_memory(process: str) -> set[str]:
    """Return the labels of the cards in the memory of a process."""
    try:
        with open(f"/proc/{process}/maps", "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError as exc:
        pass_on(exc)
        _require_room(exc)
        return set()
    return {each.decode(errors="replace") for each in _MAPPED.findall(text)}


def _listed(directory: str) -> list[str]:
    """Return the entries of a directory; none where it cannot be read, as another user's."""
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError as exc:
        pass_on(exc)
        _require_room(exc)
        return []


def _shown(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError as exc:
        pass_on(exc)
        return ""  # it was closed meanwhile


def _content(path: str, label: str) -> bytes | None:
    """Return the text of a card; None where it is another file by now."""
    if _shown(path).split(" ", 1)[0] != _SHOWN + label:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        pass_on(exc)
        _require_room(exc)
        return None
    try:
        return os.pread(fd, _MOST_BYTES, 0)
    finally:
        os.close(fd)


def _meets_here(process: str, place: str) -> bool:
    """Return whether a path is the same directory to a process, as it need not be in containers."""
    try:
        return os.path.samestat(os.stat(f"/proc/{process}/root{place}"), os.stat(place))  # noqa: PTH116
    except OSError as exc:
        pass_on(exc)
        _require_room(exc)
        return False


def _require_room(exc: OSError) -> None:
    """Raise an error of this process's own limits; others mean that the other process ended."""
    if exc.errno in _LIMITS:
        raise exc


os.register_at_fork(after_in_child=_read.clear)
