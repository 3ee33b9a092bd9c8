# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: a broker of their own, and nothing left behind."""

import contextlib
import faulthandler
import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

from census import census, described
from shmnd.broker.access import Access
from shmnd.broker.observer import visit
from shmnd.broker.place import Place
from shmnd.status import NdError

pytest_plugins = ["pytester"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts its background commands so, and their processes inherit it:
    # the tests of Ctrl-C would wait for what never comes.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# With it a print is two writes, between which another rank of a job may write to the same pipe.
os.environ.pop("PYTHONUNBUFFERED", None)

# Within an allocation of several hosts, the launcher would hand every job over.
for _name in [*os.environ]:
    if _name.startswith(("SLURM", "PBS_", "LSB_", "PE_")):
        del os.environ[_name]

GRACE: Final = 30.0
"""Seconds that a test's leftovers may take to go (a process that is ending, a collected cycle)."""

# How long an example takes says nothing on a machine that others use too.
hypothesis.settings.register_profile("shmnd", deadline=None, print_blob=True)
hypothesis.settings.load_profile("shmnd")

_FAILED: Final = pytest.StashKey[bool]()


# -- a broker of their own ------------------------------------------------------------------------


def _stop_broker(folder: Path) -> None:
    """End the process that serves there, if there is one, and wait until it is gone."""
    with contextlib.suppress(NdError, OSError), visit(Place(folder, Access())) as observer:
        if observer is not None and observer.pid not in (0, os.getpid()):
            observer.end()


@pytest.fixture(scope="session", autouse=True)
def runtime_dir() -> Iterator[Path]:
    """Keep the tests away from the user's broker, and end the tests' own ones at the end."""
    # Short, because the path of a Unix socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="shmnd-test-"))
    patch = pytest.MonkeyPatch()
    patch.setenv("SHMND_RUNTIME_DIR", str(folder))
    patch.delenv("SHMND_NAMESPACE", raising=False)
    yield folder
    patch.undo()
    for path, _, names in os.walk(folder):  # one that is about to leave removes its directory
        if "broker.sock" in names:
            _stop_broker(Path(path))
    shutil.rmtree(folder, ignore_errors=True)


# -- nothing left behind --------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long run takes what time it was given."""
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Nor is it stuck when `faulthandler_timeout` has passed."""
    if item.get_closest_marker("soak"):
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_finish() -> None:
    """What the collection made stays: a look for cycles after a test need not go through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Leave cycles alone in a test that makes objects until there is no room for more.

    Each collection would visit all of them, which takes longer than making them.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves shared memory, descriptors, processes or mappings behind.

    Fixtures of a wider scope are set up before this one, so what they hold is not counted. After
    a failure nothing is checked: the traceback itself keeps the test's objects alive.
    """
    before = census()
    yield
    held = getattr(request.node, "funcargs", None)  # None where the run was interrupted
    if held:
        held.clear()  # pytest holds what the fixtures gave the test
    if request.node.stash.get(_FAILED, False):
        return
    deadline, pause = None, 0.0
    left = census() - before
    while left:
        if deadline is not None and time.monotonic() > deadline:
            said = sorted(map(described, left))
            pytest.fail("left behind:\n  " + "\n  ".join(said), pytrace=False)
        time.sleep(pause)
        gc.collect()  # takes its time after a test that made very much
        deadline, pause = deadline or time.monotonic() + GRACE, 0.01
        left &= census()  # others come and go: they belong to tests that run now, too
