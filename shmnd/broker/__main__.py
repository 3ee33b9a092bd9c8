# SPDX-License-Identifier: Apache-2.0
"""`python -m shmnd.broker`: run a broker, in the foreground or as a daemon.

A client starts it as a file, without site packages, and then it is a daemon. Started by hand it
stays in the foreground, for a service manager or for observation.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
import time
from pathlib import Path

if not __package__:
    # Run as a file by an interpreter in isolated mode, whose path does not contain shmnd. Last
    # in the path, so that nothing next to the package hides a module of the standard library.
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from shmnd.broker.access import Access, access_of
from shmnd.broker.inherited import drop_inherited
from shmnd.broker.leftovers import find_leftovers, remove_leftovers
from shmnd.broker.observer import as_words, facts, stop, visit
from shmnd.broker.place import Place, namespace_name, place_of
from shmnd.broker.service.server import Server
from shmnd.broker.spawn import CHILD_KILLED
from shmnd.common.shortages import remedy_of_start
from shmnd.common.streams import open_streams
from shmnd.status import NdError, detail_of

_LOCK_SECONDS = 2.0  # an earlier broker may be just about to leave
_REPLACE_SECONDS = 20.0


def main(arguments: list[str] | None = None) -> int:
    """Run a broker, or report on one; return the exit code."""
    open_streams()
    options = _options(arguments)
    try:
        place = _place(options)
        if options.verb in ("status", "stop"):
            return _status_or_stop(place, options.verb)
        os.umask(0o077)
        if options.lock_fd is not None:
            drop_inherited()
            lock: int | None = place.adopt(options.lock_fd)
        else:
            lock = _replace(place) if options.replace else _lock(place)
        if lock is None:
            print(f"shmnd broker: {_taken_by_another(place, options)}", file=sys.stderr)
            return 0 if options.daemon else 1
        remove_leftovers(find_leftovers(str(place.directory.parent)))
        return (
            _daemon(place, lock, options) if options.daemon else _foreground(place, lock, options)
        )
    except (NdError, OSError) as exc:
        text = str(exc).removeprefix("open_adapter: ")  # the command was not called that
        print(exc if options.daemon else f"shmnd broker: {text}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shmnd.broker",
        description="Run a broker, or report on one.",
        epilog="example:\n  python -m shmnd.broker run --namespace lab\n\n"
        "exit codes:\n  0  done (--daemon: a broker serves)\n"
        "  1  run: another one serves, or it cannot be served; status: none runs; stop: it does\n"
        "     not end; stderr says more\n"
        "  2  an option is wrong",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "verb",
        nargs="?",
        choices=("run", "status", "stop"),
        default="run",
        help="run (default): serve in the foreground, and log to stderr",
    )
    parser.add_argument("--namespace", help="which one (default: SHMND_NAMESPACE, or 'default')")
    parser.add_argument("--group", help="serve this group too (default: SHMND_GROUP, or none)")
    parser.add_argument(
        "--idle",
        type=float,
        metavar="SECONDS",
        help="leave after so long without clients (default: never; of a daemon: 10)",
    )
    parser.add_argument(
        "--daemon", action="store_true", help="serve from a child process, and end when it does"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="take the place of a broker that runs; its clients report to this one what they hold",
    )
    # Between spawn.py and here: the directory is made and checked, the lock is taken.
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    parser.add_argument("--gid", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lock-fd", type=int, help=argparse.SUPPRESS)
    return parser


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.idle is not None and not 0 <= options.idle < 1e9:
        parser.error(f"--idle {options.idle}: must be 0 (never) or more")
    try:  # the options alone: a wrong variable is another error
        if options.namespace is not None:
            namespace_name(options.namespace)
        if options.group is not None:
            access_of(options.group)
    except NdError as exc:
        parser.error(detail_of(exc))
    options.daemon |= options.lock_fd is not None
    return options


def _status_or_stop(place: Place, verb: str) -> int:
    """Report on the running broker, or end it; return the exit code."""
    if verb == "stop":
        gone, message = stop(place)
        print(message, file=sys.stdout if gone else sys.stderr)
        return 0 if gone else 1
    with visit(place) as observer:
        for name, value in facts(place, observer).items():
            print(f"{name} {as_words(value)}")
        return 1 if observer is None else 0


def _lock(place: Place) -> int | None:
    """Lock the place and return the descriptor; None if another broker serves there, or will."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        lock = place.try_lock()
        if lock is not None or time.monotonic() > deadline:
            return lock
        sock = place.connect()
        if sock is not None:  # a broker serves there
            sock.close()
            return None
        time.sleep(0.01)


def _taken_by_another(place: Place, options: argparse.Namespace) -> str:
    there = f"a broker for {place.directory} is running"
    if options.replace:
        return f"{there} still, or again, after {_REPLACE_SECONDS:g} s"
    return f"{there} already" + ("" if options.daemon else "; --replace replaces it")


def _place(options: argparse.Namespace) -> Place:
    if options.directory:
        return Place(Path(options.directory), Access(options.gid))
    return place_of(options.namespace, group=options.group)


def _replace(place: Place) -> int | None:
    """End the broker that is there, also a stopped one; lock its place and return the descriptor.

    Return None when others held the lock for `_REPLACE_SECONDS`.
    """
    deadline = time.monotonic() + _REPLACE_SECONDS
    while time.monotonic() < deadline:
        lock = place.try_lock()
        if lock is not None:
            return lock
        with visit(place) as observer:
            if observer is not None:
                # Its clients detect the end at the same moment, and one of them takes the lock
                # too: one that asks for it only after the process is gone is always second.
                taken: list[int] = []
                observer.end(functools.partial(_take, place, taken))
                if taken:
                    return taken[0]
                continue
        time.sleep(0.02)  # one of its clients was quicker, and starts another one just now
    return None


def _take(place: Place, taken: list[int]) -> bool:
    lock = place.try_lock()
    if lock is not None:
        taken.append(lock)
    return lock is not None


def _foreground(place: Place, lock: int, options: argparse.Namespace) -> int:
    server = Server(place, lock, idle=options.idle or 0.0, log=_log)
    server.catch_signals()
    _log(f"pid {os.getpid()} serves {place.socket}")
    server.run()
    return 0


def _log(text: str) -> None:
    print(f"shmnd broker: {text}", file=sys.stderr, flush=True)


def _daemon(place: Place, lock: int, options: argparse.Namespace) -> int:
    """Serve from a child in a session of its own, and return its exit code.

    The parent ends here, when the child listens or has failed.
    """
    ready, started = os.pipe()
    try:
        child = os.fork()
    except OSError as exc:
        for fd in (ready, started):
            os.close(fd)
        raise OSError(exc.errno, f"{exc.strerror}{remedy_of_start(exc)}") from None
    if child:
        os.close(started)
        sys.stderr.flush()
        if os.read(ready, 1):
            os._exit(0)  # at once: the starter waits
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        os._exit(CHILD_KILLED if killed else 1)
    os.close(ready)
    return _serve(place, lock, options, started)


def _serve(place: Place, lock: int, options: argparse.Namespace, started: int) -> int:
    """Serve as a daemon; write to `started` when the broker listens; return the exit code."""
    os.setsid()
    os.chdir("/")
    # Listening must begin in this process: its id is what clients see at the socket.
    server = Server(place, lock, idle=10.0 if options.idle is None else options.idle)
    server.catch_signals()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    with contextlib.suppress(OSError):  # the process that waited is gone; others will come
        os.write(started, b"+")
    os.close(started)
    server.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
