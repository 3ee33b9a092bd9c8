# SPDX-License-Identifier: Apache-2.0
"""Find the broker of a namespace, or start it: one, however many ask at the same time.

Who needs a broker and finds none tries the lock. The one who gets it starts the broker and gives
it the locked descriptor along, so at no moment can another process get it; all the
others keep trying to connect. A starter that dies takes the lock with it, and the next one tries.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Final

from shmnd.broker.place import Place, place_of, runtime_dir
from shmnd.common.shortages import remedy_of_start
from shmnd.common.steps import step
from shmnd.status import Status, error

__all__ = ["IDLE_SECONDS", "START_SECONDS", "ensure_broker", "reach", "runtime_dir"]

IDLE_SECONDS: Final = 10.0
"""A broker that was started on demand leaves when it has had no client for so long."""
START_SECONDS: Final = 10.0
"""Time that a start may take on a busy machine."""

_CALL: Final = "open_adapter"
_PAUSE: Final = (0.001, 0.05)  # between attempts, growing; seconds
_MAIN: Final = Path(__file__).with_name("__main__.py")

# A fork in another thread, during a start, must not leave its child with the broker's
# lock: the child might outlive the broker, and then no other could be started.
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


def ensure_broker(
    namespace: str | None = None,
    base: str | None = None,
    *,
    idle: float = IDLE_SECONDS,
    timeout: float = START_SECONDS,
) -> socket.socket:
    """Return a socket that is connected to the broker of a namespace, started if need be.

    The broker may be about to leave: until it has answered, be ready to ask here again.
    """
    return reach(place_of(namespace, base), time.monotonic() + timeout, idle=idle)


def reach(place: Place, deadline: float, *, idle: float = IDLE_SECONDS) -> socket.socket:
    """Connect to the broker of a place, or start one; IO_TIMEOUT at the deadline."""
    pause, longest = _PAUSE
    while True:
        sock = place.connect()
        if sock is not None:
            return sock
        if _start_if_ours(place, idle, deadline):
            continue
        if time.monotonic() >= deadline:
            raise error(
                Status.IO_TIMEOUT,
                _CALL,
                f"no broker answers at {place.socket}, though a process holds {place.lock}",
            )
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _start_if_ours(place: Place, idle: float, deadline: float) -> bool:
    """Start the broker if the lock is free; False when another process has it."""
    with _locks_guard:
        fd = place.try_lock()
        if fd is None:
            return False
        _locks.add(fd)
    try:
        step("broker-to-be-started")
        _start(place, fd, idle, deadline)
    finally:
        with _locks_guard:
            _locks.discard(fd)
            os.close(fd)
    return True


def _start(place: Place, lock: int, idle: float, deadline: float) -> None:
    """Run the broker as a daemon of its own session, and wait until it listens."""
    import subprocess  # only who starts a broker pays for it

    if not sys.executable:
        raise error(
            Status.DEVICE_NOT_READY,
            _CALL,
            "no broker is running, and this embedded interpreter does not know its own program;"
            " start one with 'python -m shmnd.broker'",
        )
    command = [
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
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(lock,),
            cwd="/",
        )
    except OSError as exc:
        why = f"cannot start the broker: {exc}{remedy_of_start(exc)}"
        raise error(Status.DEVICE_NOT_READY, _CALL, why) from exc
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
    if process.returncode:
        lines = complaint.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"it ended with {process.returncode}"
        raise error(Status.DEVICE_NOT_READY, _CALL, f"the broker did not start: {why}")
