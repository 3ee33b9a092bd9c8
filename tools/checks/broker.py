# SPDX-License-Identifier: Apache-2.0
"""Can processes find each other: checks of the runtime directory, the broker, and leftovers."""

from __future__ import annotations

import contextlib
import resource
import stat
from collections.abc import Iterator
from typing import Final

from shmnd import NdError
from shmnd.broker.leftovers import find_leftovers
from shmnd.broker.observer import visit
from shmnd.broker.place import Place, place_of
from shmnd.broker.protocol import VERSION
from shmnd.handshake.queue_pair_link import QpState

from ..columns import counted
from ..observe.counter_reader import CounterReader
from ..observe.snapshot import Scene
from .finding import Finding, mebibytes, ok, problem, warning

_FEW: Final = 256
"""Descriptors with which a broker serves about thirty processes."""


def check(namespace: str | None, group: str | None = None) -> Iterator[Finding]:
    """Check the directory of a namespace, its broker, and leftover files."""
    check = "runtime directory"
    try:
        place = place_of(namespace, group=group)
    except NdError as exc:
        yield problem(
            check,
            str(exc),
            "no adapter can be opened",
            "correct the cause, or set SHMND_RUNTIME_DIR to another directory, the same for all"
            " processes that connect to each other",
        )
    else:
        yield ok(check, str(place.directory))
        yield _broker(place)
        yield ok("processes", _processes(namespace, group))
        with contextlib.suppress(OSError):
            place.directory.rmdir()  # made by this check, unless a process uses it
    yield _leftovers()


def _processes(namespace: str | None, group: str | None) -> str:
    """Return the number of processes of the namespace and of connections, as text."""
    reader = CounterReader(namespace, group)
    reader.refresh()
    scene = Scene()
    scene.read(reader)
    connections = {
        end.words["connection"] for end in scene.ends if end.words["state"] == QpState.CONNECTED
    }
    processes = counted(len({page.pid for page in scene.pages}), "process", "processes")
    return f"{processes}, {counted(len(connections), 'connection')}"


def _broker(place: Place) -> Finding:
    check = "broker"
    replace = "shmnd broker run --replace, or shmnd broker stop (connections do not notice)"
    try:
        with visit(place) as observer:
            if observer is None:
                return _obstacle(check, place) or ok(
                    check, "none runs; the first adapter starts one"
                )
            pid = observer.pid
            counts = observer.counts()
    except NdError as exc:
        return problem(check, str(exc), "no process can connect or open an adapter", replace)
    spoken = counts["version"]
    if spoken != VERSION:
        return problem(
            check,
            f"pid {pid} speaks version {spoken} of the protocol, this installation {VERSION}",
            "adapters of this installation cannot be opened in the namespace",
            f"install one release everywhere, then {replace}; or another SHMND_NAMESPACE",
        )
    known = counted(counts["processes"], "process", "processes")
    found = f"pid {pid}, version {spoken}; it knows {known}"
    limit = _descriptors_of(pid)
    if limit >= _FEW:
        return ok(check, found)
    return warning(
        check,
        f"{found}, and may have {limit} descriptors",
        "it has the limit of the process that started it, and needs about eight for each process;"
        " beyond that, calls of all processes fail with INSUFFICIENT_RESOURCES",
        "where ulimit -Hn is 4096 or more: shmnd broker run --replace (connections do not notice)",
    )


def _descriptors_of(pid: int) -> int:
    """Return how many descriptors a process may have; enough where the kernel does not say."""
    if not pid:
        return _FEW  # it is of a PID namespace that this process does not see
    try:
        limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except (OSError, OverflowError):
        return _FEW  # it has ended, or is of another user
    return _FEW if limit == resource.RLIM_INFINITY else limit


def _obstacle(check: str, place: Place) -> Finding | None:
    """Return the problem that stops the start of a broker; None without one."""
    for path in (place.lock, place.socket, place.new_socket):
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue  # there is none
        # A socket is replaced, whatever file has its name.
        if stat.S_ISDIR(mode) or (path == place.lock and not stat.S_ISREG(mode)):
            return problem(
                check,
                f"none runs, and none can start: {path} is a directory, or a link",
                "no process can connect or open an adapter",
                f"remove {path}",
            )
    return None


def _leftovers() -> Finding:
    check = "leftovers"
    stale = [each for each in find_leftovers() if each.stale]
    if not stale:
        return ok(check, "none")
    return warning(
        check,
        f"{len(stale)}, {mebibytes(sum(each.nbytes for each in stale))}: {stale[0].path}"
        + (", …" if len(stale) > 1 else ""),
        "left by processes that were killed; the next start of a broker removes them too",
        "shmnd clean",
    )
