# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises at each place of a call that opens memory with a name."""

import gc
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import posix_ipc
import pytest

import shmnd
from shmnd.broker.leftovers import RECORD

SHM: Final = Path("/dev/shm")
ROOMS: Final = (
    "shmnd.adapter", "shmnd.broker.leftovers", "shmnd.runtime.adapter_memory",
    "shmnd.runtime.named_memory", "shmnd.ring.shared_memory", "shmnd.common",
)  # fmt: skip


class Interrupted(BaseException):
    """What the handler raises."""


class Handler:
    """Raises at the n-th place where the interpreter may run the handler of a signal."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        module = str(frame.f_globals.get("__name__"))
        if event in ("call", "return", "c_return") and module.startswith(ROOMS):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise Interrupted

    def interrupts(self, call: Callable[[], Any]) -> bool:
        """Return False when the call was over before; what it returned is dropped."""
        sys.setprofile(self)
        try:
            call()
        except Interrupted:
            return True
        finally:
            sys.setprofile(None)
        return False


@pytest.fixture
def name() -> Iterator[str]:
    made = f"/shmnd-test-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    yield made
    (SHM / made[1:]).unlink(missing_ok=True)


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as made:
        yield made


def held(adapter: shmnd.Adapter) -> tuple[list[str], list[str]]:
    """Return the files that this process has open, and the records of its names."""
    gc.collect()
    files = []
    for number in Path("/proc/self/fd").iterdir():
        try:
            files.append(str(number.readlink()))
        except FileNotFoundError:
            pass  # that of the listing
    records = sorted(adapter._memory._place.directory.glob(f"{RECORD}*"))
    return sorted(files), [str(each) for each in records]


def at_each_place(adapter: shmnd.Adapter, call: Callable[[], Any]) -> int:
    """Interrupt a call at each place, and compare the holdings; return the number of places."""
    call()
    before = held(adapter)
    number = 1
    while Handler(number).interrupts(call):
        assert held(adapter) == before, number
        number += 1
    return number


def test_memory_with_a_new_name(name: str, adapter: shmnd.Adapter) -> None:
    def allocate() -> None:
        array = adapter.allocate(4096, name=name)
        del array
        assert not (SHM / name[1:]).exists()

    assert at_each_place(adapter, allocate) > 50
    assert not (SHM / name[1:]).exists()
    assert adapter.allocate(4096, name=name).nbytes == 4096


@pytest.mark.parametrize("what", ["segment", "name", "path", "descriptor"])
def test_attached_memory(what: str, name: str, adapter: shmnd.Adapter) -> None:
    made = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, size=4096)
    segment = {
        "segment": made,
        "name": name,
        "path": str(SHM / name[1:]),
        "descriptor": made.fd,
    }[what]
    try:
        assert at_each_place(adapter, lambda: adapter.attach(segment)) > 15
    finally:
        made.close_fd()
