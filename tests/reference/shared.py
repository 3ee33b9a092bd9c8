# SPDX-License-Identifier: Apache-2.0
"""Shared receive queues of the random programs: Receive, Modify, and Notify."""

from __future__ import annotations

from typing import Any

from reference.memory import Pieces
from reference.model import Alarm, Request, Violation
from reference.stage import Node, Stage
from shmnd import Status


class SharedQueues(Stage):
    """What programs do with the shared receive queue of a node."""

    def receive_shared(
        self, node: Node, request: Request, context: Any, memory: Pieces, sges: list[Any]
    ) -> bool:
        """Post a receive for whichever connection gets a message first."""
        shared = node.shared
        assert shared is not None
        full = len(shared.receives) >= shared.depth
        allowed = {Status.NO_MORE_ENTRIES} if full and self.resting else {Status.SUCCESS}
        if full:
            allowed.add(Status.NO_MORE_ENTRIES)
        good, _ = self.call(
            f"{node.name}: shared {request}", allowed, node.end.srq.receive, sges, context
        )
        if good:
            shared.receives.append(request)
            self.requests[request.number] = request, context, memory
        else:
            memory.give_back()
        return good

    def modify_shared(self, node: Node, depth: int, threshold: int) -> None:
        """Change its depth, its threshold, or both; 0 leaves one as it is."""
        shared = node.shared
        if shared is None:
            return
        allowed = {Status.SUCCESS}
        if depth and depth < len(shared.receives):
            allowed = {Status.BUFFER_OVERFLOW}
            if not self.resting:
                allowed.add(Status.SUCCESS)  # messages may have met some of them
        what = f"{node.name}: modify to depth {depth}, threshold {threshold}"
        good, _ = self.call(what, allowed, self._modify, node.end.srq, depth, threshold)
        if good:
            shared.depth = depth or shared.depth
            shared.threshold = threshold or shared.threshold
            shared.look()

    def _modify(self, real: Any, depth: int, threshold: int) -> None:
        real.modify(depth, threshold)

    def notify_shared(self, node: Node) -> None:
        """Request a notice of few remaining receives."""
        shared = node.shared
        if shared is None:
            return
        _, overlapped = self.call(
            f"{node.name}: shared notify", {Status.SUCCESS}, node.end.srq.notify
        )
        alarm = Alarm()
        shared.alarms.append(alarm)
        self.alarms[alarm] = node.accept(overlapped)
        shared.look()

    def cancel_shared(self, node: Node) -> None:
        """Withdraw the request; a notice due by then has come."""
        if node.shared is None:
            return
        self.call(
            f"{node.name}: shared cancel",
            {Status.SUCCESS},
            node.end.srq.cancel_overlapped_requests,
        )
        pending = [alarm for alarm in node.shared.alarms if not self._is_done(self.alarms[alarm])]
        if pending:
            raise Violation(f"{node.name}: a shared Notify is pending after cancel")
        for alarm in node.shared.alarms:
            told = self.alarms.pop(alarm).status is Status.SUCCESS
            self._judge_alarm(node, alarm, told)
        node.shared.alarms.clear()

    def check_shared(self, node: Node) -> None:
        """At rest: a notice of few receives has come exactly where it was due."""
        shared = node.shared
        if shared is None:
            return
        told = self.over_of([self.alarms[alarm] for alarm in shared.alarms])
        if sorted(told, reverse=True) != told:
            raise Violation(f"{node.name}: one event completed only some Notify requests")
        for alarm, is_told in zip(list(shared.alarms), told, strict=True):
            self._judge_alarm(node, alarm, is_told)
            if is_told:
                shared.alarms.remove(alarm)
                del self.alarms[alarm]

    def _judge_alarm(self, node: Node, alarm: Alarm, told: bool) -> None:
        if told and not alarm.may:
            raise Violation(f"{node.name}: told that few receives are left, and there were enough")
        if alarm.must and not told:
            raise Violation(f"{node.name}: no notice that few receives remain")
