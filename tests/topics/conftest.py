# SPDX-License-Identifier: Apache-2.0
"""Names and ends of topics."""

import uuid
from collections.abc import Iterator

import pytest

from shmnd import ipc


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex}"


@pytest.fixture
def pair(name: str) -> Iterator[tuple[ipc.Publisher, ipc.Subscriber]]:
    with ipc.Publisher(name, "f8") as pub, ipc.Subscriber(name, "f8") as sub:
        assert pub.subscribers == 1
        yield pub, sub
