# SPDX-License-Identifier: Apache-2.0
"""The memory of a blackboard's writer, as a reader maps it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from shmnd.common.interruption import pass_on
from shmnd.ipc.blackboard.keys import (
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
    tuples,
)  # fmt: skip
from shmnd.ipc.common.members import GATE, MemberTable, holds_lock
from shmnd.ipc.common.shared_words import Words, cell_bytes
from shmnd.ipc.errors import NoPublisher
from shmnd.ipc.naming.shared_name import SharedName
from shmnd.ring.shared_memory.segment import SparseMapping
from shmnd.status import Status, error

if TYPE_CHECKING:
    from shmnd.common.records import Entry

__all__ = ["Board"]


class Board:
    """A writer's memory as a reader maps it, and the table of members that belongs to it."""

    def __init__(self, named: SharedName, entry: Entry, call: str) -> None:
        self.table: MemberTable | None = None
        self.pid: Final = entry.pid
        self.number = 0
        """Which of the writers it is that the reader has met, from 1."""
        file = table_file = None
        try:
            file = named.open_from(entry, "", os.O_RDONLY)
            table_file = named.open_from(entry, TABLE, os.O_RDWR)
            if file is None or table_file is None:
                if named.hides(entry):
                    raise named.hidden_error(entry.pid)
                raise NoPublisher(f"{call}: the writer of {named.name!r} has just ended")
            fd = file.fd
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            size = os.fstat(fd).st_size
            if not sealed or size < FIRST:
                raise error(
                    Status.INTERNAL_ERROR, call, f"process {self.pid} announced no blackboard"
                )
            self.words = Words(SparseMapping(fd, size, writable=False, call=call), False)
            file.close()
            if self.words.load(0) != MAGIC:
                raise error(
                    Status.INTERNAL_ERROR,
                    call,
                    f"the blackboard of process {self.pid} was made by another release of shmnd;"
                    " run the same one in both",
                )
            self.table = MemberTable(table_file, call)
            self.table.join(call)
        except BaseException:
            self.close()
            for each in (file, table_file):
                if each is not None:
                    each.close()  # the exception keeps this frame
            raise
        self.keys: dict[str, Key] = {}
        self._keys_read = 0

    def read_keys(self, call: str) -> None:
        """Read the keys that were added. Each word of the writer is read once, and checked."""
        try:
            self._read_keys()
        except Exception as exc:  # json and numpy raise many
            pass_on(exc)
            raise error(
                Status.INTERNAL_ERROR,
                call,
                f"process {self.pid} wrote keys that make no sense: {exc!r}; end it",
            ) from exc

    def _read_keys(self) -> None:
        count = min(self.words.load(COUNT), MOST_KEYS)
        for number in range(self._keys_read, count):
            data = self.words.copy(ENTRIES + ENTRY * number, ENTRY)
            offset, nbytes, text_at, length = struct.unpack("QQQQ", data)
            text = json.loads(self.words.copy(text_at, min(length, MOST_TEXT)))
            dtype = np.lib.format.descr_to_dtype(tuples(text["dtype"]))
            shape = tuple(int(each) for each in text["shape"])
            wanted = math.prod(shape) * dtype.itemsize
            if dtype.hasobject or wanted != nbytes or any(each < 0 for each in shape):
                raise ValueError(f"{nbytes} bytes of {dtype} in shape {shape}")
            size = len(self.words)
            if nbytes > size or offset % 8 or offset + cell_bytes(nbytes + -nbytes % 8) > size:
                raise ValueError(f"{nbytes} bytes at {offset} in a blackboard of {size}")
            # numpy refuses more: a large dimension next to one of 0, or too many. Takes no memory.
            one = bytes(dtype.itemsize if nbytes else 0)
            np.ndarray(shape, dtype, one, strides=(0,) * len(shape))
            is_record = text.get("record") is True and bool(dtype.names) and not shape
            self.keys[str(text["key"])] = Key(str(text["key"]), dtype, shape, is_record, offset)
            self._keys_read = number + 1  # behind the last call: a handler of a signal may raise

    def wake(self) -> None:
        """Have the threads that sleep for a change check again."""
        if self.table is not None and self.table.fd >= 0:
            self.table.words.open(GATE)

    def close(self) -> None:
        """Read it no more."""
        if self.table is not None:
            self.table.close()

    @property
    def lives(self) -> bool:
        """Whether the writer lives."""
        return self.table is not None and holds_lock(self.table.fd, WRITER)
