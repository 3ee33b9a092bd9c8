# SPDX-License-Identifier: Apache-2.0
"""Damaged recordings: what can be read is published, and the rest is named by file and byte."""

import io
import json
import os
import random
import re
import resource
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shmnd import ipc
from shmnd.ipc.types.objects import object_bytes, packed, write_object
from shmnd_tools.ipc.recording import ENTRY, Recording, Writer
from shmnd_tools.main import main

PATIENCE = 20.0
POINT = np.dtype([("x", "i4"), ("y", "f8")])
KINDS = {1: "array", 2: "bytes", 3: "object"}


def packed_object(value: object) -> Any:
    """Return the bytes of the sample of an object."""
    stream, views, table = packed(value)
    memory = np.zeros(object_bytes(stream, views, table), "u1")
    write_object(memoryview(memory), stream, views, table)
    return memory


TYPES: list[tuple[Any, int, list[Any]]] = [
    ({"dtype": "<f4"}, 1, [np.full((2, 3), n, "f4") for n in range(3)]),
    ("bytes", 2, [np.frombuffer(b"bytes%d" % n, "u1") for n in range(3)]),
    ("object", 3, [packed_object({"number": n}) for n in range(3)]),
    (
        {"structured": ["struct", [["x", "<i4", 0], ["y", "<f8", 4]], 12]},
        1,
        [np.full(2, n, POINT) for n in range(3)],
    ),
]


def recorded(path: Path, name: str = "topic", types: Any = TYPES) -> bytes:
    """Write a recording of some topics, three samples each."""
    with Writer(path) as writer:
        for number, (type_, kind, arrays) in enumerate(types):
            described = {"name": f"{name}-{number}", "type": type_, "attributes": {}}
            topic = writer.add_topic(described)
            for at, array in enumerate(arrays):
                writer.add(
                    topic,
                    SimpleNamespace(
                        kind=KINDS[kind],
                        sequence=at,
                        timestamp_ns=at,
                        header=b"h" * at,
                        array=array,
                    ),
                )
    return path.read_bytes()


def read(path: Path) -> tuple[list[Any], list[str], Recording]:
    said: list[str] = []
    with Recording(path, said.append) as recording:
        return list(recording), said, recording


def reported_once(path: Path, samples: int, text: str) -> None:
    """Check that a file has so many samples that can be read, and one line about its damage."""
    found, said, _ = read(path)
    assert len(found) == samples
    assert len(said) == 1
    assert text in said[0]


def test_a_file_that_is_cut_anywhere_has_the_samples_before(tmp_path: Path) -> None:
    path, cut = tmp_path / "whole.rec", tmp_path / "cut.rec"
    whole = recorded(path)
    counts = []
    for end in range(8, len(whole), 7):
        cut.write_bytes(whole[:end])
        found, said, recording = read(cut)
        assert not said
        assert not recording.damaged
        counts.append(len(found))
        assert 0 <= recording.unread < 2000
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 12)


