# SPDX-License-Identifier: Apache-2.0
"""One end computes: what it has posted continues by the calls of the other end alone."""

from __future__ import annotations

import itertools
import time
from typing import Final

from reference.completions import Completions
from reference.model import Violation
from reference.stage import Node
from shmnd.ring.process.peer import private_memory_is_reachable

PATIENCE: Final = 3.0
"""Seconds without a completion after which a message that must arrive never will."""


class Computing(Completions):
    """Programs in which one end polls, and the other makes no call."""

    def hear_alone(self, node: Node) -> None:
        """Poll the queues of one end until nothing comes; then every message is here that can be.

        Between ends that cannot reach each other's private memory the sender has to help.
        """
        if not private_memory_is_reachable():
            return
        moved, rounds = time.monotonic(), 0
        while True:
            got = self._drain_alone(node)
            rounds = 0 if got else rounds + 1
            now = time.monotonic()
            moved = now if got else moved
            trouble = self._unheard(node) if rounds > 2 else "not at rest"
            if not trouble:
                return
            if rounds > 100 and now - moved > PATIENCE:
                raise Violation(trouble)

    def _drain_alone(self, node: Node) -> int:
        same = node.queues["receive"] is node.queues["initiator"]
        roles = ["initiator"] if same else ["initiator", "receive"]
        return sum(self.drain(node, role) for role in roles)

    def _unheard(self, node: Node) -> str:
        for pair in itertools.chain(*self.slots):
            if pair.node is not node:
                trouble = pair.model.connection.unheard(pair.model)
                if trouble:
                    return trouble
        return ""
