# SPDX-License-Identifier: Apache-2.0
"""A file of samples: plain numpy arrays one after another, and an index at the end.

The file begins with `SHMNDREC`, and items follow. An item has three parts: an array of numpy's
format (`np.save`) with one element of `ENTRY`, the header of the sample, and the value as another
such array.

The item of a topic has the description of the topic as JSON in place of the value, and the time at
which the recording began. When a later publisher changes the description, an item of kind `CHANGE`
follows. A type that numpy's format cannot express, because its fields overlap or are out of order,
has an item of its own (`LAYOUT`), and arrays of it are stored as plain bytes.

The index is an array of `PLACE`; 16 bytes follow it: the offset of the index, and `SHMNDEND`. A
file without this end, for example of a recorder that was killed, is read item by item. A sample
that was not written whole, because the disk was full, is cut off again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import time
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from shmnd import ipc
from shmnd.ipc.types.layouts import dtype_from_layout, layout_of

from ..sample_kinds import KINDS
from .described import KIND_BITS, Recorded, change_of, is_of, type_of
from .npy import read_array, read_exactly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO
    from pathlib import Path

__all__ = ["Recording", "Writer"]

BEGIN: Final = b"SHMNDREC"
END: Final = b"SHMNDEND"
TOPIC: Final = 0
LAYOUT: Final = 5
CHANGE: Final = 6
"""These and TOPIC are beyond the kinds of samples."""
_DESCRIBED: Final = (TOPIC, LAYOUT, CHANGE)
ENTRY: Final = np.dtype(
    [("kind", "u4"), ("topic", "u4"), ("sequence", "u8"), ("when_ns", "u8"), ("header", "u8")]
)
"""`kind` is that of a sample, TOPIC, LAYOUT or CHANGE; DESCRIBED, also an array, is read and not
written. Its bits from `KIND_BITS` on are the number of the type, which is the `topic` of its item.
"""
_ITEM: Final = f"{{'descr': {ENTRY.descr}".encode()
_BEFORE: Final = 10
"""Bytes of an item in front of this text."""
_PIECE: Final = 1 << 20
_MOST_LISTED: Final = 20
_MOMENT_NS: Final = 10**9
PLACE: Final = np.dtype([("offset", "u8"), ("topic", "u4"), ("kind", "u4"), ("when_ns", "u8")])
_PLACE: Final = struct.Struct("=QIIQ")


class Writer:
    """Writes samples to a new file, which is whole after each of them."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        try:
            self._file: FileIO = path.open("xb", buffering=0)
        except FileExistsError:
            raise FileExistsError(
                f"{path} exists already; name a new file, or remove that one"
            ) from None
        self._places = bytearray()  # of a sample, 24 bytes: there may be billions
        self._topics = 0
        self._layouts: dict[str, int] = {}
        self._began: Final = time.monotonic_ns()
        try:
            self.write(BEGIN)
        except BaseException:  # the disk is full, or Ctrl-C
            self._file.close()
            path.unlink()  # made here: a later recording may have its name
            raise

    def add_topic(self, description: dict[str, Any]) -> int:
        """Write the description of a topic; return its number."""
        self._topics += 1
        self._add(TOPIC, self._topics, 0, self._began, b"", _text(description))
        return self._topics

    def change_topic(self, number: int, description: dict[str, Any]) -> None:
        """Write a new description of a topic, for the samples that follow."""
        self._add(CHANGE, number, 0, self._began, b"", _text(description))

    def _layout(self, dtype: np.dtype[Any]) -> int:
        """Write a type that numpy's format cannot express; return its number, 0 for all others."""
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
        kind = KINDS[sample.kind] | layout << KIND_BITS
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
        self._places += _PLACE.pack(at, topic, kind, when)

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
                np.lib.format.write_array(
                    self, np.frombuffer(self._places, PLACE), allow_pickle=False
                )
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


