# SPDX-License-Identifier: Apache-2.0
"""A peer that refuses or wipes away marks of others delays them, and does no more."""

import ctypes
from contextlib import ExitStack

import pytest

import shmnd
from processes.kit import join, listening

WAIT = 30
LINKS = 12
"""More than are polled one by one, and more than stay hot."""


@pytest.mark.slow
def test_a_sleeper_finds_messages_whose_marks_were_wiped_away() -> None:
    with ExitStack() as kept:
        adapter = kept.enter_context(shmnd.open_adapter("127.0.0.1"))
        cq, other = (adapter.create_completion_queue(256) for _ in range(2))
        cq.spin = 0
        listener = listening(adapter)
        senders = []
        for number in range(LINKS):
            sender = adapter.create_queue_pair(other, other)
            receiver = adapter.create_queue_pair(cq, cq, context=number)
            receiver.receive(None)
            for made in (*join(listener, sender, receiver), receiver, sender):
                kept.callback(made.close)
            senders.append(sender)
        assert cq.wait(timeout=0) == []  # the connections are marked: those marks are taken now

        # As if a peer wiped each mark away at once: none is made any more, and there are none.
        bell, marks = (
            segment.address + cq._place.index * size
            for segment, size in ((cq._place.bells, 128), (cq._place.marks, 640))
        )
        use_bitmap = ctypes.c_uint32.from_address(bell + 8)
        assert use_bitmap.value == 1
        use_bitmap.value = 0
        ctypes.memset(marks, 0, 64 * 8)

        for number, sender in enumerate(senders):
            sender.send(None)
            (received,) = cq.wait(timeout=WAIT)
            assert received.queue_pair_context == number
