# SPDX-License-Identifier: Apache-2.0
"""Real objects with the model of them: each call is made, and its result is judged.

A world has two nodes (an adapter with its queues, in this process or in the child) and a few
connections between them. Its methods are the vocabulary of random programs and of regressions;
each kind of them has a file of its own, here is what goes through all: rest, and the end.
"""

from __future__ import annotations

import itertools
import time
from typing import Final

from reference.computing import Computing
from reference.handshakes import Handshakes
from reference.memory import Window
from reference.model import Violation
from reference.stage import Node, Pair
from reference.windows import Windows
from shmnd import Status

LOST: Final = 3.0
"""Seconds without any progress after which something that must happen never will."""


class World(Windows, Handshakes, Computing):
    """Two nodes and their connections, real and as they should be."""

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
        for node in self.nodes:
            self.check_shared(node)
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
                return f"{side.name}: no notice of the end"
            if not over and any(map(self._is_done, pair.notified)):
                # Looking may itself have ended it: of a Send that waited too long.
                return f"{side.name}: a notice of an end, and the connection continues"
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
                raise Violation(f"{pair.model.name}: memory holds bytes that no request wrote")
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
            for overlapped in list(node.accepted):
                if not node.accepted[overlapped] and overlapped.done():
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
        """Let go of the memory now: the report of a failure may keep the rest."""
        targets = [pair.target.slab for pair in self.pair_of.values()]
        for slab in itertools.chain(targets, *(node.slabs for node in self.nodes)):
            slab.buffer.mr.close()
            slab.drop()
        self.requests.clear()
        self.notices.clear()
        self.pair_of.clear()
        self.slots.clear()

    def finish(self) -> None:
        """End everything in order, and check once more."""
        self.settle()
        for pair in itertools.chain(*self.slots):
            if pair.model.connected and not pair.model.closed:
                self.disconnect(pair)
        self.settle()


def _roles(node: Node) -> list[str]:
    same = node.queues["receive"] is node.queues["initiator"]
    return ["initiator"] if same else ["initiator", "receive"]
