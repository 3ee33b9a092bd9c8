# SPDX-License-Identifier: Apache-2.0
"""A time limit that a program sets by SIGALRM ends a call of MPI as TimeoutError, with no error of
MPI in its place, which would end the job.
"""

from pathlib import Path
from typing import Final

import pytest

from mpi.launcher.jobs import launch

EACH_PLACE: Final = f"""
import gc, os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from interrupting import inside, interrupted
from mpi4py import MPI
import shmnd

class TimeLimit(TimeoutError): pass

def each_place(call):
    # Interrupt a call at each place. What it raises in its place would end this program.
    gc.collect()
    gc.disable()  # no cycle holds a file
    before = len(os.listdir("/proc/self/fd"))
    for at in range(1000):
        made = []
        was = interrupted(at, lambda: made.append(call()), inside(shmnd), TimeLimit)
        assert was is not bool(made), at
        if not was:
            for each in made:
                getattr(each, "Close", getattr(each, "Free", lambda: None))()
            assert len(os.listdir("/proc/self/fd")) <= before, before
            return
    assert 0, "more places than expected"

world = MPI.COMM_SELF
"""

CALLS: Final = {
    "File.Open": "each_place(lambda: MPI.File.Open(world, name, MPI.MODE_RDWR | MPI.MODE_CREATE))",
    "File": """
file = MPI.File.Open(world, name, MPI.MODE_RDWR | MPI.MODE_CREATE)
each_place(lambda: file.Seek_shared(0))
each_place(lambda: file.Set_view(0, MPI.DOUBLE))
each_place(lambda: file.Set_size(800))
each_place(lambda: file.Write_at(0, bytearray(8)))
each_place(file.Get_size)
each_place(file.Sync)
file.Close()
""",
    "Win.Allocate": "each_place(lambda: MPI.Win.Allocate(80, comm=world))",
    "Comm": """
each_place(world.Dup)
each_place(lambda: world.Create_cart([1]))
each_place(lambda: world.bcast([1]))
each_place(lambda: world.gather([1]))
each_place(lambda: world.reduce([1]))
""",
}


@pytest.mark.parametrize("calls", CALLS)
def test_a_time_limit_ends_a_call_as_itself(calls: str, tmp_path: Path) -> None:
    name = f"name = {str(tmp_path / 'file')!r}\n"
    launch(1, "-c", EACH_PLACE + name + CALLS[calls])
