# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises at each place of a call that opens memory with a name."""

import atexit
import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import posix_ipc
import pytest

import shmnd
from census import open_files
from interrupting import Alarm, interrupted, interrupted_where
from shmnd.broker.leftovers import RECORD
from shmnd.runtime.named_memory import NamedMemory, forget_all

SHM: Final = Path("/dev/shm")
MODULES: Final = (
    "shmnd.adapter", "shmnd.broker.leftovers", "shmnd.runtime.adapter_memory",
    "shmnd.runtime.named_memory", "shmnd.ring.shared_memory", "shmnd.common",
)  # fmt: skip


def is_place(frame: FrameType, event: str) -> bool:
    """Return whether a handler may raise here: where a function begins, or has returned."""
    module = str(frame.f_globals.get("__name__"))
    return event in ("call", "return", "c_return") and module.startswith(MODULES)


def held(adapter: shmnd.Adapter) -> tuple[list[str], list[str]]:
    """Return the files that this process has open, and the records of its names."""
    gc.collect()
    records = sorted(adapter._memory._place.directory.glob(f"{RECORD}*"))
    return open_files(), [str(each) for each in records]


def at_each_place(adapter: shmnd.Adapter, call: Callable[[], Any]) -> int:
    """Interrupt a call at each place, and compare the holdings; return the number of places."""
    call()
    before = held(adapter)
    for number in itertools.count():
        if not interrupted_where(number, call, is_place, Alarm):
            break
        assert held(adapter) == before, number
    return number


def test_memory_with_a_new_name(
    name: str, adapter: shmnd.Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An exception in the finaliser is reported, and pytest would keep the report, and the memory.
    monkeypatch.setattr(sys, "unraisablehook", bool)

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


@pytest.mark.parametrize("how", ["array", "adapter"])
def test_a_name_ends_with_its_array_or_its_adapter(
    how: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)
    for at in itertools.count():
        adapter = shmnd.open_adapter()
        records = adapter._memory._place.directory
        made = [adapter.allocate(4096, name=name)]
        assert (SHM / name[1:]).exists()
        assert list(records.glob(f"{RECORD}*"))
        end: Callable[[], None] = made.clear if how == "array" else adapter._memory.remove_names
        came = interrupted(at, end, lambda path: not path.endswith("interrupting.py"), Alarm)
        if how == "adapter" and came:
            adapter._memory.remove_names()  # as a close that is continued does
        assert not (SHM / name[1:]).exists(), f"interrupted at {at}"
        assert not list(records.glob(f"{RECORD}*"))
        made.clear()
        adapter.close()
        if not came:
            break
        gc.collect()
    assert at > 3


@pytest.mark.parametrize("how", ["exit", "adapter"])
@pytest.mark.parametrize("kind", [Alarm, OSError])
def test_all_names_end_whatever_the_end_of_one_raises(
    how: str,
    kind: type[BaseException],
    name: str,
    adapter: shmnd.Adapter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"{name}.{number}" for number in range(3)]
    arrays = [adapter.allocate(4096, name=each) for each in names]
    usual, calls = NamedMemory.forget, []

    def forget(self: NamedMemory) -> None:
        calls.append(self.name)
        if len(calls) == 1:
            raise kind
        usual(self)

    monkeypatch.setattr(NamedMemory, "forget", forget)
    memory = adapter._memory
    end = partial(forget_all, memory._names.snapshot()) if how == "exit" else memory.remove_names
    with pytest.raises(kind):
        end()
    left = [each for each in names if (SHM / each[1:]).exists()]
    assert left == ([] if kind is Alarm else calls[:1])
    assert len(calls) == (4 if kind is Alarm else 3)
    monkeypatch.undo()
    del arrays


def test_a_name_that_a_child_made_ends_with_the_child(name: str, adapter: shmnd.Adapter) -> None:
    """Also where the child has forgotten what its parent registered, as one of multiprocessing."""
    assert adapter.allocate(4096, name=name).nbytes == 4096  # and is removed
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            atexit._clear()
            other = shmnd.open_adapter()
            array = other.allocate(4096, name=name)
            made = (SHM / name[1:]).exists()
            atexit._run_exitfuncs()
            os._exit(0 if made and array.nbytes else 3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not (SHM / name[1:]).exists()
