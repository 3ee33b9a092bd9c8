# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: a broker of their own, and nothing left behind."""

import contextlib
import faulthandler
import gc
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

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

GRACE: Final = 30.0
"""Seconds that a test's leftovers may take to go (a process that is ending, a collected cycle)."""

# How long an example takes says nothing on a machine that others use too.
hypothesis.settings.register_profile("shmnd", deadline=None, print_blob=True)
hypothesis.settings.load_profile("shmnd")

_FAILED: Final = pytest.StashKey[bool]()
_SHM: Final = Path("/dev/shm")
_ANOTHER_RUN: Final = re.compile(rf"shmnd-test-(?!{os.getpid()}-)\d+-")
_MAPPED: Final = re.compile(r"^(\S+) .* ((?:/dev/shm/|/memfd:)\S*shmnd.*)$")


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


def _shared_memory() -> set[str]:
    """Names in /dev/shm that are ours; other programs of this machine may come and go.

    So may those of a concurrent test run, whose names carry the number of its process.
    """
    return {
        f"/dev/shm/{path.name}"
        for path in _SHM.iterdir()
        if "shmnd" in path.name and _ANOTHER_RUN.match(path.name) is None
    }


def _descriptors() -> set[str]:
    """Open descriptors with what they lead to, without those of Python's own helpers."""
    found = set()
    helpers = {
        resource_tracker._resource_tracker._fd,  # type: ignore[attr-defined]
        forkserver._forkserver._forkserver_alive_fd,  # type: ignore[attr-defined]
    }
    for entry in Path("/proc/self/fd").iterdir():
        if int(entry.name) in helpers:
            continue
        try:
            found.add(f"descriptor {entry.name} -> {entry.readlink()}")
        except FileNotFoundError:  # the one that lists the folder
            continue
    return found


def _below(pid: int) -> Iterator[int]:
    """Processes below one: of each of its threads those that the kernel lists as its children."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:  # it has ended meanwhile
        return
    for thread in threads:
        try:
            listed = (thread / "children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, listed.split()):
            yield child
            yield from _below(child)


def _children() -> set[str]:
    """Processes below this one, without Python's own helpers."""
    helpers = {
        resource_tracker._resource_tracker._pid,  # type: ignore[attr-defined]
        forkserver._forkserver._forkserver_pid,  # type: ignore[attr-defined]
    }
    found = set()
    for pid in _below(os.getpid()):
        if pid in helpers:
            continue
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Named by pid and start time, since a pid may come back. The start is counted from that of
        # the machine: a time of day changes when its clock is set.
        # Its name would not do: that changes when it executes a program.
        found.add(f"process {pid} of {stat.rpartition(')')[2].split()[19]}")
    return found


def _described(what: str) -> str:
    """Return a part of the census with the present name of a process."""
    kind, _, rest = what.partition(" ")
    if kind != "process":
        return what
    pid, _, start = rest.partition(" ")
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        name = "which has just ended"
    return f"process {pid} {name} {start}"


def _mappings() -> set[str]:
    """Ranges of this process that map shared memory of ours."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ours = (line for line in lines if "shmnd" in line)  # the expression takes long for each
    return {f"mapping {m[1]} of {m[2]}" for m in map(_MAPPED.match, ours) if m}


_LOOKS: Final[tuple[Callable[[], set[str]], ...]] = (
    _shared_memory,
    _descriptors,
    _children,
    _mappings,
)


def _census() -> set[str]:
    return set[str]().union(*(look() for look in _LOOKS))


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
    before = _census()
    yield
    getattr(request.node, "funcargs", {}).clear()  # pytest holds what the fixtures gave the test
    if request.node.stash.get(_FAILED, False):
        return
    deadline, pause = None, 0.0
    left = _census() - before
    while left:
        if deadline is not None and time.monotonic() > deadline:
            said = sorted(map(_described, left))
            pytest.fail("left behind:\n  " + "\n  ".join(said), pytrace=False)
        time.sleep(pause)
        gc.collect()  # takes its time after a test that made very much
        deadline, pause = deadline or time.monotonic() + GRACE, 0.01
        left &= _census()  # others come and go: they belong to tests that run now, too
