# SPDX-License-Identifier: Apache-2.0
"""A program that locks its memory, as programs with deadlines do (mlockall).

The kernel fills each mapping that such a program makes, its holes too.
"""

import json
import resource
import subprocess
import sys

import pytest

from processes.kit import PATIENCE

pytestmark = pytest.mark.slow

MIB = 1 << 20
MADE = {
    "a queue": ("made = ipc.Queue(); made.put(b'x'); assert made.get() == b'x'", 0),
    "a queue with a limit": ("made = ipc.Queue(8); made.put(1); assert made.get() == 1", 0),
    "a blackboard": ("made = ipc.Blackboard('locked', {'a': 'f8'}); made['a'] = 1", 0),
    "a reader": (
        "board = ipc.Blackboard('locked', {'a': 'f8'}); board['a'] = 1;"
        "made = ipc.BlackboardReader('locked'); assert made['a'] == 1",
        0,
    ),
    "memory": ("made = shmnd.open_adapter().allocate(32 << 20)", 32 * MIB),
}
"""How it is made, and how many bytes of it are locked at least."""

PROGRAM = """
import ctypes, json, os, resource, sys
import shmnd
from shmnd import ipc
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
def sizes():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return [int(lines[name].split()[0]) << 10 for name in ("RssShmem", "VmLck")]
shmnd.open_adapter().close()
if ctypes.CDLL(None, use_errno=True).mlockall(2):  # MCL_FUTURE
    sys.exit(77)
before = sizes()
{made}
print(json.dumps([after - first for first, after in zip(before, sizes())]))
"""


RANK = """
import ctypes, sys
if ctypes.CDLL(None, use_errno=True).mlockall(2):  # MCL_FUTURE
    sys.exit(77)
from shmnd.mpi import MPI
MPI.COMM_WORLD.Barrier()
with open("/proc/self/status") as status:
    lines = dict(line.split(":", 1) for line in status)
assert int(lines["RssShmem"].split()[0]) < 64 << 10, lines["RssShmem"]
"""


def test_the_memory_of_a_job_is_not_filled() -> None:
    command = [sys.executable, "-m", "shmnd.mpi", "-n", "2", sys.executable, "-c", RANK]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    too_small = 0 <= limit < 64 * MIB and "Resource temporarily unavailable" in ended.stderr
    if ended.returncode == 77 or too_small:
        pytest.skip(f"this process may lock {limit} bytes of memory; the test needs 64 MiB")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("kind", MADE)
def test_only_committed_memory_is_filled_and_locked(kind: str) -> None:
    how, least = MADE[kind]
    command = [sys.executable, "-c", PROGRAM.replace("{made}", how)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if ended.returncode == 77 or "ulimit -l" in ended.stderr:
        pytest.skip("this process may not lock memory")
    assert ended.returncode == 0, ended.stderr
    filled, locked = json.loads(ended.stdout)
    assert filled < 64 * MIB
    assert locked >= least


REFUSED = """
import ctypes, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
_, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
if 0 <= most < 8 << 20:
    sys.exit(77)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, most))
libc.capset((ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)())  # without CAP_IPC_LOCK
assert libc.mlockall(2) == 0  # MCL_FUTURE
"""

WANTS = {
    "a rank": "from shmnd.mpi import MPI",
    "a segment": "adapter.allocate(32 << 20)",
}


@pytest.mark.parametrize("kind", WANTS)
def test_a_mapping_that_may_not_be_locked_names_the_limit(kind: str) -> None:
    """The reason of the kernel, "Resource temporarily unavailable", names none."""
    program = "import shmnd\nadapter = shmnd.open_adapter()\n" + REFUSED + WANTS[kind]
    command = [sys.executable, "-m", "shmnd.mpi", "-n", "2", sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if ended.returncode == 77:
        pytest.skip("this process may not lock 8 MiB of memory")
    assert ended.returncode == 1, ended.stderr
    assert "Resource temporarily unavailable; the program locks its memory" in ended.stderr
    assert "may lock 8388608 bytes: the limit is ulimit -l" in ended.stderr
