# SPDX-License-Identifier: Apache-2.0
"""Check every byte of some messages of each kind, outside the measurement."""

import numpy

from ..measure.question import Kind, Question
from .bandwidth import receive_acknowledgement, send_acknowledgement
from .lane import Lane, check

_ROUNDS = 64
_BYTES = 64 << 20
_REVERSED = 0x5A
"""Makes answers differ from questions."""


def validate(lane: Lane, question: Question, first: bool) -> None:
    """Exchange messages with patterns; a byte that changed ends the benchmark."""
    rounds = max(2, min(_ROUNDS, _BYTES // max(question.size, 1)))
    for number in range(rounds):
        match question.kind:
            case Kind.WRITE | Kind.WRITE_STREAM:
                _write(lane, number, first)
            case Kind.READ | Kind.READ_STREAM:
                _read(lane, number, first)
            case _:
                _send(lane, number, first)


def pattern(size: int, number: int, flip: int = 0) -> numpy.ndarray:
    """Return bytes that differ from place to place and from message to message."""
    places = numpy.arange(size, dtype=numpy.uint64)
    mixed = (places * 37 + (places >> 8) * 11 + number * 101 + 1) & 0xFF
    return mixed.astype(numpy.uint8) ^ flip


def compare(found: numpy.ndarray, wanted: numpy.ndarray, what: str) -> None:
    """Raise an error for the first byte that differs from the message sent."""
    wrong = numpy.flatnonzero(found != wanted)
    if wrong.size:
        place = int(wrong[0])
        raise RuntimeError(
            f"{what} arrived changed: {wrong.size} of {wanted.size} bytes, first byte {place}, "
            f"{int(found[place]):#04x} instead of {int(wanted[place]):#04x}"
        )


def _send(lane: Lane, number: int, first: bool) -> None:
    size = len(lane.outbox)
    if first:
        lane.outbox[:] = pattern(size, number)
        _post(lane)
    check(lane.arrived(1))
    compare(lane.inbox, pattern(size, number, _REVERSED if first else 0), f"message {number}")
    lane.inbox[:] = 0
    lane.qp.receive(lane.incoming)
    if not first:
        lane.outbox[:] = pattern(size, number, _REVERSED)
        _post(lane)


def _post(lane: Lane) -> None:
    lane.send(lane.outgoing)
    check(lane.initiator_cq.wait(1))


def _write(lane: Lane, number: int, first: bool) -> None:
    wanted = pattern(len(lane.outbox), number)
    if first:
        lane.outbox[:] = wanted
        lane.qp.write(lane.outgoing, lane.remote_address, lane.remote_token)
        check(lane.initiator_cq.wait(1))
        send_acknowledgement(lane)
        receive_acknowledgement(lane)
    else:
        receive_acknowledgement(lane)
        compare(lane.inbox, wanted, f"Write {number}")
        lane.inbox[:] = 0
        send_acknowledgement(lane)


def _read(lane: Lane, number: int, first: bool) -> None:
    wanted = pattern(len(lane.outbox), number)
    if first:
        send_acknowledgement(lane)
        receive_acknowledgement(lane)
        lane.outbox[:] = 0
        lane.qp.read(lane.outgoing, lane.remote_address, lane.remote_token)
        check(lane.initiator_cq.wait(1))
        compare(lane.outbox, wanted, f"Read {number}")
    else:
        receive_acknowledgement(lane)
        lane.inbox[:] = wanted
        send_acknowledgement(lane)
