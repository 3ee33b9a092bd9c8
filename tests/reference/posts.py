# SPDX-License-Identifier: Apache-2.0
"""Requests of the random programs that move data: Receive, Send, Read and Write; and Flush."""

from __future__ import annotations

import time
from typing import Any, Final

from reference.memory import Grant, Pieces, payload
from reference.model import Request, Violation
from reference.shared import SharedQueues
from reference.stage import Node, Pair
from shmnd import MrFlag, OpFlag, RequestType, Status
from spi.harness import FILL

_SINK: Final = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.RDMA_READ_SINK


class Posts(SharedQueues):
    """Requests of queue pairs, well-formed and wrong ones."""

    def _post(
        self, pair: Pair, request: Request, context: Any, memory: Pieces | None, call: Any
    ) -> bool:
        """Post a request of a queue pair that is well-formed."""
        side = pair.model
        # Any look since the last poll may have found that a Send of it waited too long.
        request.clock = side.connection.clock = time.monotonic()
        allowed = side.may_post(request.kind, self.resting)
        good, _ = self.call(f"{side.name}: {request}", allowed, call)
        if good:
            self.requests[request.number] = request, context, memory
            side.posted(request)
        elif memory is not None:
            memory.give_back()
        return good

    def _memory(self, node: Node, where: int, lengths: list[int]) -> Pieces | None:
        mixed = {3: (0, 1), 5: (3, 1, 0)}
        slabs = [node.slabs[each] for each in mixed.get(where, (where if where < 3 else 3,))]
        return Pieces.take(slabs, lengths)

    def receive(self, pair: Pair, lengths: list[int], where: int = 0, bad: bool = False) -> bool:
        """Post a receive; `bad` names a token that was never granted."""
        memory = self._memory(pair.node, where, lengths)
        if memory is None:
            return False
        memory.blank()
        sges, wrong = self._sges(memory, bad, MrFlag.ALLOW_LOCAL_WRITE)
        number, context = self._context(pair.node)
        request = Request(number, RequestType.RECEIVE, sum(lengths), must_fail=wrong)
        request.release = memory.give_back
        if pair.node.shared is not None:
            return self.receive_shared(pair.node, request, context, memory, sges)
        return self._post(pair, request, context, memory, lambda: pair.qp.receive(sges, context))

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
            pair, request, context, memory, lambda: pair.qp.send(sges, context, flags=flags)
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
            lambda: pair.qp.write(sges, address, grant.token, context, flags=flags),
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
                raise Violation(f"{pair.model.name}: {request} did not fetch the present data")

        request.effect = effect
        request.release = memory.give_back
        address = grant.target.slab.address + start
        return self._post(
            pair,
            request,
            context,
            memory,
            lambda: pair.qp.read(sges, address, grant.token, context, flags=flags),
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

    def flush(self, pair: Pair) -> None:
        pair.model.flush()
        self.call(f"{pair.model.name}: flush", {Status.SUCCESS}, pair.qp.flush)
