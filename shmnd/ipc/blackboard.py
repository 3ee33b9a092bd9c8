# SPDX-License-Identifier: Apache-2.0
"""Blackboards: one writer, any number of readers, always the newest whole value of each key.

The values lie in memory that only the writer can write (it is sealed for all others) and that
readers map for reading. A write never waits, and a reader that is slow, stopped or dead
disturbs neither the writer nor other readers.
"""

from __future__ import annotations

import fcntl
import json
import math
import mmap
import os
import struct
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmnd.common.arguments import seconds
from shmnd.common.closing import Closing
from shmnd.common.deadline import end_after
from shmnd.ipc.errors import Closed, NoPublisher, unusable
from shmnd.ipc.members import GATE, MEMBERS, Room, holds_lock, make_room, take_lock
from shmnd.ipc.ringing import PAUSE, Bell, ring
from shmnd.ipc.shared_name import SharedName, identity
from shmnd.ipc.shared_words import Words, cell_bytes
from shmnd.ring.shared_memory.bounds import require_room
from shmnd.status import Status, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shmnd.common.records import Entry

__all__ = ["BLACKBOARD", "Blackboard", "BlackboardReader"]

BLACKBOARD: Final = "ipc.blackboard"
_MAGIC: Final = 0x6472616F626B636C
_COUNT: Final = 8
_ENTRIES: Final = 64
_ENTRY: Final = 32
_MOST_KEYS: Final = 4096
_MOST_TEXT: Final = 60_000
_FIRST: Final = _ENTRIES + _ENTRY * _MOST_KEYS
_WRITER: Final = MEMBERS  # the byte of the room that the writer locks
_SEAL_FUTURE_WRITE: Final = 0x10
_STEP: Final = 1 << 16


