# SPDX-License-Identifier: Apache-2.0
"""Limits of address space and of files (ulimit -v, -f) far below the memory of the machine."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from processes.kit import Child
from shmnd.common.descriptors import taking_from_the_system
from shmnd.common.shortages import remedy
from shmnd.ipc.common.limits import most_memory
from shmnd.status import NdMemoryError

ADDRESSES = """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
"""
FILES = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (128 << 20, resource.RLIM_INFINITY))
"""
OBJECTS = """
import numpy as np
from shmnd import ipc
queue = ipc.Queue()
queue.put(np.arange(1000))
assert queue.get(timeout=30)[7] == 7
try:
    queue._put_or_drop(bytearray(100 << 20))
    say("it has room")
except MemoryError as exc:
    say(str(exc))
with ipc.Server("limited") as server, ipc.Client("limited") as client:
    pending = client.send(1)
    server.receive(30).respond(2)
    say(pending.result(30).value)
with ipc.Blackboard("limited", {"x": "f8"}) as board, ipc.BlackboardReader("limited") as reader:
    board["x"] = 3
    say(reader["x"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("limited", [ADDRESSES, FILES])
def test_objects_work_with_a_part_of_it(limited: str) -> None:
    with Child(limited + OBJECTS, kit=False) as child:
        assert "ulimit -v or -f of the process that made the queue" in child.hear()
        assert (child.hear(), child.hear()) == (2, 3)
        assert child.end() == 0


LEAST = """
import resource
from shmnd import ipc
from shmnd.status import NdMemoryError

def limited(mib):
    resource.setrlimit(resource.RLIMIT_FSIZE, (mib << 20, resource.RLIM_INFINITY))

def refused(maxsize):
    try:
        ipc.Queue(maxsize).close()
    except NdMemoryError as exc:
        return "ulimit -f" in str(exc)
    return False

limited(8)
say(refused(0))
limited(10)
with ipc.Queue() as queue, ipc.Server("least") as server, ipc.Client("least") as client:
    queue.put(7)
    say(queue.get(timeout=30))
    pending = client.send(1)
    server.receive(30).respond(2)
    say(pending.result(30).value)
limited(128)
say((refused(7_000_000), refused(8_000_000)))
"""


@pytest.mark.slow
def test_the_least_limit_of_files_is_that_of_the_page() -> None:
    with Child(LEAST, kit=False) as child:
        assert [child.hear() for _ in range(4)] == [True, 7, 2, [False, True]]
        assert child.end() == 0


def test_the_machine_is_the_bound_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = resource.RLIM_INFINITY
    bounds = {resource.RLIMIT_AS: unlimited, resource.RLIMIT_FSIZE: unlimited}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (bounds[which], bounds[which]))
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 16 << 16
    assert most_memory(1, 1 << 50) == machine
    assert most_memory(1, 1 << 20) == 1 << 20
    bounds[resource.RLIMIT_AS] = (4 << 30) + 4096
    assert most_memory(1 << 30, 1 << 50) == min(1 << 28, machine), "whole pieces alone"
    bounds[resource.RLIMIT_FSIZE] = (1 << 26) + 4096
    assert most_memory(1 << 30, 1 << 50) == 1 << 25
    bounds.update({resource.RLIMIT_AS: 1 << 20, resource.RLIMIT_FSIZE: unlimited})
    assert most_memory(1 << 30, 1 << 50) == 1 << 26


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ((2 << 30) + (100 << 10), resource.RLIM_INFINITY))
from shmnd import ipc
with ipc.Blackboard("full", {}) as board:
    size = 1 << 26
    while size >= 64:
        try:
            board.add(f"key {len(board.keys())}", f"V{size}")
        except MemoryError as exc:
            assert "four copies" in str(exc)
            size //= 2
    say("full")
"""


def test_a_blackboard_is_filled_to_its_end() -> None:
    with Child(FULL, kit=False) as child:
        assert child.hear() == "full"
        assert child.end() == 0


LOADS = """
import resource, sys, shmnd

class Poor:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            raise MemoryError

what, name = sys.argv[1:3]
if what == "memory":
    sys.meta_path.insert(0, Poor())
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    getattr(shmnd, name)
except shmnd.NdError as exc:
    print(exc.status.name, exc)
"""


@pytest.mark.parametrize("name", ["open_adapter", "listen", "nd1"])
@pytest.mark.parametrize(
    ("what", "limit"), [("descriptors", "is ulimit -n"), ("memory", "(ulimit -v)")]
)
def test_a_name_that_cannot_be_loaded_names_the_limit(what: str, limit: str, name: str) -> None:
    command = [sys.executable, "-c", LOADS, what, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith(f"INSUFFICIENT_RESOURCES {name}: shmnd."), done
    assert limit in done.stdout


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError(),
        ImportError("x.so: failed to map segment from shared object"),
        ImportError(f"x.so: cannot open shared object file: {os.strerror(12)}"),
    ],
)
def test_a_module_that_lacks_memory_names_the_limit(failure: Exception) -> None:
    with pytest.raises(NdMemoryError, match=r"test: .*ulimit -v"), taking_from_the_system("test"):
        raise failure


def test_a_module_that_may_not_be_executed_is_no_shortage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = ImportError("x.so: failed to map segment from shared object", path=str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(ImportError, match="failed to map"), taking_from_the_system("test"):
        raise failure


def test_a_module_that_is_missing_is_no_shortage() -> None:
    with pytest.raises(ImportError, match=r"^missing$"), taking_from_the_system("test"):
        raise ImportError("missing")


@pytest.mark.parametrize(
    ("number", "limit"),
    [
        (24, f"is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}, which ulimit -n raises"),
        (23, "fs.file-max"),
        (12, "ulimit -v"),
    ],
)
def test_an_error_names_the_limit_that_was_met(number: int, limit: str) -> None:
    with pytest.raises(NdMemoryError, match=limit), taking_from_the_system("test"):
        raise OSError(number, os.strerror(number))


def test_a_file_that_no_limit_of_the_process_forbids_has_another_remedy() -> None:
    failure, (limit, hard) = OSError(27, "too long"), resource.getrlimit(resource.RLIMIT_FSIZE)
    assert limit == resource.RLIM_INFINITY
    assert remedy(failure, "another file system") == "another file system"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, hard))
    try:
        assert "not be longer than 1099511627776 bytes" in remedy(failure, "another")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
