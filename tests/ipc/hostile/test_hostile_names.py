# SPDX-License-Identifier: Apache-2.0
"""False records at the broker: a name is blocked while their process lives."""

import os
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.naming import shared_name

INVENTED = {"fd": 3, "dev": 1, "ino": 1, "space": 4, "number": 7, "role": "member"}
MAKE: dict[str, Callable[[], Any]] = {
    "ipc.queue": lambda: ipc.Queue(4, name="blocked"),
    "ipc.service": lambda: ipc.Client("blocked"),
    "ipc.event": lambda: ipc.Notifier("blocked"),
}


@pytest.mark.parametrize("kind", MAKE)
def test_memory_in_a_pid_namespace_that_there_is_not(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_name, "_ENDING", 0.05)
    with shmnd.open_adapter() as adapter:
        record = Directory(adapter).announce(kind, "blocked", INVENTED)
        with pytest.raises(OSError, match=f"process {os.getpid()}, .* another PID namespace"):
            MAKE[kind]()
        record.close()
        MAKE[kind]().close()


def test_a_process_that_chooses_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_name, "_PATIENCE", 0.2)
    with shmnd.open_adapter() as adapter:
        record = Directory(adapter).announce("ipc.queue.door", "blocked", {"chooses": True})
        with pytest.raises(TimeoutError, match=f"process {os.getpid()} has been opening"):
            MAKE["ipc.queue"]()
        record.close()
        MAKE["ipc.queue"]().close()


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
