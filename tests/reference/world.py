# SPDX-License-Identifier: Apache-2.0
"""Real objects beside the model of them: each call is made, and what it gave is judged.

A world has two nodes (an adapter with its queues, in this process or in the child) and a few
connections between them. Its methods are the vocabulary of random programs and of regressions.
Contexts of a node in this process are objects with an identity; a child's come back by value.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from reference.memory import TARGET_FLAGS, Grant, Pieces, Slab, Target, Window, payload
from reference.model import Connection, Notice, Queue, Request, Shared, Side, Violation
from shmnd import CqNotify, MrFlag, NdError, OpFlag, RequestType, Status
from spi.harness import FILL, LOCAL, WAIT, Completion, End

LOST: Final = 3.0
"""Seconds without any progress after which something that must happen never will."""

_SINK: Final = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.RDMA_READ_SINK
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
    """Has each node a receive queue of its own beside its initiator queue?"""
    shared: tuple[bool, bool] = (False, False)
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
        self.shared = Shared(shape.depth) if shape.shared[index] else None
        self.slabs = [
            Slab(end, 3 << 20),
            Slab(end, 3 << 20, private=True),
            Slab(end, 300_000, private=index == 1),
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


class World:
    """Two nodes and their connections, real and as they should be."""

    def __init__(self, ends: tuple[End, End], shape: Shape, remote: int | None = None) -> None:
        self.shape = shape
        self.numbers = itertools.count(1)
        self.requests: dict[int, tuple[Request, Any, Pieces | None]] = {}
        self.pair_of: dict[int, Pair] = {}
        self.marks: dict[int, Any] = {}
        self.nodes = [Node(end, shape, i, i == remote) for i, end in enumerate(ends)]
        self.notices: dict[Notice, tuple[Node, Any]] = {}
        self.owed: set[Queue] = set()
        self.claims: dict[Queue, list[Request]] = {}
        self.resting = True
        self.slots = [self._new_slot() for _ in range(shape.connections)]

    # -- making --

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

    # -- judging calls --

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

    def _post(
        self, pair: Pair, request: Request, context: Any, memory: Pieces | None, call: Any
    ) -> bool:
        """Post a request of a queue pair that is well-formed."""
        side = pair.model
        request.clock = time.monotonic()
        allowed = side.may_post(request.kind, self.resting)
        good, _ = self.call(f"{side.name}: {request}", allowed, call)
        if good:
            self.requests[request.number] = request, context, memory
            side.posted(request)
        elif memory is not None:
            memory.give_back()
        return good

    # -- posting --

    def _memory(self, node: Node, where: int, lengths: list[int]) -> Pieces | None:
        slabs = node.slabs[:2] if where == 3 else [node.slabs[where]]
        return Pieces.take(slabs, lengths)

    def receive(self, pair: Pair, lengths: list[int], where: int = 0, bad: bool = False) -> bool:
        """Post a receive; `bad` names a token that nobody gave out."""
        memory = self._memory(pair.node, where, lengths)
        if memory is None:
            return False
        memory.blank()
        sges, wrong = self._sges(memory, bad, MrFlag.ALLOW_LOCAL_WRITE)
        number, context = self._context(pair.node)
        request = Request(number, RequestType.RECEIVE, sum(lengths), must_fail=wrong)
        request.release = memory.give_back
        shared = pair.node.shared
        if shared is None:
            return self._post(
                pair, request, context, memory, lambda: pair.qp.receive(sges, context)
            )
        full = len(shared.receives) >= shared.depth
        allowed = {Status.NO_MORE_ENTRIES} if full and self.resting else {Status.SUCCESS}
        if full:
            allowed.add(Status.NO_MORE_ENTRIES)
        good, _ = self.call(
            f"{pair.node.name}: shared {request}", allowed, pair.node.end.srq.receive, sges, context
        )
        if good:
            shared.receives.append(request)
            self.requests[number] = request, context, memory
        else:
            memory.give_back()
        return good

    def _sges(self, memory: Pieces, bad: bool, right: int) -> tuple[list[Any], frozenset[Status]]:
        if not bad or not memory.pieces:
            good = memory.registered(right)
            return memory.sges(), frozenset() if good else frozenset({Status.ACCESS_VIOLATION})
        node_end = memory.pieces[0].slab.end
        return [*memory.sges()[:-1], node_end.garbage_sge(memory.pieces[-1].length)], frozenset(
            {Status.ACCESS_VIOLATION}
        )

    def send(
        self, pair: Pair, lengths: list[int], flags: int = 0, where: int = 0, bad: bool = False
    ) -> bool:
        """Post a Send of these pieces."""
        inline = flags & OpFlag.INLINE and sum(lengths) <= self.shape.inline
        flags &= ~(0 if inline else OpFlag.INLINE)
        memory = self._memory(pair.node, where, lengths)
        if memory is None:
            return False
        number, context = self._context(pair.node)
        data = payload(number, sum(lengths))
        memory.put(data)
        sges, wrong = self._sges(memory, bad and not inline, 0)
        if inline:
            wrong = frozenset()
        request = Request(
            number,
            RequestType.SEND,
            len(data),
            silent=bool(flags & OpFlag.SILENT_SUCCESS),
            solicited=bool(flags & OpFlag.SEND_AND_SOLICIT_EVENT),
            must_fail=wrong,
            data=data,
        )
        request.release = memory.give_back
        if inline and not memory.registered():
            return self._nothing(memory)
        good = self._post(
            pair, request, context, memory, lambda: pair.qp.send(sges, context, flags)
        )
        if good and inline:
            memory.put(bytes([FILL]) * len(data))  # captured during the call
        return good

    def _nothing(self, memory: Pieces) -> bool:
        memory.give_back()
        return False

    def write(
        self,
        pair: Pair,
        lengths: list[int],
        grant: Grant,
        start: int,
        flags: int = 0,
        where: int = 0,
        bad: bool = False,
    ) -> bool:
        """Post a Write to where a token leads."""
        inline = flags & OpFlag.INLINE and sum(lengths) <= self.shape.inline
        flags &= ~(0 if inline else OpFlag.INLINE)
        memory = self._memory(pair.node, where, lengths)
        if memory is None:
            return False
        if inline and not memory.registered():
            return self._nothing(memory)
        number, context = self._context(pair.node)
        data = payload(number, sum(lengths))
        memory.put(data)
        sges, wrong = self._sges(memory, bad and not inline, 0)
        request = self._one_sided(RequestType.WRITE, number, pair, grant, start, len(data), flags)
        request.must_fail |= frozenset() if inline else wrong
        request.effect = lambda: grant.target.write(start, data)
        request.release = memory.give_back
        address = grant.target.slab.address + start
        good = self._post(
            pair,
            request,
            context,
            memory,
            lambda: pair.qp.write(sges, address, grant.token, context, flags),
        )
        if good and inline:
            memory.put(bytes([FILL]) * len(data))
        return good

    def read(
        self,
        pair: Pair,
        lengths: list[int],
        grant: Grant,
        start: int,
        flags: int = 0,
        where: int = 0,
        bad: bool = False,
    ) -> bool:
        """Post a Read from where a token leads."""
        memory = self._memory(pair.node, where, lengths)
        if memory is None:
            return False
        memory.blank()
        number, context = self._context(pair.node)
        sges, wrong = self._sges(memory, bad, _SINK)
        length = sum(lengths)
        request = self._one_sided(RequestType.READ, number, pair, grant, start, length, flags)
        request.must_fail |= wrong
        if pair.read_limit == 0:
            request.must_fail |= {Status.INVALID_DEVICE_REQUEST}

        def effect() -> None:
            if memory.get() != grant.target.shadow[start : start + length]:
                raise Violation(f"{pair.model.name}: {request} did not fetch what is there")

        request.effect = effect
        request.release = memory.give_back
        address = grant.target.slab.address + start
        return self._post(
            pair,
            request,
            context,
            memory,
            lambda: pair.qp.read(sges, address, grant.token, context, flags),
        )

    def _one_sided(
        self,
        kind: RequestType,
        number: int,
        pair: Pair,
        grant: Grant,
        start: int,
        length: int,
        flags: int,
    ) -> Request:
        request = Request(number, kind, length, silent=bool(flags & OpFlag.SILENT_SUCCESS))
        right = "r" if kind is RequestType.READ else "w"
        if length and grant.refuses(pair.model, right, start, length):
            request.must_fail = frozenset({Status.ACCESS_VIOLATION})
        elif length and grant.state == "unsure":
            request.may_fail = {Status.ACCESS_VIOLATION}
        request.grant = grant  # type: ignore[attr-defined]
        return request

    def _grant_ends(self, grant: Grant, state: str) -> None:
        """Requests that are under way may come too late for it."""
        grant.state = state
        for request, _, _ in self.requests.values():
            if getattr(request, "grant", None) is grant and request.length:
                request.may_fail.add(Status.ACCESS_VIOLATION)

    # -- windows --

    def bind(self, pair: Pair, window: Window, start: int, length: int, flags: int) -> bool:
        """Bind a window over a stretch of the side's target."""
        side = pair.model
        if window.state == "lost":
            return False
        if flags & OpFlag.ALLOW_WRITE and not pair.target.slab.flags & LOCAL:
            return False
        number, context = self._context(pair.node)
        silent = bool(flags & OpFlag.SILENT_SUCCESS)
        request = Request(number, RequestType.BIND, 0, silent=silent)
        if window.state == "bound":
            doubtful = window.side is None or window.side.connection.may_be_over()
            if doubtful:
                return False
            request.must_fail = frozenset({Status.INVALID_DEVICE_REQUEST})
        address = pair.target.slab.address + start
        posted = self._post(
            pair,
            request,
            context,
            None,
            lambda: pair.qp.bind(
                pair.target.slab.buffer.mr, window.real, address, length, context, flags
            ),
        )
        if not posted or request.must_fail:
            return posted
        rights = "r" * bool(flags & OpFlag.ALLOW_READ) + "w" * bool(flags & OpFlag.ALLOW_WRITE)
        token = window.real.remote_token
        grant = Grant(token, pair.target, start, length, rights, side.other)
        if side.connection.may_be_over():
            grant.state = "unsure"
        window.state, window.grant, window.side = "bound", grant, side
        pair.grants.append(grant)

        def over() -> None:
            if not succeeded:
                window.state = "lost"
                self._grant_ends(grant, "unsure")

        succeeded: list[bool] = []
        request.effect = lambda: succeeded.append(True)
        request.release = over
        return posted

    def invalidate(self, pair: Pair, window: Window, flags: int = 0) -> bool:
        """Take a window's token back."""
        if window.state == "lost":
            return False
        number, context = self._context(pair.node)
        silent = bool(flags & OpFlag.SILENT_SUCCESS)
        request = Request(number, RequestType.INVALIDATE, 0, silent=silent)
        grant = window.grant
        if window.state != "bound" or window.side is not pair.model:
            request.must_fail = frozenset({Status.INVALID_DEVICE_REQUEST})
        posted = self._post(
            pair,
            request,
            context,
            None,
            lambda: pair.qp.invalidate(window.real, context, flags),
        )
        if not posted or request.must_fail:
            return posted
        assert grant is not None
        self._grant_ends(grant, "unsure")
        window.state, window.grant, window.side = "free", None, None
        request.effect = lambda: self._grant_ends(grant, "dead")

        def over() -> None:
            if grant.state != "dead" and window.state == "free":
                window.state = "lost"

        request.release = over
        return posted

    # -- calls on a queue pair and its connector --

    def flush(self, pair: Pair) -> None:
        pair.model.flush()
        self.call(f"{pair.model.name}: flush", {Status.SUCCESS}, pair.qp.flush)

    def connect(self, slot: int, swapped: bool) -> bool:
        """The whole dance, with either side active."""
        active, passive = self.slots[slot][::-1] if swapped else self.slots[slot]
        if not self._fresh(active, passive):
            return False
        asking = self._ask(active, passive)
        limits = self.shape.read_limits
        accepting = passive.node.accept(passive.connector.accept(passive.qp, *limits))
        asking.result(timeout=WAIT)
        active.node.accept(active.connector.complete_connect()).result(timeout=WAIT)
        accepting.result(timeout=WAIT)
        active.model.connection.open()
        for pair in (active, passive):
            pair.read_limit = pair.connector.get_read_limits()[1]
        self.resting = False
        return True

    def refuse(self, slot: int, swapped: bool, late: bool) -> bool:
        """A dance that comes to nothing, before or after Accept; the queue pairs are as before."""
        active, passive = self.slots[slot][::-1] if swapped else self.slots[slot]
        if not self._fresh(active, passive):
            return False
        asking = self._ask(active, passive)
        if late:
            accepting = passive.node.accept(passive.connector.accept(passive.qp, 1, 1))
            asking.result(timeout=WAIT)
            active.connector.reject()
            status = _final(accepting)
        else:
            passive.connector.reject()
            status = _final(asking)
        if status is not Status.CONNECTION_REFUSED:
            raise Violation(f"a refused connection ended with {status.name}")
        for pair in (active, passive):
            pair.connector.close()
            pair.connector = pair.node.end.new_connector()
        self.resting = False
        return True

    def _fresh(self, *pairs: Pair) -> bool:
        return not any(pair.model.connected or pair.model.closed for pair in pairs)

    def _ask(self, active: Pair, passive: Pair) -> Any:
        limits = self.shape.read_limits
        offered = passive.node.accept(
            passive.node.end.listener.get_connection_request(passive.connector)
        )
        asking = active.node.accept(
            active.connector.connect(active.qp, passive.node.address, *limits)
        )
        offered.result(timeout=WAIT)
        return asking

    def notify_disconnect(self, pair: Pair) -> None:
        side = pair.model
        allowed = {Status.SUCCESS}
        if not side.connected or side.closed:
            allowed = {Status.CONNECTION_INVALID}
        good, overlapped = self.call(
            f"{side.name}: notify_disconnect", allowed, pair.connector.notify_disconnect
        )
        if good:
            pair.notified.append(pair.node.accept(overlapped))

    def disconnect(self, pair: Pair) -> None:
        side = pair.model
        allowed = {Status.SUCCESS}
        if not side.connected or side.closed:
            allowed = {Status.CONNECTION_INVALID}
        good, overlapped = self.call(f"{side.name}: disconnect", allowed, pair.connector.disconnect)
        if good:
            pair.disconnecting = pair.node.accept(overlapped)
            self._ended(pair)

    def close_queue_pair(self, pair: Pair) -> None:
        self.call(f"{pair.model.name}: close", {Status.SUCCESS}, pair.qp.close)
        self._ended(pair)

    def close_connector(self, pair: Pair) -> None:
        """Release of a connected connector disconnects."""
        if not pair.model.connected:
            return
        self.call(f"{pair.model.name}: close connector", {Status.SUCCESS}, pair.connector.close)
        self._ended(pair)

    def _ended(self, pair: Pair) -> None:
        pair.model.connection.close(pair.model)

    def renew(self, slot: int) -> bool:
        """New queue pairs, where both are through."""
        pairs = self.slots[slot]
        if not all(pair.model.closed for pair in pairs):
            return False
        self.settle()
        self._retire(pairs)
        self.slots[slot] = self._new_slot()
        return True

    def _retire(self, pairs: tuple[Pair, Pair]) -> None:
        for pair in pairs:
            pair.model.leave()
            for window in pair.node.windows:
                if window.side is pair.model:
                    window.state = "lost"

    # -- completion queues --

    def notify(self, node: Node, role: str, kind: CqNotify) -> None:
        queue, real = node.queues[role]
        self._look_at_notices(queue)
        notice = Notice(kind)
        queue.notices.append(notice)
        _, overlapped = self.call(f"{queue.name}: notify", {Status.SUCCESS}, real.notify, kind)
        self.notices[notice] = node, node.accept(overlapped)
        self._look_at_notices(queue)

    def cancel_notices(self, node: Node, role: str) -> None:
        queue, real = node.queues[role]
        self.call(f"{queue.name}: cancel", {Status.SUCCESS}, real.cancel_overlapped_requests)
        for notice in queue.notices:
            status = self.notices[notice][1].status
            queue.told = queue.told or status is Status.SUCCESS
            if status not in (Status.CANCELED, Status.SUCCESS):
                raise Violation(f"{queue.name}: a Notify is {status.name} after cancel")
            notice.done = True
        queue.notices.clear()

    def _look_at_notices(self, queue: Queue) -> list[Notice]:
        """Those that are done by now."""
        for _ in range(2):  # a look at one may end another
            done = [notice for notice in queue.notices if self._is_done(self.notices[notice][1])]
        for notice in done:
            notice.done = True
            queue.notices.remove(notice)
        if done:
            if queue.notices:
                raise Violation(f"{queue.name}: one event completed only some Notify requests")
            if all(notice.kind is CqNotify.ERRORS for notice in done):
                raise Violation(f"{queue.name}: a Notify for ERRORS completed without one")
            queue.told = True
            self.owed.add(queue)
        return done

    def _is_done(self, overlapped: Any) -> bool:
        return bool(overlapped.done())

    def _results(self, real: Any, most: int) -> list[Completion]:
        return [Completion.of(result) for result in real.get_results(most)]

    def drain(self, node: Node, role: str, most: int = 64) -> int:
        """Take up to `most` completions, and judge them."""
        queue, real = node.queues[role]
        now = time.monotonic()
        for pair in itertools.chain(*self.slots):
            pair.model.connection.clock = now
        certain = not queue.told
        results = self._results(real, most)
        if len(results) > most:
            raise Violation(f"{queue.name}: {len(results)} results, {most} were asked for")
        must: set[Notice] = set()
        for completion in results:
            must.update(queue.satisfied(Status(completion.status)))
            self._judge(queue, completion)
        if len(results) < most:
            queue.told = False
        self._look_at_notices(queue)
        if results:
            self.owed.discard(queue)
            self.resting = False
        if certain and any(not notice.done for notice in must):
            raise Violation(f"{queue.name}: completions came, and a Notify still waits")
        return len(results)

    def _judge(self, queue: Queue, completion: Completion) -> None:
        """Whose completion it is, and whether it may be so."""
        number = self._number(completion.request_context)
        found = self.requests.pop(number, None)
        if found is None:
            raise Violation(f"{queue.name}: {completion} belongs to no outstanding request")
        request, context, memory = found
        self._same(completion.request_context, context)
        pair_number = self._number(completion.queue_pair_context)
        pair = self.pair_of.get(pair_number)
        if pair is None:
            raise Violation(f"{queue.name}: {completion} names no queue pair")
        self._same(completion.queue_pair_context, self.marks[pair_number])
        side = pair.model
        if completion.request_type is not request.kind:
            raise Violation(f"{queue.name}: {completion} is of another kind than {request}")
        own = side.receive_queue if request.kind is RequestType.RECEIVE else side.initiator_queue
        if own is not queue:
            raise Violation(f"{queue.name}: {request} belongs to {own.name}")
        status = Status(completion.status)
        data = b""
        if request.kind is RequestType.RECEIVE and status is Status.SUCCESS:
            assert memory is not None
            data = self._received(side, request, memory, completion.bytes_transferred)
        elif completion.bytes_transferred:
            raise Violation(f"{side.name}: {request} has {completion.bytes_transferred} bytes")
        side.take(request, status, data)
        if side.connection.over:
            self._lose_windows(side)

    def _received(self, side: Side, request: Request, memory: Pieces, nbytes: int) -> bytes:
        held = memory.get()
        if nbytes > request.length or held[nbytes:].strip(bytes([FILL])):
            raise Violation(f"{side.name}: {request} got {nbytes} bytes, and wrote beyond them")
        return held[:nbytes]

    def _lose_windows(self, side: Side) -> None:
        for node in self.nodes:
            for window in node.windows:
                if window.side in (side, side.other) and window.state == "bound":
                    assert window.grant is not None
                    window.state = "lost"
                    self._grant_ends(window.grant, "unsure")

    def _number(self, context: Any) -> int:
        return context.number if isinstance(context, Mark) else int(context)

    def _same(self, got: Any, given: Any) -> None:
        if isinstance(given, Mark) and got is not given:
            raise Violation(f"{got!r} is not the context that was given, only like it")

    def resize(self, node: Node, role: str, depth: int) -> None:
        queue, real = node.queues[role]
        allowed = {Status.SUCCESS}
        if depth < queue.most():
            allowed.add(Status.BUFFER_OVERFLOW)
        good, _ = self.call(f"{queue.name}: resize to {depth}", allowed, real.resize, depth)
        if good:
            queue.depth = depth

    # -- regions --

    def deregister(self, node: Node) -> bool:
        slab = node.loose
        if not slab.registered:
            return False
        self.call(f"{node.name}: deregister", {Status.SUCCESS}, slab.deregister)
        for request, _, memory in self.requests.values():
            if memory is not None and memory.touch(slab):
                request.may_fail.add(Status.ACCESS_VIOLATION)
        return True

    def register(self, node: Node, flags: int) -> bool:
        slab = node.loose
        if slab.registered or not slab.leaving.done():
            return False
        self.call(f"{node.name}: register", {Status.SUCCESS}, slab.register, flags)
        return True

    # -- rest --

    def settle(self) -> None:
        """Poll both sides until nothing happens any more; then nothing may be left undone."""
        moved, rounds = time.monotonic(), 0
        while True:
            got = sum(self.drain(node, role) for node in self.nodes for role in _roles(node))
            rounds = 0 if got else rounds + 1
            now = time.monotonic()
            if got:
                moved = now
            trouble = self._unsettled() if rounds > 2 else "not at rest"
            if not trouble:
                break
            if rounds > 100 and now - moved > LOST:
                raise Violation(trouble)
        for slot in self.slots:
            slot[0].model.connection.settle()
        self._check_targets()
        self._check_files()
        for window in itertools.chain(*(node.windows for node in self.nodes)):
            if window.state == "lost":
                self._replace(window)
        self.resting = True

    def _unsettled(self) -> str:
        for pair in itertools.chain(*self.slots):
            side = pair.model
            trouble = side.connection.unsettled()
            if trouble:
                return trouble
            over = side.connection.over
            if over and side.connected and not all(map(self._is_done, pair.notified)):
                return f"{side.name}: nobody was told of the end"
            if not over and any(map(self._is_done, pair.notified)):
                raise Violation(f"{side.name}: told of an end, and the connection goes on")
            if pair.disconnecting is not None and not self._is_done(pair.disconnecting):
                return f"{side.name}: Disconnect does not end"
        for node in self.nodes:
            if node.loose.leaving is not None and not self._is_done(node.loose.leaving):
                return f"{node.name}: Deregister does not end"
        for queue in self.owed:
            return f"{queue.name}: a Notify completed, and there is no completion"
        return ""

    def _check_targets(self) -> None:
        for pair in itertools.chain(*self.slots):
            target = pair.target
            if target.dirty and target.slab.buffer.get() != target.shadow:
                raise Violation(f"{pair.model.name}: memory holds what nobody wrote there")
            target.dirty = False
        for node in self.nodes:
            slab = node.loose
            if slab.leaving is None:
                continue
            held = slab.buffer.get()
            if slab.frozen is not None and held != slab.frozen:
                raise Violation(f"{node.name}: deregistered memory was written to")
            slab.frozen = bytearray(held)

    def _check_files(self) -> None:
        for node in self.nodes:
            for overlapped in node.file.poll():
                if node.accepted.get(overlapped, True):
                    raise Violation(f"{node.name}: {overlapped} delivered twice, or never accepted")
                node.accepted[overlapped] = True
            for overlapped, delivered in list(node.accepted.items()):
                if not delivered and overlapped.done():
                    late = node.file.poll()
                    if overlapped not in late:
                        raise Violation(f"{node.name}: {overlapped} was not delivered")
                    for other in late:
                        node.accepted[other] = True
                if node.accepted[overlapped]:
                    del node.accepted[overlapped]

    def _replace(self, window: Window) -> None:
        window.real.close()
        if window.grant is not None:
            window.grant.state = "dead"
        node = next(node for node in self.nodes if window in node.windows)
        node.windows[node.windows.index(window)] = Window(node.end.adapter.create_memory_window())

    def dispose(self) -> None:
        """Let go of the memory now: whoever looks at a failure may hold on to the rest."""
        targets = [pair.target.slab for pair in self.pair_of.values()]
        for slab in itertools.chain(targets, *(node.slabs for node in self.nodes)):
            slab.buffer.mr.close()
            slab.drop()
        self.requests.clear()
        self.notices.clear()
        self.pair_of.clear()
        self.slots.clear()

    def finish(self) -> None:
        """End everything in order, and look once more."""
        self.settle()
        for pair in itertools.chain(*self.slots):
            if pair.model.connected and not pair.model.closed:
                self.disconnect(pair)
        self.settle()


def _roles(node: Node) -> list[str]:
    same = node.queues["receive"] is node.queues["initiator"]
    return ["initiator"] if same else ["initiator", "receive"]


def _final(overlapped: Any) -> Status:
    try:
        overlapped.result(timeout=WAIT)
    except NdError as error:
        return Status(error.status)
    return Status.SUCCESS
