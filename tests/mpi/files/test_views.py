# SPDX-License-Identifier: Apache-2.0
"""Views of files: random types and offsets against a model that counts bytes one by one."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shmnd.mpi import MPI

ETYPES: Final = {1: MPI.BYTE, 2: MPI.SHORT, 4: MPI.INT, 8: MPI.DOUBLE}
RDWR: Final = MPI.MODE_RDWR | MPI.MODE_CREATE


class Model:
    """A file as bytes, and where the data bytes of a view lie in it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.content = bytearray()
        self.position = 0

    def draw_view(self) -> tuple[int, Any, Any]:
        """Draw a displacement, an etype and a filetype that covers no byte twice."""
        self.size = self.chance.choice(list(ETYPES))
        self.start = self.chance.randrange(50)
        at, lengths, places = 0, [], []
        for _ in range(self.chance.randrange(1, 5)):
            at += self.chance.randrange(20)
            lengths.append(self.chance.randrange(1, 4) * self.size)
            places.append(at)
            at += lengths[-1]
        self.extent = at + self.chance.randrange(20)
        self.item = [at + k for at, n in zip(places, lengths, strict=True) for k in range(n)]
        blocks = MPI.BYTE.Create_hindexed(lengths, places)
        filetype = blocks.Create_resized(0, self.extent).Commit()
        blocks.Free()
        self.position = 0
        return self.start, ETYPES[self.size], filetype

    def place(self, byte: int) -> int:
        item, within = divmod(byte, len(self.item))
        return self.start + item * self.extent + self.item[within]

    def write(self, offset: int, data: bytes) -> None:
        for k, value in enumerate(data):
            place = self.place(offset * self.size + k)
            if place >= len(self.content):
                self.content.extend(bytes(place + 1 - len(self.content)))
            self.content[place] = value

    def read(self, offset: int, nbytes: int) -> bytes:
        places = [self.place(offset * self.size + k) for k in range(nbytes)]
        return bytes(self.content[place] for place in places if place < len(self.content))

    def end(self) -> int:
        """Return how many etypes begin before the end of the file."""
        bytes_before = 0
        while self.place(bytes_before) < len(self.content):
            bytes_before += 1
        return -(-bytes_before // self.size)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Any]:
    opened = MPI.File.Open(MPI.COMM_SELF, tmp_path / "file", RDWR)
    yield opened
    opened.Close()


def step(file: Any, model: Model) -> None:
    """Do one thing with the file and with the model, and compare."""
    chance = model.chance
    etypes = chance.randrange(20)
    offset = chance.randrange(40)
    data = chance.randbytes(etypes * model.size)
    got = bytearray(b"?" * len(data))
    status = MPI.Status()
    kind = chance.randrange(7)
    if kind == 0:
        file.Write_at(offset, data, status)
        model.write(offset, data)
        assert status.Get_count(MPI.BYTE) == len(data)
    elif kind == 1:
        request = file.Iwrite(data)
        request.Wait(status)
        model.write(model.position, data)
        model.position += etypes
        assert status.Get_elements(MPI.BYTE) == len(data)
    elif kind in (2, 3):
        if kind == 2:
            file.Read_at(offset, got, status)
        else:
            offset = model.position
            file.Read(got, status)
        expected = model.read(offset, len(data))
        if kind == 3:
            model.position += len(expected) // model.size
        assert status.count == len(expected)
        assert got == expected + b"?" * (len(data) - len(expected))
    elif kind == 4:
        whence = chance.choice([MPI.SEEK_SET, MPI.SEEK_CUR, MPI.SEEK_END])
        origin = {MPI.SEEK_SET: 0, MPI.SEEK_CUR: model.position, MPI.SEEK_END: model.end()}[whence]
        by = chance.randrange(-origin, 20)
        file.Seek(by, whence)
        model.position = origin + by
    elif kind == 5:
        size = chance.randrange(400)
        file.Set_size(size)
        del model.content[size:]
        model.content.extend(bytes(size - len(model.content)))
    else:
        assert file.Get_byte_offset(offset) == model.place(offset * model.size)
    assert file.Get_position() == model.position
    assert file.Get_size() == len(model.content)


@pytest.mark.parametrize("seed", range(40))
def test_random_views_agree_with_the_model(file: Any, seed: int, tmp_path: Path) -> None:
    model = Model(random.Random(seed))
    for _ in range(5):
        displacement, etype, filetype = model.draw_view()
        file.Set_view(displacement, etype, filetype)
        assert file.Get_view() == (displacement, etype, filetype, "native")
        filetype.Free()
        for _ in range(25):
            step(file, model)
        assert (tmp_path / "file").read_bytes() == model.content


def test_types_in_memory_have_gaps_too(file: Any) -> None:
    column = MPI.DOUBLE.Create_vector(10, 1, 4).Commit()
    table = np.arange(40.0).reshape(10, 4)
    file.Set_view(8, MPI.DOUBLE, MPI.DOUBLE.Create_resized(0, 24).Commit())
    file.Write([table, 1, column])
    other = np.zeros((10, 4))
    status = MPI.Status()
    file.Read_at(0, [other, 1, column], status)
    assert status.Get_count(column) == 1
    assert (other[:, 0] == table[:, 0]).all()
    assert not other[:, 1:].any()
    assert file.Get_size() == 8 + 9 * 24 + 8


def test_an_end_within_an_item_cuts_a_read_there(file: Any) -> None:
    file.Write(np.arange(5, dtype="i4"))
    file.Set_size(18)
    file.Set_view(0, MPI.INT)
    got = np.full(8, -1, "i4")
    status = MPI.Status()
    file.Read(got, status)
    assert status.count == 18
    assert status.Get_count(MPI.INT) == MPI.UNDEFINED
    assert got[:4].tolist() == [0, 1, 2, 3]
    assert (file.Get_position(), got[5:].tolist()) == (4, [-1, -1, -1])
    file.Seek(0, MPI.SEEK_END)
    assert file.Get_position() == 5  # appending destroys no part of an item


def test_a_file_of_more_than_2_gib_has_its_ends(file: Any) -> None:
    file.Set_view(0, MPI.DOUBLE, MPI.DOUBLE.Create_resized(0, 1 << 20).Commit())
    file.Write_at(5000, np.array([3.5]))
    assert file.Get_byte_offset(5000) == 5000 << 20
    assert file.Get_size() == (5000 << 20) + 8
    got = np.zeros(2)
    file.Read_at(4999, got)
    assert got.tolist() == [0.0, 3.5]


def test_the_bytes_of_a_file_equal_memory(file: Any, tmp_path: Path) -> None:
    values = np.arange(1000, dtype=">f4").view("u1")
    file.Write(values)
    assert (np.fromfile(tmp_path / "file", "u1") == values).all()


@pytest.mark.parametrize("kind", ["ufs", "nfs", "xfs", "lustre", "gpfs", "panfs"])
@pytest.mark.parametrize("as_given", [str, Path, os.fsencode])
def test_the_name_of_a_file_system_in_front_of_a_path_is_left_out(
    kind: str, as_given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ROMIO does; other names with a colon are those of files."""
    monkeypatch.chdir(tmp_path)
    for name, path in ((f"{kind}:x", "x"), (f"./{kind}:x", f"{kind}:x"), ("a:x", "a:x")):
        if as_given is Path and name.startswith("."):
            continue  # Path("./x") is Path("x")
        opened = MPI.File.Open(MPI.COMM_SELF, as_given(name), MPI.MODE_CREATE | MPI.MODE_RDWR)
        opened.Close()
        assert [each.name for each in tmp_path.iterdir()] == [path]
        MPI.File.Delete(as_given(name))
        assert not list(tmp_path.iterdir())
