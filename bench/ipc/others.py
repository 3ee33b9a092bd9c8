# SPDX-License-Identifier: Apache-2.0
"""pyzmq with arrays at both ends, and the cache line below all of it."""

import functools
from typing import Any, ClassVar

from ..measure.how import USUAL
from ..measure.question import Kind, Question
from ..peers.cacheline import CacheLine
from ..peers.two_sided import Call
from ..peers.zeromq import ZeroMq, ZeroMqEnd


class ZeroMqTopics(ZeroMq):
    """A PAIR of sockets, for values and for arrays."""

    end: ClassVar[str] = ".ipc.others:ZeroMqTopicsEnd"

    def answers(self, question: Question) -> bool:
        """Values and arrays, to and fro."""
        plain = question.how == USUAL and not question.idle
        return plain and question.kind in (Kind.VALUE, Kind.ARRAY) and question.size <= 1 << 20


class ZeroMqTopicsEnd(ZeroMqEnd):
    """One end. Large arrays are sent and received without a copy in Python."""

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Send an array, and make one of the message received."""
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
