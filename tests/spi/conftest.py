# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the interface tests: ends, pairs, and the child process that holds one of them.

What every test must not leave behind in this process is checked for all tests one folder up; here
the same is asked of the child.
"""

import resource
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from spi import roles
from spi.harness import End, Options
from spi.pair import Pair
from spi.remote import Ends, RemoteDied, RemoteProcess

HERE: Final = Path(__file__).parent
PASSED: Final = pytest.StashKey[bool]()
GRACE: Final = 30.0
"""Seconds within which what the child gave up must be gone."""
REMOTE: Final = RemoteProcess()


ONE_IN: Final = 8
"""Of the tests with swapped ends so many times fewer are run, unless `-m swapped` asks for all."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what needs a pair with both ends in one process, in two, and in two the other way."""
    if "mode" in metafunc.fixturenames:
        here = metafunc.definition.get_closest_marker("active_end_here")
        swapped = [] if here else [pytest.param("swapped", marks=pytest.mark.swapped)]
        metafunc.parametrize("mode", ["one", "two", *swapped], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most tests with swapped ends."""
    if "swapped" not in config.getoption("markexpr"):
        dropped = [item for item in items if _is_left_out(item)]
        items[:] = [item for item in items if not _is_left_out(item)]
        config.hook.pytest_deselected(items=dropped)


def _is_left_out(item: pytest.Item) -> bool:
    swapped = item.get_closest_marker("swapped") is not None
    return swapped and zlib.crc32(item.nodeid.encode()) % ONE_IN != 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the child before the test begins, so that it does not count as left behind."""
    if item.path.is_relative_to(HERE):
        REMOTE.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


def pytest_sessionfinish() -> None:
    REMOTE.kill()


@pytest.fixture(autouse=True)
def _child_holds_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close all that the child opened; after a test that passed, nothing of it may be left."""
    yield
    try:
        left = REMOTE.reset()
    except RemoteDied:
        left = {}
    if request.node.stash.get(PASSED, False):
        deadline = time.monotonic() + GRACE
        while left and time.monotonic() < deadline:
            time.sleep(0.01)  # a long segment is unmapped in a thread
            left = REMOTE.reset()
        assert not left, f"held by the child: {left}"


@pytest.fixture
def ends(_child_holds_nothing: None) -> Iterator[Ends]:
    """Make ends and pairs, closed when the test is over."""
    maker = Ends(REMOTE)
    yield maker
    maker.close()


@pytest.fixture
def end(ends: Ends) -> End:
    """One end in this process, for what needs no peer."""
    return ends.here()


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> str:
    """Both ends in one process, or in two; see `Ends.pair`."""
    return str(request.param)


@pytest.fixture
def make_pair(ends: Ends, mode: str) -> Callable[..., Pair]:
    """Two ends that have not met, with options."""

    def make(**options: Any) -> Pair:
        return ends.pair(mode, **options)

    return make


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


@pytest.fixture
def impatient(make_pair: Callable[..., Pair]) -> Pair:
    """A connected pair whose Sends soon give up waiting for a Receive."""
    return make_pair(rnr_timeout=0.2).connect()


@pytest.fixture
def kill() -> Callable[[], int]:
    """End the child at once, as a crash would."""
    return REMOTE.kill


@pytest.fixture
def starving(_child_holds_nothing: None) -> Iterator[Callable[..., None]]:
    """An end in a process of its own, whose calls are made when nothing more is to be had.

    `starving(owner, call, *args)` makes the call with no memory left, and again with memory.
    """
    process = RemoteProcess()
    end = process.open(Options())
    for name in ("cq", "srq", "qp"):
        getattr(end, name)

    def call(owner: str, name: str, *args: Any, limit: int = resource.RLIMIT_AS) -> None:
        room = 1 << 18 if limit == resource.RLIMIT_AS else 0
        method = getattr(getattr(end, owner), name)
        try:
            end.run(roles.call_under, limit, room, owner, name, *args)
        finally:
            method(*args)

    yield call
    process.kill()