class _Key:
    """Where a key lies, and of which type its value is."""

    def __init__(self, key: str, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> None:
        self.key: Final = key
        self.dtype: Final = dtype
        self.shape: Final = shape
        self.offset: Final = offset
        self.nbytes: Final = math.prod(shape) * dtype.itemsize
        self.words: Final = np.zeros((self.nbytes + 7) // 8, np.uint64)
        self.array: Final = (
            self.words.view(np.uint8)[: self.nbytes].view(dtype).reshape(shape)
            if self.nbytes
            else np.zeros(shape, dtype)
        )

    @property
    def text(self) -> bytes:
        described = {
            "key": self.key,
            "dtype": np.lib.format.dtype_to_descr(self.dtype),
            "shape": self.shape,
        }
        return json.dumps(described).encode()

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def _type_of(wanted: Any, call: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the element type and the shape that a program means."""
    if hasattr(wanted, "dtype") and hasattr(wanted, "shape"):  # an ipc.Array, or an array
        dtype, shape = np.dtype(wanted.dtype), tuple(wanted.shape)
    else:
        try:
            dtype = np.dtype(wanted)
        except TypeError as exc:
            raise TypeError(f"{call}: {wanted!r} is not a type of a value; pass '6f8'") from exc
        shape = ()
    if dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape = shape + inner
    if dtype.hasobject or dtype.itemsize == 0:
        raise TypeError(f"{call}: {dtype} holds Python objects or nothing; pass plain numbers")
    return dtype, shape


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
        self._room: Room | None = None
        self._fd = -1
        self._keys: dict[str, _Key] = {}
        self.name: Final[str] = name
        self._named: SharedName | None = SharedName(
            call, BLACKBOARD, name, role="writer", namespace=namespace, group=group
        )
        try:
            self._make(call)
            for key, wanted in (keys or {}).items():
                self.add(key, wanted)
            self._announce(self._named, call)
        except BaseException:
            self.close()
            raise

    def _announce(self, named: SharedName, call: str) -> None:
        assert self._room is not None
        with named.turn():
            self._require_alone(named, call)
            named.announce(self._fd, **identity("room_", self._room.fd))

    def _require_alone(self, named: SharedName, call: str) -> None:
        for entry in named.entries():
            if entry.data.get("role") == "writer":
                raise error(
                    Status.ADDRESS_ALREADY_EXISTS,
                    call,
                    f"process {entry.pid} writes the blackboard {self.name!r}, and there is one "
                    "writer; close it there, or take another name",
                )

    def _make(self, call: str) -> None:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        nbytes = max(1 << 28, min(pages, 1 << 36))
        try:
            self._fd = os.memfd_create("shmnd-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.fchmod(self._fd, 0o600)
            os.ftruncate(self._fd, nbytes)
            self._committed = 0
            self._end = _FIRST
            self._commit(_FIRST, call)
            self._map = mmap.mmap(self._fd, nbytes)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, seals | _SEAL_FUTURE_WRITE)
        except OSError as exc:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"no memory for a blackboard: {exc.strerror}; free memory, descriptors or address "
                "space (ulimit -v)",
            ) from exc
        self._words = Words(self._map)
        self._words.store(0, _MAGIC)
        self._room = Room(make_room(call), call)
        take_lock(self._room.fd, _WRITER)

    def _commit(self, end: int, call: str) -> None:
        if end <= self._committed:
            return
        whole = (end + _STEP - 1) // _STEP * _STEP
        require_room(whole - self._committed, 0, call)
        os.posix_fallocate(self._fd, self._committed, whole - self._committed)
        self._committed = whole

    def add(self, key: str, type: Any) -> None:
        """Add a key while readers are there. Harmless when it is there with this type."""
        call = "Blackboard.add"
        self._open(call)
        if not isinstance(key, str):
            raise TypeError(f"{call}: key {key!r} is a {key.__class__.__name__}, not a str")
        dtype, shape = _type_of(type, call)
        known = self._keys.get(key)
        if known is not None:
            if (known.dtype, known.shape) != (dtype, shape):
                raise error(
                    Status.INVALID_PARAMETER_2,
                    call,
                    f"key {key!r} is {known}, not {dtype} of shape {shape}; take another key",
                )
            return
        if len(self._keys) >= _MOST_KEYS:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"{_MOST_KEYS} keys are the most; put several values into one of a structured type",
            )
        made = _Key(key, dtype, shape, 0)
        text = made.text
        if len(text) > _MOST_TEXT:
            raise error(
                Status.INVALID_PARAMETER_2,
                call,
                f"key and type take {len(text)} bytes as text; at most {_MOST_TEXT}",
            )
        text_at = self._end
        offset = (text_at + len(text) + 127) // 128 * 128
        end = offset + cell_bytes(made.words.nbytes)
        if end > len(self._words):
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"{made.nbytes} bytes in four copies; a blackboard has {len(self._words)} bytes",
            )
        self._commit(end, call)
        self._words.write(text_at, text)
        entry = struct.pack("QQQQ", offset, made.nbytes, text_at, len(text))
        self._words.write(_ENTRIES + _ENTRY * len(self._keys), entry)
        self._end = (end + 127) // 128 * 128
        self._keys[key] = _Key(key, dtype, shape, offset)
        self._words.store(_COUNT, len(self._keys))
        self._wake()

    def __setitem__(self, key: str, value: Any) -> None:
        """Write the next version of a value. A new key gets the type of the value."""
        self._open("Blackboard")
        found = self._keys.get(key)
        if found is None:
            self.add(key, np.asarray(value))
            found = self._keys[key]
        found.array[...] = value
        self._words.write_cell(found.offset, found.words)
        self._wake()

    def _wake(self) -> None:
        room = self._room
        assert room is not None
        descriptor = self._words_of_room().open(GATE)
        if descriptor:
            ring([address for each in room.members() if (address := room.address_of(each))])
            self._words_of_room().rung(GATE, descriptor)

    def _words_of_room(self) -> Words:
        assert self._room is not None
        return self._room.words

    def __getitem__(self, key: str) -> Any:
        """Return a copy of the value that was written last."""
        self._open("Blackboard")
        return self._keys[key].array.copy()[()]

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
        return self._words.cell_version(self._keys[key].offset)

    def _open(self, call: str) -> None:
        if self._room is None or self._room.fd < 0:
            raise unusable(call, "blackboard", closed=self._room is None)

    def close(self) -> None:
        """End it; readers keep the last values. Harmless when repeated."""
        room, self._room = getattr(self, "_room", None), None
        named, self._named = getattr(self, "_named", None), None
        fd, self._fd = getattr(self, "_fd", -1), -1
        if named is not None:
            named.close()
        if room is not None:
            if room.fd >= 0:
                room.words.open(GATE)
            room.close()
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        state = "closed" if self._room is None or self._room.fd < 0 else f"{len(self._keys)} keys"
        return f"<Blackboard {self.name!r} {state}>"


class _Board:
    """A writer's memory as a reader maps it, and the room that belongs to it."""

    def __init__(self, named: SharedName, entry: Entry, call: str) -> None:
        self.room: Room | None = None
        self.pid: Final = entry.pid
        fd = named.open_from(entry, "", os.O_RDONLY)
        room_fd = named.open_from(entry, "room_", os.O_RDWR)
        try:
            if fd < 0 or room_fd < 0:
                raise NoPublisher(f"{call}: the writer of {named.name!r} has just ended")
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            size = os.fstat(fd).st_size
            if not sealed or size < _FIRST:
                raise error(
                    Status.INTERNAL_ERROR, call, f"process {self.pid} announced no blackboard"
                )
            self.words = Words(mmap.mmap(fd, size, prot=mmap.PROT_READ), False)
            self.room = Room(room_fd, call)
            room_fd = -1
            self.room.join(call)
        except BaseException:
            if self.room is not None:
                self.room.close()
            raise
        finally:
            for each in (fd, room_fd):
                if each >= 0:
                    os.close(each)
        self.keys: dict[str, _Key] = {}

    def read_keys(self) -> None:
        """Learn of keys that were added."""
        count = min(self.words.load(_COUNT), _MOST_KEYS)
        for number in range(len(self.keys), count):
            data = self.words.copy(_ENTRIES + _ENTRY * number, _ENTRY)
            offset, nbytes, text_at, length = struct.unpack("QQQQ", data)
            text = json.loads(self.words.copy(text_at, min(length, _MOST_TEXT)))
            dtype = np.lib.format.descr_to_dtype(_tuples(text["dtype"]))
            shape = tuple(int(each) for each in text["shape"])
            if dtype.hasobject or math.prod(shape) * dtype.itemsize != nbytes:
                raise ValueError(f"the blackboard's key {text['key']!r} makes no sense")
            self.keys[str(text["key"])] = _Key(str(text["key"]), dtype, shape, offset)

    @property
    def lives(self) -> bool:
        """Whether the writer does."""
        return self.room is not None and holds_lock(self.room.fd, _WRITER)


def _tuples(described: Any) -> Any:
    """Make of lists in JSON the tuples that numpy wants."""
    if not isinstance(described, list):
        return described
    made = []
    for field in described:
        parts = [_tuples(part) if at == 1 else part for at, part in enumerate(field)]
        if isinstance(parts[0], list):
            parts[0] = tuple(parts[0])
        if len(parts) > 2:
            parts[2] = tuple(parts[2]) if isinstance(parts[2], list) else parts[2]
        made.append(tuple(parts))
    return made


class BlackboardReader(Closing):
    """A reader of a blackboard, whether its writer is there already or comes later."""

    def __init__(
        self, name: str, *, namespace: str | None = None, group: int | str | None = None
    ) -> None:
        self._board: _Board | None = None
        self._bell: Bell | None = None
        self._seen: dict[str, int] = {}
        self._next_search = 0.0
        self.name: Final[str] = name
        self._closed = False
        self._named: SharedName | None = SharedName(
            "BlackboardReader", BLACKBOARD, name, namespace=namespace, group=group
        )
        self._pid = os.getpid()
        self._search()

    def _search(self) -> None:
        """Find a writer, or the one that came after the last."""
        assert self._named is not None
        self._next_search = time.monotonic() + PAUSE
        if self._board is not None and self._board.lives:
            return
        for entry in self._named.entries():
            if entry.data.get("role") != "writer":
                continue
            try:
                board = _Board(self._named, entry, "BlackboardReader")
            except NoPublisher:
                continue
            if self._board is not None and self._board.room is not None:
                self._board.room.close()
            self._board = board
            self._seen.clear()
            if self._bell is not None and board.room is not None:
                board.room.set_address(self._bell.address)
            return

    def _current(self, call: str) -> _Board:
        """Return the newest writer's board."""
        if self._closed or self._pid != os.getpid():
            raise unusable(call, "reader", closed=self._closed)
        if time.monotonic() >= self._next_search:
            self._search()
        if self._board is None:
            self._search()
        if self._board is None:
            raise NoPublisher(
                f"{call}: no process writes the blackboard {self.name!r}; start one, or wait for "
                "a key of it"
            )
        return self._board

    def _key(self, key: str, call: str) -> tuple[_Board, _Key]:
        board = self._current(call)
        found = board.keys.get(key)
        if found is None:
            board.read_keys()
            found = board.keys.get(key)
        if found is None:
            raise KeyError(f"{key!r}; the keys are: {', '.join(board.keys)}")
        return board, found

    def _read(self, key: str, call: str) -> tuple[int, Any]:
        board, found = self._key(key, call)
        version = board.words.read_cell(found.offset, found.words)
        self._seen[key] = version
        return version, found.array.copy()[()]

    def __getitem__(self, key: str) -> Any:
        """Return the newest value of a key, a copy of one's own."""
        version, value = self._read(key, "BlackboardReader")
        if version == 0:
            raise LookupError(f"{key!r} was not written yet; wait({key!r}) waits for it")
        return value

    def version(self, key: str) -> int:
        """Return how often a key was written; 0 for never."""
        board, found = self._key(key, "BlackboardReader.version")
        return board.words.cell_version(found.offset)

    def keys(self) -> tuple[str, ...]:
        """Return all keys that there are now."""
        board = self._current("BlackboardReader.keys")
        board.read_keys()
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
        return board.pid if board is not None and board.lives else None

    # -- waiting --

    def _newer(self, key: str, after: int | None) -> tuple[bool, Any]:
        try:
            than = self._seen.get(key, 0) if after is None else after
            if self.version(key) > than:
                return True, self._read(key, "BlackboardReader.wait")[1]
        except (NoPublisher, KeyError):
            pass
        return False, None

    def wait(self, key: str, after: int | None = None, timeout: float | None = None) -> Any:
        """Wait for a version after the one given and return the value; TimeoutError.

        Without `after`, for one newer than this reader has read. It waits for a writer and for
        the key, too.
        """
        call = "BlackboardReader.wait"
        end = end_after(None if timeout is None else seconds(call, 3, "timeout", timeout))
        while True:
            found, value = self._newer(key, after)
            if found:
                return value
            left = end - time.monotonic()
            if left <= 0:
                raise self._late(call, key)
            board = self._board
            if board is None or board.room is None:
                time.sleep(min(left, PAUSE / 4))
                continue
            word = board.room.words.arm(GATE)
            found, value = self._newer(key, after)
            if found:
                return value
            if board is self._board:
                board.room.words.sleep(GATE, word, min(left, PAUSE))

    def _late(self, call: str, key: str) -> TimeoutError:
        writer = f"process {self.writer} writes it" if self.writer else "no process writes it"
        return TimeoutError(
            f"{call}: the time-out ended; {key!r} of {self.name!r} did not change, and {writer}"
        )

    async def await_change(
        self, key: str, after: int | None = None, timeout: float | None = None
    ) -> Any:
        """Wait as `wait` does, and let other tasks run meanwhile."""
        end = end_after(timeout)
        while True:
            bell = self._bell_of()
            self._calm(bell)
            found, value = self._newer(key, after)
            if found:
                return value
            left = end - time.monotonic()
            if left <= 0:
                raise self._late("BlackboardReader.await_change", key)
            await bell.ringing(min(left, PAUSE))

    def ready(self) -> bool:
        """Return whether a key has changed since this reader read it; and quieten `fileno`."""
        if self._bell is not None:
            self._calm(self._bell)
        try:
            return any(self.version(key) > self._seen.get(key, 0) for key in self.keys())
        except NoPublisher:
            return False

    def fileno(self) -> int:
        """Return a descriptor that is readable when a key may have changed since `ready`."""
        return self._bell_of().fd

    def _bell_of(self) -> Bell:
        if self._bell is None:
            if self._closed:
                raise Closed("BlackboardReader.fileno: the reader is closed")
            self._bell = Bell()
            if self._board is not None and self._board.room is not None:
                self._board.room.set_address(self._bell.address)
            self._bell.ring()
        return self._bell

    def _calm(self, bell: Bell) -> None:
        bell.drain()
        if self._board is not None and self._board.room is not None:
            self._board.room.words.arm(GATE, True)

    def close(self) -> None:
        """End the reader. Harmless when repeated."""
        self._closed = True
        board, self._board = getattr(self, "_board", None), None
        named, self._named = getattr(self, "_named", None), None
        bell, self._bell = getattr(self, "_bell", None), None
        if board is not None and board.room is not None:
            board.room.close()
        if named is not None:
            named.close()
        if bell is not None:
            bell.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<BlackboardReader {self.name!r} closed>"
        writer = f"written by process {self.writer}" if self.writer else "without a writer"
        return f"<BlackboardReader {self.name!r} {writer}>"
