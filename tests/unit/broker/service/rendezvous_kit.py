# SPDX-License-Identifier: Apache-2.0
"""The broker without sockets that the tests of its requests share."""

import pytest

from unit.broker.world import World


@pytest.fixture
def world() -> World:
    return World()
