# SPDX-License-Identifier: Apache-2.0
"""Starts of a broker that are killed, or that other threads fork in the midst of."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes.kit import end_broker
from shmnd.broker import spawn
from shmnd.broker.place import Place, place_of
from shmnd.status import NdError, Status
from unit.broker.wire import PATIENCE

pytestmark = pytest.mark.slow

FIRST = """
import os, sys
try:
    open({once!r}, "x").close()
except FileExistsError:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""
KILLED_ITSELF = "os.kill(os.getpid(), {signal:d})"
KILLED_CHILD = """
sys.argv[1:4] = []  # -I -S __main__.py
sys.path.insert(0, {root!r})
from shmnd.broker.__main__ import main
from shmnd.common import steps
def reached(name):
    if name == {at!r}:
        os.kill(os.getpid(), 9)
steps.reached = reached
sys.exit(main())
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = place_of("test", str(tmp_path))
    yield place
    end_broker(place)


class Programs:
    """Programs in the place of the interpreter that runs a broker."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = patch

    def take(self, program: str, *, first: bool = False, **values: object) -> None:
        """Run a program instead, each time or the first time."""
        path = self._folder / "python"
        head = FIRST if first else "import os, sys\n"
        program = (head + program).format(
            once=str(self._folder / "once"), python=sys.executable, **values
        )
        path.write_text(f"#!{sys.executable}\n{program}\n")
        path.chmod(0o755)
        self._patch.setattr(sys, "executable", str(path))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path, monkeypatch)


def soon() -> float:
    return time.monotonic() + PATIENCE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_start_that_is_killed_is_made_again(
    place: Place, programs: Programs, number: int
) -> None:
    programs.take(KILLED_ITSELF, first=True, signal=number)
    spawn.reach(place, soon()).close()


@pytest.mark.parametrize("at", ["broker-socket-bound", "broker-socket-shown"])
def test_a_broker_that_is_killed_before_it_answers_is_started_again(
    place: Place, programs: Programs, at: str
) -> None:
    root = str(Path(spawn.__file__).parents[2])
    programs.take(KILLED_CHILD, first=True, root=root, at=at)
    spawn.reach(place, soon()).close()


def test_starts_that_are_always_killed_end_at_the_deadline(
    place: Place, programs: Programs
) -> None:
    programs.take(KILLED_ITSELF, signal=signal.SIGKILL)
    with pytest.raises(TimeoutError, match="was killed before it listened"):
        spawn.reach(place, time.monotonic() + 0.3)


def test_brokers_that_always_leave_end_at_the_deadline(place: Place, programs: Programs) -> None:
    programs.take("sys.exit(0)")
    with pytest.raises(TimeoutError, match="has ended already"):
        spawn.reach(place, time.monotonic() + 0.3)


def test_a_child_that_is_forked_meanwhile_keeps_no_start_waiting(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_pipe = os.pipe
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            time.sleep(2 * PATIENCE)
            os._exit(0)
        children.append(child)

    thread = threading.Thread(target=fork)

    def pipe() -> tuple[int, int]:
        monkeypatch.setattr(os, "pipe", real_pipe)
        ends = real_pipe()
        thread.start()
        thread.join(0.5)  # both ends are open here, in the midst of Popen
        return ends

    monkeypatch.setattr(os, "pipe", pipe)
    try:
        spawn.reach(place, soon()).close()
        thread.join()
        assert os.waitpid(children[0], os.WNOHANG) == (0, 0), "the start waited for the child"
    finally:
        thread.join()
        os.kill(children[0], signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(children[0], 0)


def test_a_wait_for_a_broker_holds_no_lock_of_it(place: Place, programs: Programs) -> None:
    programs.take(
        "import time\nos.close(int(sys.argv[sys.argv.index('--lock-fd') + 1]))\n"
        "print('gone', flush=True)\ntime.sleep(100)"
    )
    ended = threading.Event()

    def wait() -> None:
        with contextlib.suppress(TimeoutError):
            spawn.reach(place, time.monotonic() + 3)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    lock = None
    try:
        while not place.lock.exists():
            time.sleep(0.001)
        time.sleep(0.2)
        while lock is None and not ended.is_set():
            lock = place.try_lock()
            time.sleep(0.01)
        assert not ended.is_set()
    finally:
        if lock is not None:
            os.close(lock)
        thread.join()


def test_ctrl_c_at_a_terminal_is_not_for_a_broker_that_starts(
    place: Place, programs: Programs, tmp_path: Path
) -> None:
    told = tmp_path / "session"
    programs.take(
        "open({told!r}, 'w').write(str(os.getsid(0)))\n" + KILLED_ITSELF,
        told=str(told),
        signal=signal.SIGKILL,
    )
    with pytest.raises(TimeoutError):
        spawn.reach(place, time.monotonic() + 0.1)
    assert int(told.read_text()) != os.getsid(0)


@pytest.mark.parametrize(
    ("attribute", "value", "kind"),
    [("executable", "", "embedded interpreter"), ("frozen", True, "frozen application")],
)
def test_a_program_without_an_interpreter_of_its_own_starts_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, attribute: str, value: object, kind: str
) -> None:
    monkeypatch.setattr(sys, attribute, value, raising=False)
    with pytest.raises(NdError, match=f"{kind} has no program of Python.*start one with") as caught:
        spawn.reach(place, soon())
    assert caught.value.status == Status.DEVICE_NOT_READY
    monkeypatch.undo()
    spawn.reach(place, soon()).close()
