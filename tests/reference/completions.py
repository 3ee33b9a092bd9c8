# SPDX-License-Identifier: Apache-2.0
"""Completion queues of the random programs: Notify, Resize, and whose each completion is."""

from __future__ import annotations

import itertools
import time
from typing import Any

from reference.memory import Pieces
from reference.model import Notice, Queue, Request, Side, Violation
from reference.stage import Mark, Node, Stage
from shmnd import CqNotify, RequestType, Status
from spi.harness import FILL, Completion


class Completions(Stage):
    """What programs do with a completion queue, and how its results are judged."""

    def notify(self, node: Node, role: str, kind: CqNotify) -> None:
        queue, real = node.queues[role]
        self._poll_notices(queue)
        notice = Notice(kind)
        queue.notices.append(notice)
        _, overlapped = self.call(f"{queue.name}: notify", {Status.SUCCESS}, real.notify, kind)
        self.notices[notice] = node, node.accept(overlapped)
        self._poll_notices(queue)

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

    def _poll_notices(self, queue: Queue) -> list[Notice]:
        """Those that are done by now."""
        over = self.over_of([self.notices[notice][1] for notice in queue.notices])
        done = [notice for notice, is_over in zip(queue.notices, over, strict=True) if is_over]
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

    def _results(self, real: Any, most: int) -> list[Completion]:
        return [Completion.of(result) for result in real.get_results(most)]

    def drain(self, node: Node, role: str, most: int = 64) -> int:
        """Take up to `most` completions, and judge them."""
        queue, real = node.queues[role]
        certain = not queue.told
        results = self._results(real, most)
        now = time.monotonic()  # not before: a Send may have waited too long meanwhile
        for pair in itertools.chain(*self.slots):
            pair.model.connection.clock = now
        if len(results) > most:
            raise Violation(f"{queue.name}: {len(results)} results, {most} were asked for")
        must: set[Notice] = set()
        for completion in results:
            must.update(queue.satisfied(Status(completion.status)))
            self._judge(queue, completion)
        if len(results) < most:
            queue.told = False
        self._poll_notices(queue)
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
