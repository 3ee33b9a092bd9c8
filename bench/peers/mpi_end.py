# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a benchmark of mpi4py do.

The loops are those of the OSU benchmarks, with the buffers given in the form that mpi4py handles
fastest (address, count and datatype named, so nothing is guessed per call); those of collectives
and of messages that ask for it are arrays of numpy.
"""

import functools
import importlib
import time
from itertools import repeat
from typing import Any

from ..measure.how import USUAL, Memory
from ..measure.question import COLLECTIVES, WINDOW, Kind, Question
from ..measure.reading import Reading
from ..report.table import SMALL
from ..workers.worker import CLIENT
from .two_sided import Call, TwoSidedEnd

_DEEP = 64  # messages in flight in a stream, as in osu_bw


class MpiEnd(TwoSidedEnd):
    """One rank."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        # Any: its stubs are there only where it is installed.
        self._mpi: Any = importlib.import_module("mpi4py.MPI")
        self._world = self._mpi.COMM_WORLD
        if options["library"].lower() not in self._library().lower():
            raise RuntimeError(f"mpi4py runs on {self._library()}, not on {options['library']}")
        if self._world.Get_size() != options["ranks"]:
            raise RuntimeError(
                f"{self._world.Get_size()} rank(s) instead of {options['ranks']}: mpiexec is not "
                f"that of {self._library()}"
            )
        self._peer = 1 - role

    def describe(self) -> dict[str, str]:
        """Return the versions of mpi4py and of the library below it."""
        version: str = importlib.import_module("mpi4py").__version__
        return {"mpi4py": version, "MPI": self._library()}

    def _library(self) -> str:
        version = str(self._mpi.Get_library_version()).replace("\t", " ").splitlines()[0]
        return " ".join(version.split(",", maxsplit=1)[0].replace("Version:", "").split())

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Return blocking calls: they return at once for small messages, and make no request."""
        if question.kind is Kind.PICKLED:
            message = (
                bytes(question.size) if question.size else {"name": "shmnd", "values": [1.5, 2]}
            )
            return (
                functools.partial(self._world.send, message, self._peer),
                functools.partial(self._world.recv, None, self._peer),
            )
        outgoing, incoming = (self._buffer(question.size, question.how.memory) for _ in range(2))
        return (
            functools.partial(self._world.Send, outgoing, self._peer),
            functools.partial(self._world.Recv, incoming, self._peer),
        )

    def _buffer(self, size: int, memory: Memory = USUAL.memory) -> tuple[Any, int, Any]:
        if memory is Memory.NUMPY:
            import numpy as np

            return np.ones(size, np.uint8), size, self._mpi.BYTE
        return bytearray(size), size, self._mpi.BYTE

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Run a loop; collectives and windows have a step that is the same at all ranks."""
        if question.kind not in COLLECTIVES and question.kind is not Kind.WINDOW:
            return super().run(question, count, record)
        windows = question.kind is Kind.WINDOW
        step = self._window(question.size) if windows else self._collective(question)
        for _ in repeat(None, count // 20 + 1):
            step()
        self.align()
        start = time.perf_counter()
        for _ in repeat(None, count):
            step()
        return Reading(time.perf_counter() - start)

    def _window(self, size: int) -> Call:
        """Return a step: a window of messages, and an answer of one byte, as osu_bw has it."""
        world, buffer, peer = self._world, self._buffer(size), self._peer
        wait_all, all_of_them = self._mpi.Request.Waitall, range(WINDOW)
        empty = self._buffer(1)

        def sends() -> None:
            wait_all([world.Isend(buffer, peer) for _ in all_of_them])
            world.Recv(empty, peer)

        def receives() -> None:
            wait_all([world.Irecv(buffer, peer) for _ in all_of_them])
            world.Send(empty, peer)

        return sends if self._role == CLIENT else receives

    def _collective(self, question: Question) -> Call:
        """Return a call of a collective, on arrays of numpy."""
        import numpy as np

        world, size = self._world, question.size
        ranks = world.Get_size()
        match question.kind:
            case Kind.BARRIER:
                return functools.partial(world.Barrier)
            case Kind.BCAST:
                return functools.partial(world.Bcast, np.zeros(size, "u1"), 0)
            case Kind.ALLREDUCE:
                numbers = np.ones(size // 8)
                return functools.partial(world.Allreduce, numbers, np.empty_like(numbers))
            case Kind.ALLGATHER:
                part, whole = np.zeros(size, "u1"), np.zeros(ranks * size, "u1")
                return functools.partial(world.Allgather, part, whole)
            case _:
                parts = np.zeros(ranks * size, "u1")
                return functools.partial(world.Alltoall, parts, np.empty_like(parts))

    def align(self) -> None:
        """Let both ranks begin together."""
        self._world.Barrier()

    def stream(self, question: Question, send: Call, receive: Call, count: int) -> None:
        """Send or receive a stream; large messages go by windows of requests, as in osu_bw."""
        if question.size < SMALL:
            super().stream(question, send, receive, count)
            return
        sends = self._role == CLIENT
        post = self._world.Isend if sends else self._world.Irecv
        buffer, wait_all = self._buffer(question.size), self._mpi.Request.Waitall
        left = count
        while left:
            window = min(left, _DEEP)
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
