# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of version 1."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nd1.ends import End, Pair


@pytest.fixture
def make_end() -> Iterator[Callable[..., End]]:
    """Ends, closed when the test is over."""
    made: list[End] = []

    def make(**options: Any) -> End:
        made.append(End(**options))
        return made[-1]

    yield make
    while made:
        made.pop().dispose()


@pytest.fixture
def end(make_end: Callable[..., End]) -> End:
    """One end, for what needs no peer."""
    return make_end()


@pytest.fixture
def make_pair(make_end: Callable[..., End]) -> Iterator[Callable[..., Pair]]:
    """Two ends that have not met."""
    made: list[Pair] = []

    def make(**options: Any) -> Pair:
        made.append(Pair(make_end(**options), make_end(**options)))
        return made[-1]

    yield make
    for pair in made:
        pair.connecting = pair.accepting = None


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    """Two ends that have not met."""
    return make_pair()


@pytest.fixture
def connected(make_pair: Callable[..., Pair]) -> Pair:
    """Two ends that are connected."""
    return make_pair().connect()


@pytest.fixture
def patient(make_pair: Callable[..., Pair]) -> Pair:
    """A connected pair whose Sends wait for a Receive as long as any test lasts."""
    return make_pair(rnr_timeout=120.0).connect()
