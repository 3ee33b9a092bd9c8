# SPDX-License-Identifier: Apache-2.0
"""How many samples may be on the way to a link that is waited for: those that were sent alone.

A sample that is not sent is never taken; one that waited for that would hold up its topic for ever.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from link.kit import PATIENCE, half, unique, until
from link.test_outgoing import Table
from shmnd import ipc
from shmnd_tools.link import outgoing as of_topics
from shmnd_tools.link import wire
from shmnd_tools.link.incoming import LATEST, WAITING, WINDOW
from shmnd_tools.link.outgoing import Outgoing


class Taking(Table):
    """A wire whose far side takes each sample at once, where it has an `outgoing`."""

    def __init__(self) -> None:
        super().__init__()
        self.outgoing: Outgoing | None = None
        self.longest = 1 << 20
        self.holds = threading.Event()
        self.holds.set()

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        assert self.holds.wait(PATIENCE)
        if len(payload) > self.longest:
            return  # the far zenoh refuses it, and says nothing
        super().send(key, payload, attachment, block=block)
        told, outgoing = wire.unpack(attachment), self.outgoing
        first = told.kind == wire.BEGIN and not told.sequence
        if outgoing is not None and told.kind != wire.END and not first:
            outgoing.taken(wire.parts(key)[2], "far", told.sequence)

    def numbers_of(self, uid: str) -> list[int]:
        kinds = self.kinds_of(uid)
        return [number for kind, number in kinds if kind not in (wire.BEGIN, wire.END)]


@contextlib.contextmanager
def carried(table: Taking, type_: Any, mode: str, **options: Any) -> Iterator[Any]:
    """A publisher whose samples a far link wants, and the counts of its link."""
    namespace = unique("window")
    with ipc.Publisher("t", type_, namespace=namespace, **options) as pub:
        made = Outgoing(half(table, namespace), "t")
        table.outgoing = made
        try:
            made.enter(pub._adapter.uid, "{}")
            made.want(pub._adapter.uid, "far", mode, wanted=True)
            pub.wait_for_subscribers(1, PATIENCE)
            yield pub, made._traffic
        finally:
            table.holds.set()
            made.close()


def test_samples_that_may_not_be_sent_hold_up_no_other_one() -> None:
    """Objects, for which the link was not asked, on a topic of any type."""
    table = Taking()
    with carried(table, None, WAITING) as (pub, traffic):
        uid = pub._adapter.uid
        pub.send(np.arange(3), timeout=PATIENCE)
        for _ in range(WINDOW + 2):
            pub.send({"any": "object"}, timeout=PATIENCE)
        pub.send(np.arange(4), timeout=PATIENCE)
        until(lambda: table.numbers_of(uid) == [0, WINDOW + 3])
        assert (traffic.number, traffic.lost) == (2, WINDOW + 2)


def test_samples_that_were_dropped_before_a_link_waits_hold_up_no_other_one() -> None:
    """The link was slow, and has dropped more of them than may be on the way."""
    table, most = Taking(), 500
    with carried(table, "i8", LATEST) as (pub, _):
        uid = pub._adapter.uid
        pub.send(np.int64(0))
        until(lambda: table.numbers_of(uid) == [0])
        table.holds.clear()
        for number in range(1, most):
            pub.send(np.int64(number))
        assert table.outgoing is not None
        table.outgoing.want(uid, "far", WAITING, wanted=True)
        table.outgoing.want(uid, "far", LATEST, wanted=False)
        table.outgoing.taken(uid, "far", 0)  # all that was sent
        table.holds.set()
        until(lambda: table.numbers_of(uid)[-1] == most - 1)
        found = table.numbers_of(uid)
        assert found == sorted(set(found))


def test_no_more_samples_are_on_the_way_than_the_window() -> None:
    table = Taking()
    with carried(table, "i8", WAITING) as (pub, _):
        uid, outgoing = pub._adapter.uid, table.outgoing
        assert outgoing is not None
        table.outgoing = None  # the far side takes nothing
        for number in range(WINDOW + 3):
            pub.send(np.int64(number), timeout=PATIENCE)
        until(lambda: len(table.numbers_of(uid)) == WINDOW)
        outgoing.taken(uid, "far", 1)
        until(lambda: len(table.numbers_of(uid)) == WINDOW + 2)
        outgoing.taken(uid, "far", WINDOW + 1)
        until(lambda: table.numbers_of(uid) == list(range(WINDOW + 3)))


def test_samples_that_the_other_side_refuses_hold_up_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Longer than its zenoh takes them, of which this side does not hear."""
    monkeypatch.setattr(of_topics, "_SILENCE", 0.01)
    table = Taking()
    table.longest = 100
    with carried(table, "i8", WAITING) as (pub, _):
        uid = pub._adapter.uid
        for _ in range(2 * WINDOW + 2):
            pub.send(np.zeros(100, "i8"), timeout=PATIENCE)
        pub.send(np.zeros(3, "i8"), timeout=PATIENCE)
        until(lambda: table.numbers_of(uid) == [2 * WINDOW + 2])


def test_a_link_that_is_slow_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_topics, "_SILENCE", 0.01)
    monkeypatch.setattr(of_topics, "_POLL_SECONDS", 0.01)
    table = Taking()
    with carried(table, "i8", WAITING) as (pub, _):
        uid, outgoing = pub._adapter.uid, table.outgoing
        assert outgoing is not None
        table.outgoing = None  # the far side takes nothing
        for number in range(WINDOW + 1):
            pub.send(np.int64(number), timeout=PATIENCE)
        asked = (wire.BEGIN, WINDOW)
        until(lambda: table.kinds_of(uid)[-1] == asked)
        time.sleep(0.2)  # many times as long as it waits before it asks
        assert table.kinds_of(uid).count(asked) == 1
        outgoing.taken(uid, "far", WINDOW)
        until(lambda: table.numbers_of(uid) == list(range(WINDOW + 1)))
