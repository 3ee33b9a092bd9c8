# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the interface tests: a namespace of their own, ends, pairs, and a look at leaks."""

import os
import select
import shutil
import signal
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spi.harness import End, Pair
from spi.remote import Ends, RemoteDied, RemoteProcess, holdings

HERE = Path(__file__).parent
PASSED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every wait here is bounded by seconds, so a test that runs for a minute is stuck."""
    for item in items:
        if item.path.is_relative_to(HERE) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(60))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


def _stop_broker(directory: Path) -> None:
    """End the broker of a directory, whose process the kernel names at the other end."""
    for path in directory.rglob("broker.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            try:
                channel.connect(str(path))
            except OSError:  # it has left already
                continue
            credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid = struct.unpack("3i", credentials)[0]
        pidfd = os.pidfd_open(pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(pidfd, number)
                if select.select([pidfd], [], [], 5)[0]:
                    break
        finally:
            os.close(pidfd)


@pytest.fixture(scope="session")
def _own_namespace() -> Iterator[None]:
    """A broker that serves this run and nobody else, gone when the run is over."""
    directory = Path(tempfile.mkdtemp(prefix="shmnd-spi-"))
    patch = pytest.MonkeyPatch()
    patch.setenv("SHMND_RUNTIME_DIR", str(directory))
    patch.setenv("SHMND_NAMESPACE", f"spi-{os.getpid()}")
    try:
        yield
    finally:
        _stop_broker(directory)
        patch.undo()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def _remote_process(_own_namespace: None) -> Iterator[RemoteProcess]:
    remote = RemoteProcess()
    yield remote
    remote.kill()


def _names() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir() if "shmnd" in entry.name}


@pytest.fixture(autouse=True)
def nothing_left(
    request: pytest.FixtureRequest, _own_namespace: None, _remote_process: RemoteProcess
) -> Iterator[None]:
    """Everything is closed after each test; one that passed has left nothing behind either."""
    _remote_process.start()
    held, names = holdings(), _names()
    yield
    try:
        left_there = _remote_process.reset()
    except RemoteDied:
        left_there = {}
    if request.node.stash.get(PASSED, False):
        assert not left_there, f"held by the child: {left_there}"
        left_here = holdings() - held
        assert not left_here, f"held here: {dict(left_here)}"
        assert not _names() - names, "names in /dev/shm"


@pytest.fixture
def ends(nothing_left: None, _remote_process: RemoteProcess) -> Iterator[Ends]:
    maker = Ends(_remote_process)
    yield maker
    maker.close()


@pytest.fixture
def end(ends: Ends) -> End:
    """One end in this process, for what needs no peer."""
    return ends.here()


@pytest.fixture(params=["one", "two"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both ends in one process, or in two."""
    return str(request.param)


@pytest.fixture
def make_pair(ends: Ends, mode: str) -> Callable[..., Pair]:
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
def kill(_remote_process: RemoteProcess) -> Callable[[], int]:
    """End the child at once, as a crash would."""
    return _remote_process.kill
