# SPDX-License-Identifier: Apache-2.0
"""An adapter for the tests of what every room uses."""

from collections.abc import Iterator

import pytest

import shmnd


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as made:
        yield made
