# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of rendezvouss."""

import pytest

from unit.broker.world import World


@pytest.fixture
def world() -> World:
    return World()
