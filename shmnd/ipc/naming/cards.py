# SPDX-License-Identifier: Apache-2.0
"""Names that processes have, and that the present broker may not know.

A process tells the next broker what it has at its next call that needs one. Until then another
process that opens the name would find none, and make a second memory next to the first. So a
process that has a name also holds a card: an open file without a path, which /proc shows under a
label made of the name, with a copy of the record. The kernel removes it with the process.

A process reads the cards of all processes of its user once for each broker. Those that have not
told this broker have their cards from an earlier time, and others need none.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmnd.common.descriptors import Descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Card", "Shown", "cards", "label_of"]

_PREFIX: Final = "shmnd-name-"
_SHOWN: Final = f"/memfd:{_PREFIX}"
_MOST_BYTES: Final = 1 << 16
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
        try:
            self._file = Descriptor(os.memfd_create(_PREFIX + label, os.MFD_CLOEXEC))
            os.fchmod(self._file.fileno(), 0o600)
            os.pwrite(self._file.fileno(), json.dumps(dict(record)).encode(), 0)
        except OSError:
            self.close()

    def close(self) -> None:
        """Show it no more. Harmless twice."""
        self._file.close()


_read: dict[str, tuple[str, dict[str, list[str]]]] = {}
"""By place: the broker since when cards were read, and the paths of the cards by their labels."""


def cards(place: str, broker: str, label: str) -> Iterator[Shown]:
    """Return the cards of a label that other processes have held since before a broker came.

    OSError when this process is out of descriptors or memory, and cannot see.
    """
    known = _read.get(place)
    if known is None or known[0] != broker:
        known = _read[place] = broker, _find()
    for path in known[1].get(label, ()):
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            process = path.split("/")[2]
            text = _content(path, label)
            if text is not None and _meets_here(process, place):
                yield Shown(int(process), dict(json.loads(text)))


def _find() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    own, user = str(os.getpid()), os.geteuid()
    for process in _listed("/proc"):
        if not process.isdecimal() or process == own or not _is_of(process, user):
            continue
        for number in _listed(f"/proc/{process}/fd"):
            path = f"/proc/{process}/fd/{number}"
            shown = _shown(path)
            if shown.startswith(_SHOWN):
                label = shown.removeprefix(_SHOWN).split(" ", 1)[0]
                found.setdefault(label, []).append(path)
    return found


def _is_of(process: str, user: int) -> bool:
    try:
        return os.stat(f"/proc/{process}").st_uid == user  # noqa: PTH116
    except OSError:
        return False


def _listed(directory: str) -> list[str]:
    """Return the entries of a directory; none where it cannot be read, as another user's."""
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError as exc:
        _require_room(exc)
        return []


def _shown(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""  # it was closed meanwhile


def _content(path: str, label: str) -> bytes | None:
    """Return the text of a card; None where it is another file by now."""
    if _shown(path).split(" ", 1)[0] != _SHOWN + label:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
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
        _require_room(exc)
        return False


def _require_room(exc: OSError) -> None:
    """Raise what says that this process cannot see; the others say that a process has ended."""
    if exc.errno in _LIMITS:
        raise exc


os.register_at_fork(after_in_child=_read.clear)
