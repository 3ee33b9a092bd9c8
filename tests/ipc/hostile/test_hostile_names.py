# SPDX-License-Identifier: Apache-2.0
"""False records at the broker and on cards: which of them hold a name while their process lives."""

import errno
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.common import processes
from shmnd.ipc.naming import cards, shared_name
from shmnd.ipc.naming.cards import Card, label_of
from shmnd.status import NdMemoryError

PATIENCE = 60.0

INVENTED = {"fd": 3, "dev": 1, "ino": 1, "space": 4, "number": 7, "role": "member"}
MAKE: dict[str, Callable[[], Any]] = {
    "ipc.queue": lambda: ipc.Queue(4, name="blocked"),
    "ipc.service": lambda: ipc.Client("blocked"),
    "ipc.event": lambda: ipc.Notifier("blocked"),
    "ipc.blackboard": lambda: ipc.Blackboard("blocked", {"x": "f8"}),
}


def invented(kind: str) -> dict[str, Any]:
    """Return a record of a process in a PID namespace that there is not."""
    if kind != "ipc.blackboard":
        return INVENTED
    return INVENTED | {"role": "writer", "room_fd": 4, "room_dev": 1, "room_ino": 1}


@pytest.mark.parametrize("kind", MAKE)
def test_memory_in_a_pid_namespace_that_there_is_not(kind: str) -> None:
    """The broker has the number of its process from the kernel, and that is another one."""
    with shmnd.open_adapter() as adapter:
        record = Directory(adapter).announce(kind, "blocked", invented(kind))
        MAKE[kind]().close()
        record.close()


def test_a_topic_with_a_record_of_no_publisher() -> None:
    with shmnd.open_adapter() as adapter:
        records = [
            Directory(adapter).announce("ipc.topic", "blocked", INVENTED),
            Directory(adapter).announce("ipc.seat", adapter.uid, INVENTED | {"topic": "blocked"}),
        ]
        with ipc.Publisher("blocked", "u1") as pub, ipc.Subscriber("blocked", "u1") as sub:
            pub.send([7])
            assert sub.receive(PATIENCE).value == 7
        for each in records:
            each.close()


@pytest.mark.parametrize("kind", MAKE)
def test_a_card_of_memory_in_a_pid_namespace_that_there_is_not(kind: str) -> None:
    """The broker does not have its record; /proc shows whose card it is."""
    with shmnd.open_adapter() as adapter:
        place = adapter._engine.place
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        card = Card(label_of(place, kind, "blocked"), invented(kind))
        os.write(done, b"!")
        time.sleep(PATIENCE)
        del card
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"!"
        cards._read.clear()
        MAKE[kind]().close()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(done)


@pytest.mark.parametrize("kind", MAKE)
def test_memory_of_a_process_that_may_be_hidden(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the number of its process is not from the kernel, or of another PID namespace."""
    monkeypatch.setattr(shared_name, "_ENDING", 0.05)
    monkeypatch.setattr(processes, "proc_space", lambda: 1)
    text = f"process {os.getpid()}"
    with shmnd.open_adapter() as adapter:
        record = Directory(adapter).announce(kind, "blocked", invented(kind))
        with pytest.raises(OSError, match=text):
            MAKE[kind]()
        record.close()
        MAKE[kind]().close()


def test_the_kernel_shows_the_owner_of_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    own, here = processes.own_process(), processes.proc_space()
    pid = os.getpid()
    assert here == own.space
    assert not processes.is_another(own, pid, here)
    assert processes.is_another(own._replace(space=4), pid, here)
    assert processes.is_another(own._replace(number=pid + 1), pid, here)
    assert processes.is_another(own, (1 << 22) + 1, here)
    # To a process in a container, /proc may not show its own namespace.
    assert not processes.is_another(own._replace(space=0), pid, here)
    # The number is of another PID namespace, or the process itself has said it.
    assert not processes.is_another(own._replace(space=4), pid, here + 1)
    assert not processes.is_another(own._replace(space=4), pid, 0)

    def denied(entry: str) -> int:
        raise PermissionError(errno.EACCES, "of another user")

    monkeypatch.setattr(processes, "_space_of", denied)
    assert processes.is_another(own._replace(number=pid + 1), pid, here)
    assert not processes.is_another(own._replace(space=4), pid, here)

    def hidden(entry: str) -> int:
        raise FileNotFoundError(errno.ENOENT, "hidepid")

    monkeypatch.setattr(processes, "_number_of", hidden)
    assert not processes.is_another(own._replace(space=4), pid, here)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_a_failure_to_see_others_is_a_shortage_only_if_it_is_one(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any) -> bool:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(shared_name, "is_another", fails)
    expected = {errno.EMFILE: NdMemoryError, errno.EACCES: PermissionError}[number]
    with shmnd.open_adapter() as adapter:
        by = {"process": processes.own_process()._asdict()}
        with (
            Directory(adapter).announce("ipc.queue.door", "blocked", {"chooses": True} | by),
            pytest.raises(expected),
        ):
            MAKE["ipc.queue"]()


def test_a_process_that_chooses_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_name, "_PATIENCE", 0.2)
    with shmnd.open_adapter() as adapter:
        by = {"process": processes.own_process()._asdict()}
        record = Directory(adapter).announce("ipc.queue.door", "blocked", {"chooses": True} | by)
        with pytest.raises(TimeoutError, match=f"process {os.getpid()} has been opening"):
            MAKE["ipc.queue"]()
        record.close()
        MAKE["ipc.queue"]().close()


@pytest.mark.parametrize(
    "process",
    [None, 5, {}, {"space": 4, "number": 1}, processes.Process(0, os.getppid())._asdict()],
    ids=repr,
)
def test_a_process_that_there_is_not_opens_no_name(process: Any) -> None:
    with shmnd.open_adapter() as adapter:
        directory, door = Directory(adapter), "ipc.queue.door"
        with (
            directory.announce(door, "blocked", {"chooses": True, "process": process}),
            directory.announce(door, "blocked", {"number": 0, "process": process}),
        ):
            MAKE["ipc.queue"]().close()


@pytest.mark.parametrize("kind", MAKE)
def test_a_process_that_is_out_of_descriptors_takes_no_other_for_hidden(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would say that the other one is in another PID namespace."""

    def out_of_descriptors(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with shmnd.open_adapter() as adapter:
        record = Directory(adapter).announce(kind, "blocked", invented(kind))
        monkeypatch.setattr(processes, "_number_of", out_of_descriptors)
        with pytest.raises(MemoryError, match="no descriptor was free"):
            MAKE[kind]()
        monkeypatch.undo()
        record.close()
        MAKE[kind]().close()


@pytest.mark.parametrize(
    "record",
    [
        {},
        INVENTED | {"space": "x"},
        INVENTED | {"number": None},
        INVENTED | {"space": 0, "number": 1 << 70},
        INVENTED | {"space": 0, "number": -1},
        INVENTED | {"space": 0, "fd": "x"},
        INVENTED | {"space": 0, "number": os.getpid(), "fd": -5},
        INVENTED | {"space": 0, "number": os.getpid(), "fd": 1 << 80, "dev": None},
    ],
)
@pytest.mark.parametrize("kind", MAKE)
def test_a_record_of_no_memory_blocks_nothing(kind: str, record: dict[str, Any]) -> None:
    with shmnd.open_adapter() as adapter:
        announced = Directory(adapter).announce(kind, "blocked", record)
        MAKE[kind]().close()
        announced.close()
