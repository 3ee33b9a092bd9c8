# SPDX-License-Identifier: Apache-2.0
"""Objects with overlapped operations that the tests of them share."""

from collections.abc import Iterator

import pytest

from shmnd.overlapped import (
    Overlapped,
    OverlappedFile,
    OverlappedObject,
)
from shmnd.status import NdError, Status
from unit.fakes import FakeAdapter, World

SUCCESS, PENDING, CANCELED = Status.SUCCESS, Status.PENDING, Status.CANCELED


WAIT = 30.0


@pytest.fixture
def adapter(world: World) -> FakeAdapter:
    return world.adapter()


@pytest.fixture
def file(adapter: FakeAdapter) -> Iterator[OverlappedFile]:
    with OverlappedFile(adapter) as made:
        yield made


class Thing(OverlappedObject):
    """An object whose operations end when a test says so."""

    def __init__(self, adapter: FakeAdapter, file: OverlappedFile | None = None) -> None:
        super().__init__(adapter._engine, file)
        self.ends: Status | None = None
        self.raises: NdError | None = None
        self.looked = 0
        self.cancels = True

    def start(self, name: str = "Thing.start") -> Overlapped:
        return self._start(name)

    def start_stepping(self) -> Overlapped:
        return self._start("Thing.step", self._step, self._cancel, "the test")

    def _step(self) -> Status | None:
        self.looked += 1
        if self.raises is not None:
            raise self.raises
        return self.ends

    def _cancel(self, overlapped: Overlapped) -> bool:
        return self.cancels
