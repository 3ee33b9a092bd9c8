# SPDX-License-Identifier: Apache-2.0
"""A file of samples: plain numpy arrays one after another, and an index at the end.

`SHMNDREC`, then items. An item is a structured array of numpy's format (`np.save`) with one element
of `ENTRY`, the header of the sample, and its value as another such array; an item of a topic has
its description as JSON there. A type that the format has no words for, whose fields overlap or are
out of order, is an item of its own, and the elements of such arrays are plain bytes. The index is
an array of `PLACE`, behind it 16 bytes: where it begins, and `SHMNDEND`. A file without its end, as
of a recorder that was killed, is read through. A sample that could not be written whole, because
the disk was full, is cut off again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import numpy as np

from shmnd.ipc.types.layouts import dtype_from_layout, layout_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

__all__ = ["Recorded", "Recording", "Writer"]

BEGIN: Final = b"SHMNDREC"
END: Final = b"SHMNDEND"
TOPIC: Final = 0
LAYOUT: Final = 5
ENTRY: Final = np.dtype(
    [("kind", "u4"), ("topic", "u4"), ("sequence", "u8"), ("when_ns", "u8"), ("header", "u8")]
)
"""`kind` is that of a sample on the wire (1 array, 2 bytes, 3 object, 4 described), TOPIC or
LAYOUT. Its bits from `KIND_BITS` on are the number of the type, which is the `topic` of its item.
"""
KIND_BITS: Final = 8
_TOPIC_KEYS: Final = {"name", "type", "attributes"}
PLACE: Final = np.dtype([("offset", "u8"), ("topic", "u4"), ("kind", "u4"), ("when_ns", "u8")])


class Writer:
    """Writes samples to a new file, which is whole after each of them."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._file: FileIO = path.open("xb", buffering=0)
        self._places: list[tuple[int, int, int, int]] = []
        self._topics = 0
        self._layouts: dict[str, int] = {}
        self.write(BEGIN)

    def add_topic(self, description: dict[str, Any]) -> int:
        """Write what a topic is; return its number."""
        self._topics += 1
        self._add(TOPIC, self._topics, 0, 0, b"", _text(description))
        return self._topics

    def _layout(self, dtype: np.dtype[Any]) -> int:
        """Write a type that numpy's format cannot say; return its number, 0 for all others."""
        if dtype.names is None:
            return 0
        try:
            np.lib.format.dtype_to_descr(dtype)
            return 0
        except ValueError:
            layout = layout_of(dtype)
        text = json.dumps(layout)
        if text not in self._layouts:
            number = len(self._layouts) + 1
            self._add(LAYOUT, number, 0, 0, b"", _text(layout))
            self._layouts[text] = number
        return self._layouts[text]

    def add(self, topic: int, sample: Any) -> int:
        """Write a sample; return its bytes."""
        array = sample.array
        header = sample.header or b""
        layout = self._layout(array.dtype)
        if layout:
            array = array.view(f"V{array.itemsize}")
        kind = sample._kind | layout << KIND_BITS
        self._add(kind, topic, sample.sequence, sample.timestamp_ns, header, array)
        return int(array.nbytes) + len(header)

    def _add(
        self, kind: int, topic: int, sequence: int, when: int, header: bytes, array: Any
    ) -> None:
        entry = np.array([(kind, topic, sequence, when, len(header))], ENTRY)
        at = self._file.tell()
        try:
            np.lib.format.write_array(self, entry, allow_pickle=False)
            self.write(header)
            np.lib.format.write_array(self, array, allow_pickle=False)
        except BaseException:  # the disk is full, or Ctrl-C
            self._cut(at)
            raise
        self._places.append((at, topic, kind, when))

    def write(self, data: bytes) -> None:
        """Write all of it. A disk that fills up takes a part first, and raises at the next call."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, str(self._path)) from None

    def _cut(self, at: int) -> None:
        self._file.truncate(at)
        self._file.seek(at)

    def close(self) -> None:
        """Write the index; without room for it, the file is one without an end. Harmless twice."""
        if self._file.closed:
            return
        with self._file:
            at = self._file.tell()
            try:
                np.lib.format.write_array(self, np.array(self._places, PLACE), allow_pickle=False)
                self.write(at.to_bytes(8, "little") + END)
            except OSError:
                self._cut(at)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, exc: object, trace: object) -> None:
        try:
            self.close()
        except OSError:
            if exc is None:
                raise  # else it says what ended the recording


def _text(description: Any) -> Any:
    return np.frombuffer(json.dumps(description).encode(), "u1")


class Recorded:
    """One sample of a file."""

    def __init__(self, entry: Any, header: bytes, array: Any) -> None:
        self.kind = int(entry["kind"]) & (1 << KIND_BITS) - 1
        self.topic = int(entry["topic"])
        self.sequence = int(entry["sequence"])
        self.timestamp_ns = int(entry["when_ns"])
        self.header = header or None
        self.array: Any = array


def _dtype_of(layout: Any) -> np.dtype[Any]:
    """Return the type that a file describes; ValueError where it is damaged."""
    try:
        return dtype_from_layout(layout)
    except (TypeError, LookupError, AttributeError, RecursionError) as exc:
        raise ValueError(f"a type that makes no sense: {exc}") from exc


class Recording:
    """A file of samples; iterate over it, or read single ones by the index."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("rb")
        self.unread = 0
        """Bytes behind the last whole sample, in a file without its end."""
        try:
            if self._file.read(8) != BEGIN:
                raise ValueError(f"{path} is not a recording of `shmnd ipc record`")
            self._layouts: dict[int, np.dtype[Any]] = {}
            self.index: Any = self._indexed()
            texts = self._texts(LAYOUT)
            self._layouts = {number: _dtype_of(text) for number, text in texts.items()}
            self.topics: dict[int, Any] = self._texts(TOPIC)
            for number, topic in self.topics.items():
                if not isinstance(topic, dict) or not topic.keys() >= _TOPIC_KEYS:
                    raise ValueError(f"the description of topic {number} in {path} is damaged")
            described = np.isin(self.index["kind"], (TOPIC, LAYOUT))
            self.index = self.index[~described]
        except BaseException:
            self._file.close()
            raise

    def _texts(self, kind: int) -> dict[int, Any]:
        places = self.index[self.index["kind"] == kind]["offset"]
        found = [self.read(int(place)) for place in places]
        return {each.topic: json.loads(each.array.tobytes()) for each in found}

    def _indexed(self) -> Any:
        end = self._file.seek(0, io.SEEK_END)
        self._file.seek(max(8, end - 16))
        tail = self._file.read(16)
        if tail[8:] == END and int.from_bytes(tail[:8], "little") < end:
            self._file.seek(int.from_bytes(tail[:8], "little"))
            with contextlib.suppress(ValueError):
                index = self._array()
                if index.dtype == PLACE and index.ndim == 1:
                    return index
        return self._read_through(end)

    def _read_through(self, end: int) -> Any:
        """Find the items of a file that has no end."""
        places = []
        at = 8
        while at < end:
            try:
                found = self.read(at)
            except (ValueError, EOFError, OSError):
                break  # the last one is not whole
            places.append((at, found.topic, found.kind, found.timestamp_ns))
            at = self._file.tell()
        self.unread = end - at
        return np.array(places, PLACE)

    def read(self, offset: int) -> Recorded:
        """Return the sample that begins there."""
        self._file.seek(offset)
        entry = self._array()
        if entry.dtype != ENTRY or entry.shape != (1,):
            raise ValueError(f"no sample begins at byte {offset}")
        nbytes = int(entry[0]["header"])
        if nbytes > os.fstat(self._file.fileno()).st_size:
            raise ValueError(f"the sample at byte {offset} has a header of {nbytes} bytes")
        header = self._file.read(nbytes)
        array = self._array()
        layout = self._layouts.get(int(entry[0]["kind"]) >> KIND_BITS)
        if layout is not None and layout.itemsize == array.itemsize:
            array = array.view(layout)
        return Recorded(entry[0], header, array)

    def _array(self) -> Any:
        """Return the array that begins here; ValueError where none does, or a part of one."""
        at = self._file.tell()
        try:
            return np.lib.format.read_array(self._file, allow_pickle=False)
        except (OSError, ValueError):
            raise
        except Exception as exc:  # what numpy's parser of a damaged header raises
            raise ValueError(f"no array begins at byte {at}: {exc}") from exc

    def __iter__(self) -> Iterator[Recorded]:
        for place in self.index:
            yield self.read(int(place["offset"]))

    def __len__(self) -> int:
        return len(self.index)

    def close(self) -> None:
        """Close the file. Harmless twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
