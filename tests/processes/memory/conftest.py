# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files of this folder use."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmnd


@pytest.fixture
def name() -> Iterator[str]:
    """A name for shared memory, which is gone after the test."""
    made = f"/shmnd-test-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    yield made
    Path("/dev/shm", made[1:]).unlink(missing_ok=True)


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as made:
        yield made
