# SPDX-License-Identifier: Apache-2.0
"""Connections of the random programs: how they come about, are refused, and end."""

from __future__ import annotations

from typing import Any

from reference.model import Violation
from reference.stage import Pair, Stage
from shmnd import NdError, Status
from spi.harness import WAIT


class Handshakes(Stage):
    """Steps of connecting and disconnecting."""

    def connect(self, slot: int, swapped: bool) -> bool:
        """The whole handshake, with either side active."""
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
        """A handshake that comes to nothing, before or after Accept; the queue pairs are as
        before.
        """
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


def _final(overlapped: Any) -> Status:
    try:
        overlapped.result(timeout=WAIT)
    except NdError as error:
        return Status(error.status)
    return Status.SUCCESS
