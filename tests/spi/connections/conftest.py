# SPDX-License-Identifier: Apache-2.0
"""What tests of connections share."""

import gc
from collections.abc import Iterator

import pytest

import shmnd


@pytest.fixture
def adapters() -> Iterator[tuple[shmnd.Adapter, shmnd.Adapter]]:
    """Two adapters, for a test whose handler of a signal raises."""
    gc.disable()  # what the handler raises in a finaliser reaches no caller
    with shmnd.open_adapter() as active, shmnd.open_adapter() as passive:
        yield active, passive
    gc.enable()
