# SPDX-License-Identifier: Apache-2.0
"""Fixtures of more than one file: a broker in a thread, and a world without shared memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shmnd.broker.place import Place, place_of
from shmnd.broker.service.server import Server
from unit.broker.wire import serving
from unit.fakes import World
from unit.sides import Sides


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place at which no other test looks for a broker."""
    return place_of("test", str(tmp_path))


@pytest.fixture
def broker(place: Place) -> Iterator[Server]:
    """A broker at that place."""
    with serving(place) as server:
        yield server


@pytest.fixture(params=["called", "asked"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Adapters of several processes, and a broker, that are pretended."""
    made = World()
    made.broker.room_to_ask = request.param == "asked"
    yield made
    made.close()


@pytest.fixture
def sides(world: World) -> Iterator[Sides]:
    """Two ends of that world that are about to meet."""
    made = Sides(world)
    yield made
    vars(made).clear()  # pytest holds the object until everything is torn down
