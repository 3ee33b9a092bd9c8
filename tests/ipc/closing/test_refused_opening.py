# SPDX-License-Identifier: Apache-2.0
"""A constructor that raises keeps no descriptor, also while a program keeps the exception."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.blackboard.keys import TABLE
from shmnd.ipc.common.processes import own_process
from shmnd.ipc.naming.shared_name import identity

OPENED: dict[str, Callable[[], Any]] = {
    "Publisher": lambda: ipc.Publisher("name", "f8"),
    "Subscriber": lambda: ipc.Subscriber("name", "f8"),
    "Server": lambda: ipc.Server("name", "f8"),
    "Client": lambda: ipc.Client("name", "f8"),
    "Blackboard": lambda: ipc.Blackboard("other", {"key": object}),
    "BlackboardReader": lambda: ipc.BlackboardReader("name"),
    "WaitSet": lambda: ipc.WaitSet(ipc.Publisher),
}


@pytest.fixture
def there() -> Iterator[None]:
    """Have a topic and a service of another type, and a record of no blackboard."""
    fd = os.memfd_create("no blackboard")
    with (
        shmnd.open_adapter() as adapter,
        ipc.Publisher("name", "f4"),
        ipc.Server("name", "f4"),
    ):
        words = identity("", fd) | identity(TABLE, fd) | own_process()._asdict()
        record = Directory(adapter).announce("ipc.blackboard", "name", words | {"role": "writer"})
        yield
        record.close()
    os.close(fd)


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("name", OPENED)
def test_a_constructor_that_raises_keeps_no_descriptor(name: str) -> None:
    kept, counts = [], []
    for _ in range(4):
        with pytest.raises((TypeError, OSError, shmnd.NdError)) as caught:
            OPENED[name]()
        kept.append(caught.value)
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[1:] == counts[1:2] * 3


def test_objects_of_a_wait_set_that_was_not_made_close() -> None:
    sub, queue = ipc.Subscriber("name"), ipc.Queue()
    with pytest.raises(TypeError, match="has no fileno") as caught:
        ipc.WaitSet(sub, queue, ipc.Publisher)
    sub.close()
    queue.close()
    assert sub.closed
    assert caught.value
