# SPDX-License-Identifier: Apache-2.0
"""Children that are forked off, and what they inherit: descriptors and bells of their parent."""

import gc
import os
import queue
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shmnd import ipc

PATIENCE = 20.0
ABOVE = 250
"""The descriptor by which a child speaks, above all that it closes."""


def _event(name: str) -> list[Any]:
    return [ipc.Listener(name), ipc.Notifier(name)]


def _board(name: str) -> list[Any]:
    return [ipc.Blackboard(name, {"x": "f8"}), ipc.BlackboardReader(name)]


def _service(name: str) -> list[Any]:
    return [ipc.Server(name), ipc.Client(name)]


def _topic(name: str) -> list[Any]:
    return [ipc.Subscriber(name, "u1"), ipc.Publisher(name, "u1")]


def _queue(_: str) -> list[Any]:
    made: ipc.Queue[int] = ipc.Queue(4)
    with pytest.raises(queue.Empty):
        made.get(timeout=0.2)
    return [made]


MAKERS = [_event, _board, _service, _topic, _queue]


def in_a_child(do: Callable[[], object]) -> str:
    """Return what a child that is forked off has to say."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writes, ABOVE)
        try:
            said = repr(do())
        except BaseException as exc:
            said = repr(exc)
        os.write(ABOVE, said.encode())
        os._exit(0)
    os.close(writes)
    try:
        assert select.select([reads], [], [], PATIENCE)[0], "the child hangs"
        return os.read(reads, 1 << 16).decode()
    finally:
        os.close(reads)
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_the_error_of_a_loop_over_requests_names_the_server_in_a_child() -> None:
    with ipc.Server(f"forks-{os.getpid()}") as server:
        requests = iter(server)
        said = in_a_child(lambda: next(requests))
        assert said.startswith("Closed('Server: the server belongs to the parent"), said


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__.strip("_"))
def test_a_child_may_close_all_descriptors_and_open_others(
    make: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    """As a daemon does. The ends of inherited objects must not close those, nor write there."""
    objects = make(f"forks-{os.getpid()}")
    for each in objects:
        if hasattr(each, "fileno"):
            each.fileno()

    def closes_all() -> list[str]:
        os.closerange(3, ABOVE)
        mine = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(64)]
        files = [os.fstat(fd).st_ino for fd in mine]
        while objects:
            objects.pop().close()
        gc.collect()
        return [str(fd) for fd, file in zip(mine, files, strict=True) if not _has(fd, file)]

    try:
        assert in_a_child(closes_all) == "[]"
    finally:
        for each in objects:
            each.close()


def _has(fd: int, file: int) -> bool:
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (found.st_ino, found.st_size) == (file, 0)


def _watched(epoll: int) -> list[str]:
    """What an epoll watches; a child that shares it could change that."""
    lines = Path(f"/proc/self/fdinfo/{epoll}").read_text().splitlines()
    return sorted(line for line in lines if line.startswith("tfd:"))


def test_a_child_waits_at_a_bell_of_its_own() -> None:
    """What it watches and takes is not what its parent does."""
    with_it: ipc.Queue[int] = ipc.Queue(4)
    other = os.fork()
    if other == 0:  # a member that the parent watches
        with_it.put(1)
        time.sleep(2 * PATIENCE)
        os._exit(0)
    try:
        assert with_it.get(timeout=PATIENCE) == 1
        with pytest.raises(queue.Empty):
            with_it.get(timeout=0.3)
        before = _watched(with_it.fileno())
        assert len(before) >= 2

        def waits() -> list[str]:
            with pytest.raises(queue.Empty):
                with_it.get(timeout=0.5)
            return _watched(with_it.fileno())

        theirs = in_a_child(waits)
        assert theirs.startswith("['tfd:")
        assert theirs != repr(before)
        assert _watched(with_it.fileno()) == before
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)
        with_it.close()


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__.strip("_"))
def test_an_end_is_harmless_after_the_program_has_closed_all_descriptors(
    make: Callable[[str], list[Any]],
) -> None:
    """`os.closerange(3, 256)` is common in older programs: it closes ours, too."""

    def closes_first() -> list[str]:
        objects = make(f"closed-{os.getpid()}")
        for each in objects:
            if hasattr(each, "fileno"):
                each.fileno()
        os.closerange(3, ABOVE)
        inner = os.fork()
        if inner == 0:
            os._exit(0)
        os.waitpid(inner, 0)
        for each in objects:
            each.close()
            each.close()
        return ["closed"]

    assert in_a_child(closes_first) == "['closed']"


ENDS: dict[str, Callable[[str], Any]] = {
    "Subscriber": ipc.Subscriber,
    "Listener": ipc.Listener,
    "Server": ipc.Server,
    "BlackboardReader": ipc.BlackboardReader,
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "loop": list,
    "fileno": lambda end: end.fileno(),
    "ready": lambda end: end.ready(),
    "wait set": ipc.WaitSet,
}
OF_PARENT = "belongs to the parent", "was opened before fork"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_an_end_of_its_parent_is_refused_in_a_child(kind: str, call: str, used: bool) -> None:
    with ENDS[kind](f"forks-{os.getpid()}") as end, ipc.Blackboard(f"forks-{os.getpid()}", {}):
        if used:
            end.fileno()
        said = in_a_child(lambda: CALLS[call](end))
    call = {"loop": "", "wait set": ".fileno"}.get(call, f".{call}")
    assert said.startswith((f"Closed('{kind}{call}", f'Closed("{kind}{call}')), said
    assert any(each in said for each in OF_PARENT), said