class Recording:
    """A file of samples; iterate over it: all in the order of their times, topics in their own.

    Damaged items are left out, and `complain` is called once for each with a line that names the
    place and the damage. OSError and ValueError name a file that cannot be read at all.
    """

    def __init__(self, path: Path, complain: Callable[[str], object] = lambda _: None) -> None:
        self._path: Final = path
        self._complain: Final = complain
        self._damaged_at: set[int] = set()
        self.unread = 0
        """Bytes behind the last whole sample, in a file without its end."""
        self.topics: dict[int, dict[str, Any]] = {}
        """Names, types and attributes."""
        self.types: dict[int, ipc.TopicType] = {}
        self.began_ns = 0
        """When the recording began, or 0; samples that are older come from histories."""
        self._lost_topics: set[int] = set()
        self._layouts: dict[int, np.dtype[Any]] = {}
        self._ends: Any = None
        """Where items begin, and the last one ends; None without an index."""
        self._file: io.BufferedReader = path.open("rb")
        try:
            self._open()
        except OSError as exc:
            self._file.close()
            raise OSError(exc.errno, exc.strerror, str(path)) from None
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        if not self._file.seekable():
            raise ValueError(f"{self._path} is read from end to end alone; copy it to a file")
        begin = self._file.read(len(BEGIN))
        if begin != BEGIN:
            what = f"it begins with {begin!r}" if begin else "it is empty"
            raise ValueError(
                f"{self._path} is not a recording of `shmnd ipc record`: {what}, not {BEGIN!r}"
            )
        index = self._indexed()
        described = np.isin(index["kind"], _DESCRIBED)
        for place in index[index["kind"] == LAYOUT]:
            self._take(place, "the type of samples", self._add_layout)
        topics = index[index["kind"] == TOPIC]
        # First those whose number is that of their order: a damaged one may have that of another.
        for at in np.argsort(topics["topic"] != np.arange(1, len(topics) + 1), kind="stable"):
            self._take_topic(topics[at])
        for place in index[index["kind"] == CHANGE]:
            what = f"a later description of topic {place['topic']}"
            self._take(place, what, self._change_topic)
        self.index: Any = self._merged(index[~described])

    def _merged(self, samples: Any) -> Any:
        """Return the samples in the order of their times, and those of each topic in its order.

        A recorder takes samples of one topic after those of another. Two publishers of a topic may
        send in another order than that of the times that they noted, a moment apart; a damaged time
        is further from the others.
        """
        times = samples["when_ns"].copy()
        for number in self.topics:
            of_topic = samples["topic"] == number
            noted = times[of_topic]
            latest = np.maximum.accumulate(noted)
            times[of_topic] = np.where(latest - noted < _MOMENT_NS, latest, noted)
        if np.all(times[1:] >= times[:-1]):
            return samples
        return samples[np.argsort(times, kind="stable")]

    def _take(self, place: Any, what: str, take: Callable[[Recorded, Any], None]) -> None:
        """Pass an item of JSON to `take`; report `what` as damaged if the item is invalid."""
        found = self._item(place)
        if found is not None:
            try:
                take(found, json.loads(found.array.tobytes()))
            except Exception as exc:  # whatever a parser of damaged text raises
                self._report_damage(found.at, f"{what} makes no sense: {exc}")

    def _add_layout(self, found: Recorded, layout: Any) -> None:
        self._layouts[found.topic] = dtype_from_layout(layout)

    def _take_topic(self, place: Any) -> None:
        if (number := int(place["topic"])) in self.topics:
            self._report_damage(int(place["offset"]), f"topic {number} is described a second time")
            return
        self._lost_topics.add(number)
        self._take(place, f"the description of topic {number}", self._add_topic)

    def _add_topic(self, found: Recorded, description: Any) -> None:
        self.types[found.topic] = type_of(description)
        self.topics[found.topic] = description
        self.began_ns = max(self.began_ns, found.timestamp_ns)
        self._lost_topics.discard(found.topic)

    def _change_topic(self, found: Recorded, description: Any) -> None:
        if found.topic in self.topics:  # else its description was reported
            self.topics[found.topic] = change_of(self.topics[found.topic], description)

    # -- the index --

    def _indexed(self) -> Any:
        end = self._file.seek(0, io.SEEK_END)
        self._file.seek(max(8, end - 16))
        tail = self._file.read(16)
        begin = int.from_bytes(tail[:8], "little")
        if tail[8:] == END and 8 <= begin < end:
            self._file.seek(begin)
            with contextlib.suppress(ValueError):
                index = read_array(self._file, end - 16)
                if index.dtype == PLACE and index.ndim == 1:
                    ends = np.append(index["offset"], np.uint64(begin))
                    if ends[0] == 8 and (ends[1:] > ends[:-1]).all():
                        self._ends = ends
                        return index
        return self._read_through(end, ended=tail[8:] == END)

    def _read_through(self, end: int, *, ended: bool) -> Any:
        """Return the index of a file without a valid one, found by reading its items."""
        places = []
        at = 8
        while at < end:
            try:
                found, after = self._read(at, end)
            except ValueError as exc:
                after = self._next_item(at + 1, end)
                if after == end:
                    break  # the index, or what a recorder was writing at its end
                self._report_damage(at, f"{exc}; {after - at:,} bytes are left out")
            else:
                places.append(found.place)
            at = after
        if ended and at < end:
            which = "the index, or its place at the end of the file, makes no sense"
            self._report_damage(at, f"{which}; {end - at:,} bytes are left out")
        else:
            self.unread = end - at
        return np.array(places, PLACE)

    def _next_item(self, at: int, end: int) -> int:
        """Return where the next item seems to begin, by the text that all of them have."""
        at += _BEFORE
        while at < end:
            self._file.seek(at)
            found = self._file.read(min(_PIECE, end - at))
            if (offset := found.find(_ITEM)) >= 0:
                return at + offset - _BEFORE
            if len(found) <= len(_ITEM):
                break
            at += len(found) - len(_ITEM) + 1
        return end

    # -- items --

    def _read(self, at: int, end: int) -> tuple[Recorded, int]:
        """Return the item that begins there, and where it ends; ValueError where none does."""
        self._file.seek(at)
        entry = read_array(self._file, end)
        if entry.dtype != ENTRY or entry.shape != (1,):
            raise ValueError("no sample begins there")
        left = end - self._file.tell()
        if (nbytes := int(entry[0]["header"])) > left:
            raise ValueError(f"its header has {nbytes:,} bytes, of which {left:,} are there")
        header = read_exactly(self._file, nbytes, left)
        return Recorded(at, entry[0], header, read_array(self._file, end)), self._file.tell()

    def _item(self, place: Any) -> Recorded | None:
        """Return the item of a place of the index; None where it is damaged, which is reported."""
        at = int(place["offset"])
        try:
            found, after = self._read(at, os.fstat(self._file.fileno()).st_size)
            if self._ends is not None and after != self._ends[np.searchsorted(self._ends, at) + 1]:
                raise ValueError(f"it ends at byte {after:,}, where nothing else begins")
            if found.place != tuple(int(each) for each in place):
                raise ValueError("its number, kind or time is another one in the index")
            if found.layout:
                layout = self._layouts.get(found.layout)
                if layout is None or layout.itemsize != found.array.itemsize:
                    raise ValueError(f"its type, number {found.layout}, is not there")
                found.array = found.array.view(layout)
            return found
        except ValueError as exc:
            self._report_damage(at, str(exc))
        except OSError as exc:
            self._report_damage(at, str(exc.strerror))
        return None

    def _report_damage(self, at: int, what: str) -> None:
        if at in self._damaged_at:
            return
        self._damaged_at.add(at)
        if len(self._damaged_at) <= _MOST_LISTED:
            more = "" if len(self._damaged_at) < _MOST_LISTED else "; further damage is not listed"
            self._complain(f"{self._path} is damaged at byte {at:,}: {what}{more}")

    @property
    def damaged(self) -> bool:
        """Whether something was found that cannot be read."""
        return bool(self._damaged_at)

    def __iter__(self) -> Iterator[Recorded]:
        for place in self.index:
            found = self._item(place)
            if found is None or found.topic in self._lost_topics:
                continue
            type_ = self.types.get(found.topic)
            if type_ is None:
                self._lost_topics.add(found.topic)  # reported once
                self._report_damage(found.at, f"topic {found.topic} of a sample is not described")
            elif not is_of(type_, found):
                name = self.topics[found.topic]["name"]
                self._report_damage(found.at, f"a sample of {name!r} is not of its type")
            else:
                yield found

    def __len__(self) -> int:
        return len(self.index)

    def close(self) -> None:
        """Close the file. Harmless twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
