# SPDX-License-Identifier: Apache-2.0
"""Find the broker of a namespace, or start it: one, however many ask at the same time.

A process that needs a broker and finds none tries the lock. The one that gets it starts the broker
and passes the locked descriptor on, so that no other process can get it at any moment; all the
others keep trying to connect. From then on the lock is the broker's alone: one that is killed
before it listens leaves it free, and the next one tries, at first its starter.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shmnd.broker.place import Place
from shmnd.common.held import Held
from shmnd.common.interruption import pass_on
from shmnd.common.shortages import remedy_of_start
from shmnd.common.steps import step
from shmnd.status import Status, error

if TYPE_CHECKING:
    import subprocess

__all__ = [
    "CHILD_KILLED",
    "IDLE_SECONDS",
    "START_SECONDS",
    "reach",
]

IDLE_SECONDS: Final = 10.0
"""A broker that was started on demand leaves when it has had no client for so long."""
START_SECONDS: Final = 10.0
"""Time that a start may take on a busy machine."""
CHILD_KILLED: Final = 75
"""Exit code of a daemon's parent whose child was killed before it listened."""

_CALL: Final = "open_adapter"
_PAUSE: Final = (0.001, 0.05)  # seconds between attempts: the first, and the longest
_MAIN: Final = Path(__file__).with_name("__main__.py")
# From outside, so the next start may well succeed. Other signals are the broker's own fault.
_KILLED: Final = frozenset(
    (
        CHILD_KILLED,
        *(-each for each in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
    )
)

# A fork in another thread, during a start, must not leave its child with the broker's
# lock: the child might outlive the broker, and then no other could be started. Nor with the
# pipes to it, whose ends the starter waits for.
_locks: set[int] = set()
_locks_guard = threading.RLock()


def _drop_locks_in_child() -> None:
    for fd in _locks:
        os.close(fd)
    _locks.clear()
    _locks_guard.release()


os.register_at_fork(
    before=_locks_guard.acquire,
    after_in_parent=_locks_guard.release,
    after_in_child=_drop_locks_in_child,
)


def reach(place: Place, deadline: float, *, idle: float = IDLE_SECONDS) -> socket.socket:
    """Return a connection to the broker of a place, started if needed; IO_TIMEOUT at the deadline.

    The broker may be about to leave: until it has answered, the caller must be ready to call again.
    """
    pause, longest = _PAUSE
    why = ""
    while True:
        sock = place.connect()
        if sock is not None:
            return sock
        if why and time.monotonic() >= deadline:
            raise error(Status.IO_TIMEOUT, _CALL, f"no broker answers at {place.socket}, {why}")
        process = _start_if_ours(place, idle)
        if process is None:
            why = f"though a process holds {place.lock}"
        else:
            killed = _await_start(place, process, deadline)
            why = killed or "though one was started: it has ended already"
            if not killed:
                continue
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _start_if_ours(place: Place, idle: float) -> subprocess.Popen[bytes] | None:
    """Start the broker, and return what `_start` does; None when another process has the lock."""
    with Held(_locks_guard):
        fd = place.try_lock()
        if fd is None:
            return None
        _locks.add(fd)
        try:
            step("broker-to-be-started")
            return _start(place, fd, idle)
        finally:
            # The broker has its copy. With this one the lock would outlive a broker that dies.
            _locks.discard(fd)
            os.close(fd)


def _start(place: Place, lock: int, idle: float) -> subprocess.Popen[bytes]:
    """Start the broker in a session of its own, and return the process that starts it.

    That process ends when the broker listens, or has failed.
    """
    import subprocess  # only a process that starts a broker pays for it

    # The program of a frozen application is the application: it would be started once more.
    if not sys.executable or getattr(sys, "frozen", False):
        kind = "frozen application" if sys.executable else "embedded interpreter"
        raise error(
            Status.DEVICE_NOT_READY,
            _CALL,
            f"no broker is running, and this {kind} has no program of Python to start one with;"
            " start one with 'python -m shmnd.broker'",
        )
    try:
        return subprocess.Popen(
            _command(place, lock, idle),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(lock,),
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the program, which may well continue
        )
    except OSError as exc:
        pass_on(exc)
        why = f"cannot start the broker: {exc}{remedy_of_start(exc)}"
        raise error(Status.DEVICE_NOT_READY, _CALL, why) from exc


def _command(place: Place, lock: int, idle: float) -> list[str]:
    """Return the command that starts the broker."""
    return [
        sys.executable,
        # Isolated and without site packages: it needs the standard library alone, starts in a
        # fraction of the time, and nothing in the user's environment can get in its way.
        "-I",
        "-S",
        str(_MAIN),
        "--directory",
        str(place.directory),
        "--idle",
        str(idle),
        "--lock-fd",
        str(lock),
        *([] if place.access.gid is None else ["--gid", str(place.access.gid)]),
    ]


def _await_start(place: Place, process: subprocess.Popen[bytes], deadline: float) -> str:
    """Wait until the broker listens, and return "".

    Return a text that says so if a signal killed it before; raise NdError for another failure.
    """
    import subprocess

    with process:
        try:
            # It ends as soon as its child, the broker, listens.
            _, complaint = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except BaseException as exc:
            process.kill()
            if not isinstance(exc, subprocess.TimeoutExpired):
                raise
            raise error(
                Status.IO_TIMEOUT, _CALL, f"the broker for {place.directory} did not start in time"
            ) from None
    if process.returncode in _KILLED:
        return "and the last one that was started was killed before it listened"
    if process.returncode:
        lines = complaint.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"it ended with {process.returncode}"
        raise error(Status.DEVICE_NOT_READY, _CALL, f"the broker did not start: {why}")
    return ""