def test_a_wrong_bit_costs_few_samples(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    path, damaged = tmp_path / "whole.rec", tmp_path / "damaged.rec"
    whole = recorded(path)
    before = [(each.topic, each.sequence) for each in read(path)[0]]
    for _ in range(1500):
        data = bytearray(whole[: -16 if rng.random() < 0.5 else None])
        at = rng.randrange(8, len(data))
        data[at] ^= 1 << rng.randrange(8)
        damaged.write_bytes(data)
        found, said, recording = read(damaged)
        for line in said:
            assert re.match(rf"{damaged} is damaged at byte \d[\d,]*: .", line), (seed, at)
        assert recording.damaged == bool(said)
        kept = [(each.topic, each.sequence) for each in found]
        # A topic, if not a sample; and the one before, if it is in the index.
        assert len(kept) >= len(before) - 4, (seed, at, said)


def test_a_topic_with_the_number_of_another_costs_itself_alone(tmp_path: Path) -> None:
    """In a file without its end nothing else says the number."""
    path = tmp_path / "damaged.rec"
    whole = recorded(path)[:-16]
    with Recording(path) as recording:
        count = len(recording)
        topics = {number: each["name"].encode() for number, each in recording.topics.items()}
    assert len(topics) > 1
    for one, name in topics.items():
        # The entry of its description stands in front of that, and the number behind the kind.
        item = whole.rindex(b"NUMPY", 0, whole.rindex(b"NUMPY", 0, whole.index(name))) - 1
        at = whole.index(b"\n", item) + 5
        assert whole[at] == one
        for other in topics.keys() - {one}:
            path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
            found, said, recording = read(path)
            assert {each.topic for each in found} == topics.keys() - {one}
            assert len(found) == count - 3
            assert len(said) == 2, said
            assert f"topic {other} is described a second time" in said[0]


@pytest.mark.parametrize(
    ("begin", "text"),
    [(b"", "is empty"), (b"SHMND", "b'SHMND'"), (b"PNG" * 99, "is not a recording")],
)
def test_other_files_are_refused(
    begin: bytes, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other"
    path.write_bytes(begin)
    assert main(["ipc", "replay", str(path)]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert str(path) in said


def test_a_pipe_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert main(["ipc", "replay", f"/dev/fd/{reading}"]) == 1
    assert "copy it to a file" in capsys.readouterr().err
    os.close(reading)


def test_replay_leaves_out_damaged_samples(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "damaged.rec"
    whole = recorded(path, name, TYPES[:2])
    at = whole.index(b"'shape': (2, 3)") + 10
    path.write_bytes(whole[:at] + b"9" + whole[at + 1 :])
    with ipc.Subscriber(f"{name}-0") as arrays, ipc.Subscriber(f"{name}-1") as texts:
        assert main(["ipc", "replay", str(path), "--speed", "0", "--wait", "20"]) == 1
        assert [int(arrays.receive(PATIENCE).array[0, 0]) for _ in range(2)] == [1, 2]
        assert [texts.receive(PATIENCE).value for _ in range(3)] == [
            b"bytes0",
            b"bytes1",
            b"bytes2",
        ]
    said = capsys.readouterr().err
    assert f"{path} is damaged at byte " in said
    assert "5 samples" in said


def test_a_damaged_topic_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "damaged.rec"
    whole = recorded(path)
    for old, new in ((b'"attributes"', b'"attribute_"'), (b'"<f4"', b'"<f9"'), (b"<f4", b"\xff<f")):
        path.write_bytes(whole.replace(old, new, 1))
        reported_once(path, 9, "the description of topic 1 makes no sense")


def test_much_damage_is_not_listed_whole(tmp_path: Path) -> None:
    path = tmp_path / "damaged.rec"
    many = [({"dtype": "<i8"}, 1, [np.arange(3) for _ in range(90)])]
    whole = recorded(path, types=many)
    path.write_bytes(whole.replace(b"'shape': (3,)", b"'shape': (x,)"))
    found, said, recording = read(path)
    assert (found, recording.damaged, len(said)) == ([], True, 20)
    assert said[-1].endswith("further damage is not listed")


def test_samples_of_another_type_are_not_published(tmp_path: Path) -> None:
    """A damaged kind must not make a pickle of bytes."""
    path = tmp_path / "damaged.rec"
    wrong = [
        ("bytes", 3, TYPES[2][2]),
        ("object", 1, TYPES[0][2]),
        ({"dtype": "<f8"}, 1, TYPES[0][2]),
        ("object", 3, TYPES[1][2]),
    ]
    recorded(path, types=wrong)
    found, said, _ = read(path)
    assert not found
    assert len(said) == 12
    assert all("is not of its type" in line for line in said)


HEADERS = [
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
    b"{'descr': '|V1099511627776', 'fortran_order': False, 'shape': (1,)}",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"(" * 5000 + b"}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"-" * 50000 + b"1}",
    b"__import__('os')._exit(9)",
]


@pytest.mark.parametrize("header", HEADERS)
def test_no_header_takes_memory_or_runs_code(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile.rec"
    hostile = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header
    entry = np.array([(1, 1, 0, 0, 0)], ENTRY)
    with Writer(path) as writer:
        topic = writer.add_topic({"name": "t", "type": {"dtype": "<f8"}, "attributes": {}})
        at = path.stat().st_size
        np.lib.format.write_array(writer, entry)
        writer.write(hostile)
        writer._places += struct.pack("=QIIQ", at, topic, 1, 0)
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        found, said, _ = read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert not found
    assert len(said) == 1
    assert "no array begins at byte" in said[0]


def test_a_wrong_index_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "lying.rec"
    whole = recorded(path)
    begin = int.from_bytes(whole[-16:-8], "little")
    index = np.load(io.BytesIO(whole[begin:]))
    samples = np.flatnonzero(index["kind"] != 0)
    for field, value in (("topic", 77), ("kind", 2), ("when_ns", 1 << 63)):
        lying = index.copy()
        lying[field][samples[0]] = value
        with path.open("wb") as file:
            file.write(whole[:begin])
            np.save(file, lying)
            file.write(whole[-16:])
        reported_once(path, 11, "another one in the index")


@pytest.mark.parametrize(("damage", "samples"), [(0, 12), (-100, 11)])
def test_an_index_that_cannot_be_read_is_reported(
    damage: int, samples: int, tmp_path: Path
) -> None:
    """Also where the sample before it is damaged as well: its recorder was not killed."""
    path = tmp_path / "index.rec"
    whole = bytearray(recorded(path))
    begin = int.from_bytes(whole[-16:-8], "little")
    whole[begin] ^= 1
    whole[begin + damage] = 0
    path.write_bytes(whole)
    reported_once(path, samples, "the index, or its place at the end of the file, makes no sense")
    assert read(path)[2].unread == 0
    assert main(["ipc", "replay", str(path), "--speed", "0"]) == 1


def test_a_file_that_names_another_place_for_its_index_is_reported(tmp_path: Path) -> None:
    """The index itself is whole, and so are all samples before it."""
    path = tmp_path / "place.rec"
    whole = bytearray(recorded(path))
    begin = int.from_bytes(whole[-16:-8], "little")
    whole[-16:-8] = (begin + 8).to_bytes(8, "little")
    path.write_bytes(whole)
    reported_once(path, 12, f"at byte {begin:,}: the index, or its place at the end of the file")


def test_a_file_without_its_index_is_read_behind_damage(tmp_path: Path) -> None:
    path = tmp_path / "zeros.rec"
    whole = recorded(path)
    begin = int.from_bytes(whole[-16:-8], "little")
    at = whole.index(b"bytes1") - 300  # within the sample before
    path.write_bytes(whole[: at - 100] + bytes(100) + whole[at:begin])
    found, said, recording = read(path)
    assert recording.unread == 0
    assert len(said) == 1
    assert "bytes are left out" in said[0]
    assert 10 <= len(found) <= 11


def test_a_record_of_many_fields_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.rec"
    wide = np.dtype([(f"field_number_{n}", "f8") for n in range(600)])
    with ipc.Publisher(name, history=1) as pub:
        pub.send(np.ones(2, wide))
        assert main(["ipc", "record", str(path), name, "--count", "1"]) == 0
    found, said, _ = read(path)
    assert not said
    assert found[0].array.dtype == wide
    assert json.dumps(found[0].array.tolist()) == json.dumps([[1.0] * 600] * 2)
