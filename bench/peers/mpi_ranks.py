# SPDX-License-Identifier: Apache-2.0
"""Jobs of shmnd.mpi by the number of their ranks: memory, lanes, and the time of a start."""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..report.table import Notes, markdown, number
from ..workers.child import HarnessError
from ..workers.harness import Stage
from .mpi import SHMND_LAUNCHER, ShmndMpi

RANKS: Final = (2, 8, 32, 64)
TITLE: Final = "### Memory and start over ranks"
TEXT: Final = (
    "Ranks of shmnd that have initialized MPI and been in one Barrier; measured once. Memory is "
    "what the kernel has allocated of the one segment of the job, divided by the ranks: rank 0 "
    "asks for it (`st_blocks`). Messages add nothing to it; arrays of numpy add theirs. A "
    "lane is the connection from one rank to another one or to itself, and all are part of that "
    "memory. The time of the start is from the start of the launcher until rank 0 has left the "
    "Barrier, and so all ranks are in. The time of Python is that of as many interpreters which "
    "are started at once on the same cores and import nothing, until the last of them runs."
)
HEADINGS: Final = ("ranks", "KiB a rank", "lanes", "ms until all are in", "ms of Python")
_LIMIT: Final = 60.0

# Not a module of the current folder, which `-c` searches first. The clock is one that all
# processes of a host share.
_RANK: Final = """\
import sys
sys.path[:] = filter(None, sys.path)
import time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
at = time.monotonic()
import json, os
if MPI.COMM_WORLD.rank == 0:
    held = os.fstat(int(os.environ["SHMND_MPI_JOB"])).st_blocks * 512
    print(json.dumps({"at": at, "bytes": held, "ranks": MPI.COMM_WORLD.size}))
"""
# By one call, where others write to the same pipe.
_INTERPRETER: Final = "import os, time; os.write(1, b'%.9f\\n' % time.monotonic())"
# Writes when it starts a program so many times, after what the stage itself does at a start.
_STARTER: Final = """\
import sys
sys.path[:] = filter(None, sys.path)
import os, subprocess, time
count, line = int(sys.argv[1]), sys.argv[2:]
print(time.monotonic(), flush=True)
if count == 1:
    os.execv(line[0], line)
for child in [subprocess.Popen(line) for _ in range(count)]:
    child.wait()
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What one job took, or why it failed."""

    ranks: int
    bytes: int = 0
    seconds: float = 0.0
    python: float = 0.0
    """Seconds of as many interpreters."""
    error: str = ""

    @property
    def lanes(self) -> int:
        """The number of lanes: each rank has one from each rank, itself included."""
        return self.ranks**2

    def cells(self, notes: Notes) -> list[str]:
        """Return a row of the table."""
        if self.error:
            return [str(self.ranks), notes.refer(self.error), "", "", ""]
        kib = number(self.bytes / self.ranks / 1024)
        times = [number(each * 1e3) for each in (self.seconds, self.python)]
        return [str(self.ranks), kib, f"{self.lanes:,}", *times]


def measure(
    stage: Stage, tell: Callable[[str], None], numbers: Sequence[int] = RANKS
) -> dict[str, Any]:
    """Start a job of each number of ranks, and return the facts for the report."""
    jobs = []
    for ranks in numbers:
        tell(f"starting {ranks} ranks")
        try:
            jobs.append(job(stage, ranks))
        except HarnessError as exc:
            jobs.append(Job(ranks, error=f"{ranks} ranks: {exc}"))
    return {"jobs": [dataclasses.asdict(each) for each in jobs]}


def paragraphs(facts: Mapping[str, Any]) -> list[str]:
    """Return the part of the page; nothing for facts of a run that had no such jobs."""
    if "jobs" not in facts:
        return []
    notes = Notes()
    rows = [Job(**each).cells(notes) for each in facts["jobs"]]
    return [TITLE, TEXT, markdown(HEADINGS, rows), *notes.paragraphs()]


def job(stage: Stage, ranks: int) -> Job:
    """Start a job and wait for its end; raise HarnessError where that fails."""
    problem = ShmndMpi().missing()
    if problem is not None:
        raise HarnessError(problem)
    options = ["-n", str(ranks), *ShmndMpi.arguments]
    line = [sys.executable, *SHMND_LAUNCHER, *options, sys.executable, "-c", _RANK]
    start, *said = _said(stage, 1, line)
    try:
        found = json.loads("".join(said))
        seconds, held = float(found["at"]) - float(start), int(found["bytes"])
    except (ValueError, KeyError, TypeError) as exc:
        raise HarnessError(f"rank 0 wrote {said} in place of its figures") from exc
    if found["ranks"] != ranks:
        raise HarnessError(f"{found['ranks']} rank(s) instead of {ranks}")
    return Job(ranks, held, seconds, _interpreters(stage, ranks))


def _interpreters(stage: Stage, count: int) -> float:
    """Return the seconds until the last of so many interpreters runs."""
    said = _said(stage, count, [sys.executable, "-c", _INTERPRETER])
    if len(said) != count + 1:
        raise HarnessError(f"{len(said) - 1} of {count} interpreters ran")
    start, *others = map(float, said)
    return max(others) - start


def _said(stage: Stage, count: int, line: Sequence[str]) -> list[str]:
    """Start a program so many times; return the time of the start, and the lines that it wrote."""
    child = stage.start_linked([sys.executable, "-c", _STARTER, str(count), *line])
    try:
        return child.finish(_LIMIT).splitlines()
    finally:
        stage.discard(child)
