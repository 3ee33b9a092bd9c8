# SPDX-License-Identifier: Apache-2.0
"""Blackboards: one writer, any number of readers, always the newest whole value of each key.

The values lie in memory that only the writer can write (it is sealed for all others) and that
readers map for reading. A write never waits, and a reader that is slow, stopped or dead
disturbs neither the writer nor other readers.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmnd.common.arguments import shown
from shmnd.common.closing import Closing
from shmnd.common.descriptors import Descriptor
from shmnd.common.held import Held
from shmnd.common.interruption import pass_on
from shmnd.common.shortages import memory_error
from shmnd.ipc.blackboard.keys import (
    BLACKBOARD,
    COUNT,
    ENTRIES,
    ENTRY,
    FIRST,
    MAGIC,
    MOST_KEYS,
    MOST_TEXT,
    TABLE,
    WRITER,
    Key,
    key_given,
    no_key,
    type_of,
    unsettled,
)  # fmt: skip
from shmnd.ipc.common.limits import COMMIT_UNIT, most_memory
from shmnd.ipc.common.members import (
    GATE,
    MemberTable,
    holds_lock,
    make_member_table,
    take_lock,
)  # fmt: skip
from shmnd.ipc.common.shared_words import Words, cell_bytes
from shmnd.ipc.errors import TypeMismatch, unusable
from shmnd.ipc.naming.shared_name import SharedName, identity
from shmnd.ipc.types.filling import fill_record
from shmnd.ipc.types.fitting import require_fit, require_unmasked
from shmnd.ipc.types.plain_values import array_of
from shmnd.ring.shared_memory.bounds import require_room
from shmnd.ring.shared_memory.segment import SparseMapping
from shmnd.status import Status, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shmnd.common.records import Entry

__all__ = ["Blackboard"]

_SEAL_FUTURE_WRITE: Final = 0x10


class Blackboard(Closing):
    """The writer of a blackboard. Keys are `{'pose': '6f8', 'mode': 'u1'}`: names and types."""

    def __init__(
        self,
        name: str,
        keys: Mapping[str, Any] | None = None,
        *,
        namespace: str | None = None,
        group: int | str | None = None,
    ) -> None:
        call = "Blackboard"
        self._table: MemberTable | None = None
        self._file = Descriptor(-1)
        self._keys: dict[str, Key] = {}
        self._adding = threading.RLock()
        self.name: Final[str] = name
        self._named: SharedName | None = SharedName(
            call, BLACKBOARD, name, role="writer", namespace=namespace, group=group
        )
        try:
            if keys is not None and not hasattr(keys, "items"):
                raise TypeError(
                    f"{call}: keys {keys!r} is not a dict of types, such as {{'pose': '6f8'}}"
                )
            self._make(call)
            for key, wanted in (keys or {}).items():
                self.add(key, wanted)
            self._announce(self._named, call)
        except BaseException:
            self.close()
            raise

    def _announce(self, named: SharedName, call: str) -> None:
        assert self._table is not None
        table = identity(TABLE, self._table.fd)

        def announce() -> None:
            self._require_alone(named, call)
            named.announce(self._file.fileno(), **table)

        named.in_turn(announce)

    def _require_alone(self, named: SharedName, call: str) -> None:
        for entry in named.every_entry():
            if entry.data.get("role") != "writer" or entry.adapter == named.adapter.uid:
                continue
            if _writes(named, entry):
                raise error(
                    Status.ADDRESS_ALREADY_EXISTS,
                    call,
                    f"process {entry.pid} writes the blackboard {self.name!r}, and there is one "
                    "writer; close it there, or take another name",
                )

    def _make(self, call: str) -> None:
        nbytes = most_memory(1 << 28, 1 << 36)
        try:
            flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
            self._file = Descriptor.of(os.memfd_create, "shmnd-board", flags)
            fd = self._file.fileno()
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, nbytes)
            self._committed = 0
            self._end = FIRST
            self._commit(FIRST, call)
            self._map = SparseMapping(fd, nbytes, writable=True, call=call)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals | _SEAL_FUTURE_WRITE)
        except OSError as exc:
            pass_on(exc)
            otherwise = "free memory, or address space (ulimit -v)"
            raise memory_error(call, "no memory for a blackboard", exc, otherwise) from exc
        self._words = Words(self._map)
        self._words.store(0, MAGIC)
        self._table = MemberTable(make_member_table(call), call)
        take_lock(self._table.fd, WRITER)
        self._table.join(call, waits=False)

    def _commit(self, end: int, call: str) -> None:
        if end <= self._committed:
            return
        whole = (end + COMMIT_UNIT - 1) // COMMIT_UNIT * COMMIT_UNIT
        require_room(whole - self._committed, 0, call)
        os.posix_fallocate(self._file.fileno(), self._committed, whole - self._committed)
        self._committed = whole

    def add(self, key: str, type: Any) -> None:
        """Add a key while readers are there. Harmless when it is there with this type."""
        call = "Blackboard.add"
        self._open(call)
        key_given(key, call)
        with Held(self._adding):
            self._add(Key(key, *type_of(type, call, key)), call)

    def _add(self, wanted: Key, call: str) -> None:
        key, nbytes = wanted.key, wanted.nbytes
        known = self._keys.get(key)
        if known is not None:
            _require_same(known, wanted, call)
            return
        if len(self._keys) >= MOST_KEYS:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"key {shown(key)}: {MOST_KEYS} keys are the most; put several values into one of "
                "a structured type",
            )
        self._require_fit(key, 4 * nbytes, nbytes, call)  # before memory is taken for it
        text = _text_of(wanted, call)
        offset = _at_line(self._end + len(text))
        end = offset + cell_bytes(nbytes + -nbytes % 8)
        self._require_fit(key, end, nbytes, call)
        self._commit(end, call)
        self._words.write(self._end, text)
        entry = struct.pack("QQQQ", offset, nbytes, self._end, len(text))
        self._words.write(ENTRIES + ENTRY * len(self._keys), entry)
        self._end = _at_line(end)
        made = Key(key, wanted.dtype, wanted.shape, wanted.is_record, offset)
        try:
            self._keys[key] = made
            self._show_keys()
        except BaseException:  # of a handler of a signal: readers see the key if this side has it
            self._show_keys()
            raise

    def _require_fit(self, key: str, end: int, nbytes: int, call: str) -> None:
        """Raise unless a value of so many bytes can end there."""
        most = len(self._words)
        if end > most:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"key {shown(key)}: {nbytes} bytes in four copies; a blackboard has {most} bytes",
            )

    def _show_keys(self) -> None:
        self._words.store(COUNT, len(self._keys))
        self._wake()

    def __setitem__(self, key: str, value: Any) -> None:
        """Write the next version of a value. A new key gets the type of the value."""
        self._open("Blackboard")
        found = self._keys.get(key)
        if found is None:
            key_given(key, "Blackboard")  # before the value is said to be of a new key
            self.add(key, _array_of(key, value))
            found = self._keys[key]
        words = value if found.holds(value) else _words_of(found, value)
        try:
            self._words.write_cell(found.offset, words)
            self._wake()
        except BaseException:  # of a handler of a signal, perhaps behind the change
            self._wake()
            raise

    def _wake(self) -> None:
        table = self._table
        if table is None:
            raise unusable("Blackboard", "blackboard", closed=True)  # by another thread
        descriptor = table.words.open(GATE)
        if descriptor:
            table.ring(table.members())
            table.words.rung(GATE, descriptor)

    def __getitem__(self, key: str) -> Any:
        """Return a copy of the value that was written last."""
        self._open("Blackboard")
        found = self._known(key, "Blackboard")
        words, array = found.fresh()
        if self._words.read_cell(found.offset, words) < 0:
            raise unsettled("Blackboard", key, self.name, os.getpid())
        return found.value_of(array)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._keys))

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> tuple[str, ...]:
        """Return all keys."""
        return tuple(self._keys)

    def version(self, key: str) -> int:
        """Return how often a key was written."""
        self._open("Blackboard.version")
        return self._words.cell_version(self._known(key, "Blackboard.version").offset)

    def _known(self, key: str, call: str) -> Key:
        found = self._keys.get(key)
        if found is None:
            raise no_key(call, self.name, key, tuple(self._keys))
        return found

    def _open(self, call: str) -> None:
        if self._table is None or self._table.fd < 0:
            raise unusable(call, "blackboard", closed=self._table is None)

    def close(self) -> None:
        """End it; readers keep the last values. Harmless when repeated."""
        table, self._table = getattr(self, "_table", None), None
        named, self._named = getattr(self, "_named", None), None
        if named is not None:
            named.close()
        if table is not None:
            if table.fd >= 0:
                table.words.open(GATE)
            table.close()
        if hasattr(self, "_file"):
            self._file.close()

    def __repr__(self) -> str:
        state = "closed" if self._table is None or self._table.fd < 0 else f"{len(self._keys)} keys"
        return f"<Blackboard {self.name!r} {state}>"


def _array_of(key: str, value: Any) -> np.ndarray[Any, Any]:
    """Return the first value of a new key, which gets its type."""
    require_unmasked(value, f"Blackboard: the value of {shown(key)}")
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as exc:
        pass_on(exc)
        raise TypeMismatch(
            f"Blackboard: the value of {shown(key)} cannot be an array: {exc}; "
            "add the key with a type"
        ) from exc


def _words_of(key: Key, value: Any) -> np.ndarray[Any, Any]:
    """Return memory of whole words with a value as one of a key's type."""
    words, array = key.fresh()
    try:
        if key.dtype.names is not None and not key.shape:
            fill_record(array, value, "this one")
        else:
            given = array_of(value, key.dtype, None, "this one")
            require_fit(given, key.dtype, "this one")
            array[...] = given
    except (ValueError, TypeError, OverflowError) as exc:
        pass_on(exc)
        raise (ValueError if isinstance(exc, UnicodeError) else type(exc))(
            f"Blackboard: the value of {shown(key.key)} is {key.dtype} of shape {key.shape}: {exc}"
        ) from None
    return words


def _require_same(known: Key, wanted: Key, call: str) -> None:
    ours, theirs = ((each.dtype, each.shape, each.is_record) for each in (wanted, known))
    if ours != theirs:
        raise error(
            Status.INVALID_PARAMETER_2,
            call,
            f"key {shown(known.key)} is {known}, not {wanted}; take another key",
        )


def _text_of(key: Key, call: str) -> bytes:
    """Return the text by which readers know a key and its type."""
    text = key.text
    if len(text) > MOST_TEXT:
        raise error(
            Status.INVALID_PARAMETER_2,
            call,
            f"key and type take {len(text)} bytes as text; at most {MOST_TEXT}",
        )
    return text


def _at_line(end: int) -> int:
    """Return the first place from there on that begins a pair of cache lines."""
    return (end + 127) // 128 * 128


def _writes(named: SharedName, entry: Entry) -> bool:
    """Return whether the process of a record is a writer: it has the lock, unless it is hidden."""
    table = named.open_from(entry, TABLE, os.O_RDWR)
    if table is None:
        return named.hides(entry)
    try:
        return holds_lock(table.fd, WRITER)
    finally:
        table.close()
