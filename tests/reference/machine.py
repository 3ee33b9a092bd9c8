# SPDX-License-Identifier: Apache-2.0
"""Random programs over a world, as a state machine of hypothesis.

A failing program is printed as calls of this machine's methods, which can be repeated as they
stand: `Machine` needs nothing of hypothesis once it is made.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from reference.memory import Grant, Window
from reference.stage import Pair, Shape
from reference.world import World
from shmnd import CqNotify, MrFlag
from spi.harness import LOCAL, REMOTE
from spi.remote import Ends, RemoteProcess

# Around each bound where another way of moving a message begins, and beyond the largest.
SIZES: Final = (
    0, 1, 8, 40, 47, 48, 49, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049,
    3575, 3576, 3577, 4096, 16383, 16384, 16385, 65535, 65536, 65537, 131071, 131072, 200_000,
    700_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1,
)  # fmt: skip

_size = st.sampled_from(SIZES)
_slot = st.integers(0, 2)
_end = st.integers(0, 1)
_cuts = st.integers(1, 4)
_where = st.sampled_from((0, 0, 1, 1, 2, 3, 4, 5))
_bad = st.sampled_from((False,) * 40 + (True,))
_flags = st.sampled_from((0, 1, 2, 3, 4, 5, 0x20, 0x21, 0x24))
_role = st.sampled_from(("initiator", "receive"))
_rarely = st.sampled_from((False,) * 7 + (True,))


def cut(length: int, count: int) -> list[int]:
    """Lengths of `count` pieces that make up `length`, uneven where they can be."""
    pieces = []
    for left in range(count, 1, -1):
        pieces.append(length // (left + 1))
        length -= pieces[-1]
    return [*pieces, length]


class Machine(RuleBasedStateMachine):
    """A world of two nodes; the subclass in a test says where they live."""

    remote: ClassVar[RemoteProcess | None] = None
    """The child that holds the second node; None: both live here."""
    world_type: ClassVar[type[World]] = World
    patience: ClassVar[float] = 120.0

    def __init__(self) -> None:
        super().__init__()
        self.ends: Ends | None = None
        self.world: World | None = None

    @initialize(
        connections=st.integers(1, 3),
        depth=st.sampled_from((3, 6, 64)),
        cq_depth=st.sampled_from((1, 4, 16, 256)),
        separate=st.tuples(st.booleans(), st.booleans()),
        shared=st.tuples(st.booleans(), st.booleans()),
        thresholds=st.sampled_from(((0, 0), (0, 3), (2, 2))),
        read_limits=st.sampled_from(((4, 4), (1, 1), (4, 0))),
        connected=st.booleans(),
    )
    def begin(
        self,
        connections: int = 1,
        depth: int = 6,
        cq_depth: int = 16,
        separate: tuple[bool, bool] = (False, False),
        shared: tuple[bool, bool] = (False, False),
        thresholds: tuple[int, int] = (0, 0),
        read_limits: tuple[int, int] = (4, 4),
        connected: bool = True,
    ) -> None:
        """Make the world; most programs begin with connections."""
        shape = Shape(
            connections=connections,
            depth=depth,
            cq_depth=cq_depth,
            separate=separate,
            shared=shared,
            thresholds=thresholds,
            read_limits=read_limits,
            patience=self.patience,
        )
        remote = type(self).remote
        self.ends = ends = Ends(remote or RemoteProcess())
        options: list[dict[str, Any]] = [
            {
                "srq": is_shared,
                "srq_depth": depth,
                "srq_threshold": threshold,
                "rnr_timeout": self.patience,
            }
            for is_shared, threshold in zip(shared, thresholds, strict=True)
        ]
        one = ends.here(**options[0])
        two = ends.there(**options[1]) if remote else ends.here(**options[1])
        self.world = self.world_type((one, two), shape, 1 if remote else None)
        if connected:
            for slot in range(connections):
                self.world.connect(slot, slot % 2 == 1)

    # -- picking --

    @property
    def w(self) -> World:
        assert self.world is not None
        return self.world

    def _pair(self, slot: int, end: int) -> Pair:
        return self.w.slots[slot % len(self.w.slots)][end]

    def _window(self, pair: Pair, window: int) -> Window:
        return pair.node.windows[window % len(pair.node.windows)]

    def _grant(self, pair: Pair, pick: int, stray: bool) -> Grant:
        """A token of the peer; rarely one of another connection's windows, or an unknown one."""
        grants = pair.other.grants
        if stray:
            others = [g for slot in self.w.slots for p in slot for g in p.grants if g.only]
            grants = [g for g in others if g.only is not pair.model] or [self._unknown_grant(pair)]
        return grants[-1 - pick % len(grants)]

    def _unknown_grant(self, pair: Pair) -> Grant:
        return Grant(0xFFFFFFFE, pair.other.target, 0, 1 << 20, "rw", state="dead")

    # -- rules --

    @rule(slot=_slot, swapped=st.booleans())
    def connect(self, slot: int, swapped: bool = False) -> None:
        self.w.connect(slot % len(self.w.slots), swapped)

    @rule(slot=_slot, swapped=st.booleans(), late=st.booleans())
    def refuse(self, slot: int, swapped: bool = False, late: bool = False) -> None:
        self.w.refuse(slot % len(self.w.slots), swapped, late)

    @rule(slot=_slot, end=_end, size=_size, cuts=_cuts, where=_where, bad=_bad)
    def receive(
        self, slot: int, end: int, size: int, cuts: int = 1, where: int = 0, bad: bool = False
    ) -> None:
        self.w.receive(self._pair(slot, end), cut(size, cuts), where, bad)

    @rule(slot=_slot, end=_end, size=_size, count=st.integers(2, 6))
    def receives(self, slot: int, end: int, size: int, count: int) -> None:
        """Several at once, so that messages do not always have to wait."""
        for number in range(count):
            self.w.receive(self._pair(slot, end), cut(size, 1 + number % 3), number % 3)

    @rule(slot=_slot, end=_end, size=_size, cuts=_cuts, where=_where, flags=_flags, bad=_bad)
    def send(
        self,
        slot: int,
        end: int,
        size: int,
        cuts: int = 1,
        where: int = 0,
        flags: int = 0,
        bad: bool = False,
    ) -> None:
        self.w.send(self._pair(slot, end), cut(size, cuts), flags, where, bad)

    @rule(slot=_slot, end=_end, size=_size, count=st.integers(2, 6), where=_where, flags=_flags)
    def meet(
        self, slot: int, end: int, size: int, count: int, where: int = 0, flags: int = 0
    ) -> None:
        """Sends of one size with the receives for them, before or after."""
        pair = self._pair(slot, end)
        for number in range(count):
            if number % 2:
                self.w.send(pair, cut(size, 1 + number % 2), flags, where)
            self.w.receive(pair.other, cut(size, 1 + number % 3), number % 3)
            if not number % 2:
                self.w.send(pair, [size], flags, number % 3)

    @rule(
        end=_end,
        rates=st.tuples(*[st.integers(0, 5)] * 3),
        size=_size,
        turns=st.integers(2, 8),
        where=_where,
        silent=st.booleans(),
    )
    def crowd(
        self,
        end: int,
        rates: tuple[int, ...],
        size: int,
        turns: int = 4,
        where: int = 0,
        silent: bool = False,
    ) -> None:
        """Clients with different rates, and an end that takes one result at a time.

        It finds a result at each poll, and never an empty queue.
        """
        for turn in range(turns):
            for slot, rate in zip(self.w.slots, rates, strict=False):
                for number in range(rate):
                    lengths = cut(size, 1 + (turn + number) % 3)
                    self.w.receive(slot[end], lengths, (where + turn) % 6)
                    self.w.send(slot[end].other, lengths, int(silent), where)
            self.w.drain(self.w.nodes[end], "receive", 1)

    @rule(
        slot=_slot, end=_end, size=_size, cuts=_cuts, where=_where, flags=_flags, bad=_bad,
        pick=st.integers(0, 3), stray=_bad, start=st.sampled_from((0, 1, 8, 4096, 150_000)),
        reading=st.booleans(),
    )  # fmt: skip
    def one_sided(
        self,
        slot: int,
        end: int,
        size: int,
        pick: int = 0,
        start: int = 0,
        reading: bool = False,
        cuts: int = 1,
        where: int = 0,
        flags: int = 0,
        bad: bool = False,
        stray: bool = False,
    ) -> None:
        """A Read or a Write by one of the peer's tokens."""
        pair = self._pair(slot, end)
        grant = self._grant(pair, pick, stray)
        start += grant.start
        if not bad and start + size > grant.start + grant.length:
            size = max(0, min(size, grant.start + grant.length - start))
        pieces = cut(size, cuts)
        if reading:
            self.w.read(pair, pieces, grant, start, flags & 3, where, bad)
        else:
            self.w.write(pair, pieces, grant, start, flags & 0x23, where, bad)

    @rule(
        slot=_slot, end=_end, window=st.integers(0, 2), start=st.sampled_from((0, 3, 5000)),
        length=st.sampled_from((0, 64, 70_000)), flags=st.sampled_from((0, 8, 16, 24, 25, 26)),
        again=_rarely,
    )  # fmt: skip
    def bind(
        self,
        slot: int,
        end: int,
        window: int,
        start: int = 0,
        length: int = 64,
        flags: int = 24,
        again: bool = False,
    ) -> None:
        pair = self._pair(slot, end)
        target = self._window(pair, window)
        if target.state == "free" or again:
            self.w.bind(pair, target, start, length, flags)

    @rule(slot=_slot, end=_end, window=st.integers(0, 2), flags=st.integers(0, 3), again=_bad)
    def invalidate(
        self, slot: int, end: int, window: int, flags: int = 0, again: bool = False
    ) -> None:
        pair = self._pair(slot, end)
        target = self._window(pair, window)
        if (target.state == "bound" and target.side is pair.model) or again:
            self.w.invalidate(pair, target, flags)

    @rule(slot=_slot, end=_end, really=_rarely)
    def flush(self, slot: int, end: int, really: bool = True) -> None:
        if really:
            self.w.flush(self._pair(slot, end))

    @rule(slot=_slot, end=_end, how=st.integers(0, 2), really=_rarely)
    def leave(self, slot: int, end: int, how: int = 0, really: bool = True) -> None:
        """Disconnect, or release the queue pair or the connector."""
        pair = self._pair(slot, end)
        if really:
            (self.w.disconnect, self.w.close_queue_pair, self.w.close_connector)[how](pair)

    @rule(slot=_slot)
    def renew(self, slot: int) -> None:
        self.w.renew(slot % len(self.w.slots))

    @rule(slot=_slot, end=_end)
    def notify_disconnect(self, slot: int, end: int) -> None:
        self.w.notify_disconnect(self._pair(slot, end))

    @rule(end=_end, role=_role, kind=st.sampled_from(list(CqNotify)))
    def notify(self, end: int, role: str = "initiator", kind: CqNotify = CqNotify.ANY) -> None:
        self.w.notify(self.w.nodes[end], role, kind)

    @rule(end=_end, role=_role)
    def cancel_notices(self, end: int, role: str) -> None:
        self.w.cancel_notices(self.w.nodes[end], role)

    @rule(
        end=_end,
        depth=st.sampled_from((0, 0, 1, 3, 6, 80)),
        threshold=st.sampled_from((0, 1, 2, 5)),
    )
    def modify_shared(self, end: int, depth: int = 0, threshold: int = 0) -> None:
        self.w.modify_shared(self.w.nodes[end], depth, threshold)

    @rule(end=_end)
    def notify_shared(self, end: int) -> None:
        self.w.notify_shared(self.w.nodes[end])

    @rule(end=_end, really=_rarely)
    def cancel_shared(self, end: int, really: bool = True) -> None:
        if really:
            self.w.cancel_shared(self.w.nodes[end])

    @rule(end=_end, role=_role, depth=st.sampled_from((1, 2, 4, 16, 300)))
    def resize(self, end: int, role: str, depth: int) -> None:
        self.w.resize(self.w.nodes[end], role, depth)

    @rule(end=_end, role=_role, most=st.sampled_from((1, 2, 64)))
    def drain(self, end: int, role: str = "initiator", most: int = 64) -> None:
        self.w.drain(self.w.nodes[end], role, most)

    @rule(end=_end)
    def hear_alone(self, end: int) -> None:
        """One end polls; the other computes."""
        self.w.hear_alone(self.w.nodes[end])

    @rule(end=_end, really=_rarely)
    def deregister(self, end: int, really: bool = True) -> None:
        if really:
            self.w.deregister(self.w.nodes[end])

    @rule(end=_end, flags=st.sampled_from((LOCAL, LOCAL | REMOTE, 0, MrFlag.RDMA_READ_SINK)))
    def register(self, end: int, flags: int = LOCAL) -> None:
        self.w.register(self.w.nodes[end], flags)

    @precondition(lambda self: self.world is not None)
    @rule()
    def settle(self) -> None:
        self.w.settle()

    def teardown(self) -> None:
        """After a program that did nothing wrong, its end is judged too."""
        try:
            if self.world is not None and sys.exc_info()[0] is None:
                self.world.finish()
        finally:
            if self.world is not None:
                self.world.dispose()
            self.world = None
            ends, self.ends = self.ends, None
            if ends is not None:
                ends.close()
            remote = type(self).remote
            if remote is not None:
                remote.reset()


def program(machine: type[Machine], *steps: Any) -> None:
    """Run a fixed program: ("name", {arguments}) each."""
    running = machine()
    try:
        for name, arguments in steps:
            getattr(running, name)(**arguments)
        running.w.settle()
    finally:
        running.teardown()
