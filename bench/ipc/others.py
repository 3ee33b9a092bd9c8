# SPDX-License-Identifier: Apache-2.0
"""pyzmq with arrays at both ends, and the floors: the cache line, and the fill of an array."""

import functools
import importlib
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from ..floors.cacheline import CacheLine
from ..measure.how import USUAL
from ..measure.question import Kind, Question
from ..measure.reading import Reading
from ..peers.two_sided import Call
from ..peers.zeromq import ZeroMq, ZeroMqEnd
from ..subjects.subject import WorkerSubject
from ..workers.worker import CLIENT

if TYPE_CHECKING:
    from ..workers.harness import Stage, Workers


class ZeroMqTopics(ZeroMq):
    """A PAIR of sockets, for values and for arrays."""

    end: ClassVar[str] = ".ipc.others:ZeroMqTopicsEnd"

    def answers(self, question: Question) -> bool:
        """Return whether the question is of values and arrays, to and fro."""
        plain = question.how == USUAL and not question.idle
        return plain and question.kind in (Kind.VALUE, Kind.ARRAY) and question.size <= 1 << 20


class ZeroMqTopicsEnd(ZeroMqEnd):
    """One end. Large arrays are sent and received without a copy in Python."""

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Return a call that sends an array, and one that makes an array of a message."""
        if question.kind is Kind.VALUE:
            return super().calls(question)
        import numpy

        copy = question.size < self._zmq.COPY_THRESHOLD
        array, frombuffer = numpy.zeros(question.size, "u1"), numpy.frombuffer
        receive = functools.partial(self._socket.recv, copy=copy)

        def received() -> Any:
            return frombuffer(receive(), numpy.uint8)[0]

        return functools.partial(self._socket.send, array, copy=copy), received


class Line(CacheLine):
    """The cache line, in the rounds of values and arrays of any size."""

    def answers(self, question: Question) -> bool:
        """Return whether one line of a sample goes to and fro."""
        plain = question.how == USUAL and not question.idle
        return plain and question.kind in (Kind.VALUE, Kind.ARRAY)


class Fill(WorkerSubject):
    """One process that fills an array of its own again and again, and does not send it.

    No stream of arrays that are built in place is faster.
    """

    name: ClassVar[str] = "fill alone"
    end: ClassVar[str] = ".ipc.others:FillEnd"
    needs: ClassVar[str] = "numpy"

    def launch(self, stage: "Stage") -> "Workers":
        """Start one worker, not two."""
        from ..workers.harness import Workers

        return Workers.start(stage, roles=(CLIENT,))

    def answers(self, question: Question) -> bool:
        """Return whether the question is of arrays that are built in place."""
        return question.kind is Kind.BUILT


class FillEnd:
    """Fills, as the publishers do."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._numpy: Any = importlib.import_module("numpy")

    def describe(self) -> dict[str, str]:
        """Return the version of numpy."""
        return {"numpy": str(self._numpy.__version__)}

    def offer(self, question: Question) -> dict[str, Any]:
        """Return an empty offer: there is no other side."""
        return {}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Do nothing: there is no other side."""

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Fill the array, which was filled before."""
        array = self._numpy.ones(question.size, "u1")
        start = time.perf_counter()
        for _ in repeat(None, count):
            array.fill(7)
        return Reading(time.perf_counter() - start)

    def close(self) -> None:
        """Do nothing: it holds no resource."""
