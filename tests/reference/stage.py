# SPDX-License-Identifier: Apache-2.0
"""What random programs act on: two nodes, their connections, and how a call is made.

Every real object has its model. Contexts of a node in this process are objects with
an identity; a child's come back by value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from reference.memory import TARGET_FLAGS, Grant, Pieces, Slab, Target, Window
from reference.model import Alarm, Connection, Notice, Queue, Request, Shared, Side, Violation
from shmnd import NdError, Status
from spi.harness import End

_TARGET: Final = 160 << 10


class Mark:
    """A context: equal to nothing but itself."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"<Mark {self.number}>"


@dataclass(frozen=True)
class Shape:
    """What a world is made of."""

    connections: int = 2
    depth: int = 6
    cq_depth: int = 8
    inline: int = 256
    separate: tuple[bool, bool] = (False, True)
    """Has each node a receive queue of its own in addition to its initiator queue?"""
    shared: tuple[bool, bool] = (False, False)
    thresholds: tuple[int, int] = (0, 0)
    """Of the shared receive queues."""
    read_limits: tuple[int, int] = (4, 4)
    patience: float = 120.0


class Node:
    """An adapter with its queues and memory."""

    def __init__(self, end: End, shape: Shape, index: int, remote: bool) -> None:
        self.end = end
        self.name = "AB"[index]
        self.remote = remote
        self.queues = {"initiator": self._queue("initiator", shape)}
        self.queues["receive"] = self.queues["initiator"]
        if shape.separate[index]:
            self.queues["receive"] = self._queue("receive", shape)
        self.shared = Shared(shape.depth, shape.thresholds[index]) if shape.shared[index] else None
        self.slabs = [
            Slab(end, 3 << 20),
            Slab(end, 3 << 20, private=True),
            Slab(end, 300_000, private=index == 1),
            Slab(end, 3 << 20, peers="read"),
        ]
        self.windows = [Window(end.adapter.create_memory_window()) for _ in range(3)]
        self.file = end.file
        self.accepted: dict[Any, bool] = {}
        self.address = end.listen()

    def _queue(self, role: str, shape: Shape) -> tuple[Queue, Any]:
        return Queue(f"{self.name} {role}", shape.cq_depth), self.end.new_cq(shape.cq_depth)

    @property
    def loose(self) -> Slab:
        """The slab that programs deregister and register again."""
        return self.slabs[2]

    def accept(self, overlapped: Any) -> Any:
        """Remember an operation: its file has to deliver it, once."""
        self.accepted[overlapped] = False
        return overlapped


class Pair:
    """One side of a connection: the model of it, the queue pair and the connector."""

    def __init__(self, node: Node, model: Side, qp: Any, target: Target) -> None:
        self.node = node
        self.model = model
        self.qp = qp
        self.target = target
        self.connector = node.end.new_connector()
        self.other: Pair
        self.disconnecting: Any = None
        self.notified: list[Any] = []
        self.grants: list[Grant] = []
        self.released = False
        self.read_limit = 0


class Stage:
    """Two nodes and their connections, real and as they should be."""

    def __init__(self, ends: tuple[End, End], shape: Shape, remote: int | None = None) -> None:
        self.shape = shape
        self.numbers = itertools.count(1)
        self.requests: dict[int, tuple[Request, Any, Pieces | None]] = {}
        self.pair_of: dict[int, Pair] = {}
        self.marks: dict[int, Any] = {}
        self.nodes = [Node(end, shape, i, i == remote) for i, end in enumerate(ends)]
        self.notices: dict[Notice, tuple[Node, Any]] = {}
        self.alarms: dict[Alarm, Any] = {}
        self.owed: set[Queue] = set()
        self.resting = True
        self.slots = [self._new_slot() for _ in range(shape.connections)]

    def _context(self, node: Node) -> tuple[int, Any]:
        number = next(self.numbers)
        context = number if node.remote else Mark(number)
        self.marks[number] = context
        return number, context

    def _new_slot(self) -> tuple[Pair, Pair]:
        one, two = (self._new_pair(node) for node in self.nodes)
        one.other, two.other = two, one
        Connection(one.model, two.model, self.shape.patience)
        return one, two

    def _new_pair(self, node: Node) -> Pair:
        number, context = self._context(node)
        shape = self.shape
        receive, initiator = node.queues["receive"], node.queues["initiator"]
        model = Side(
            f"{node.name}{number}", receive[0], initiator[0], shape.depth, shape.depth, node.shared
        )
        options = {
            "receive_cq": receive[1],
            "initiator_cq": initiator[1],
            "context": context,
            "initiator_depth": shape.depth,
            "inline_size": shape.inline,
        }
        if node.shared is None:
            options["receive_depth"] = shape.depth
        qp = node.end.new_qp(**options)
        flags = TARGET_FLAGS[number % len(TARGET_FLAGS)]
        target = Target.of(node.end, _TARGET, flags, private=number % 2 == 1)
        pair = Pair(node, model, qp, target)
        pair.grants.append(target.grant())
        self.pair_of[number] = pair
        return pair

    def call(
        self, what: str, allowed: set[Status], method: Callable[..., Any], *args: Any, **named: Any
    ) -> tuple[bool, Any]:
        """Make a call; whether it was accepted, and what it gave."""
        status, value = Status.SUCCESS, None
        try:
            value = method(*args, **named)
        except NdError as error:
            status = Status(error.status)
        if status not in allowed:
            names = ", ".join(sorted(each.name for each in allowed))
            raise Violation(f"{what} gave {status.name}, not {names}")
        self.resting = False
        return status is Status.SUCCESS, value

    def over_of(self, operations: list[Any]) -> list[bool]:
        """Which of them are over: all that one event ended, though a poll of one ends others."""
        over = [False] * len(operations)
        while (now := [self._is_done(operation) for operation in operations]) != over:
            over = now
        return over

    def _is_done(self, overlapped: Any) -> bool:
        return bool(overlapped.done())

    def _grant_ends(self, grant: Grant, state: str) -> None:
        """Requests that are under way may come too late for it."""
        grant.state = state
        for request, _, _ in self.requests.values():
            if getattr(request, "grant", None) is grant and request.length:
                request.may_fail.add(Status.ACCESS_VIOLATION)
