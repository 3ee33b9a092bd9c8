# SPDX-License-Identifier: Apache-2.0
"""The same conversation as in `control`, over a connection of shmnd, for ends started apart.

The broker has found that the client is of the same user, and the namespace is that of the traffic
to be measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import shmnd

from .control import ChannelClosed, LineReceiver

if TYPE_CHECKING:
    from shmnd import Adapter, Connector

_PIECE: Final = 4096
_DEPTH: Final = 32
_SEND_LIMIT: Final = 20.0


class WireChannel(LineReceiver):
    """One end of a conversation; a `Channel` by what it does."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self._adapter = adapter
        self._arrivals = adapter.create_completion_queue(_DEPTH)
        self._sent = adapter.create_completion_queue(_DEPTH)
        self.qp = adapter.create_queue_pair(
            self._arrivals, self._sent, receive_depth=_DEPTH, initiator_depth=_DEPTH
        )
        self._memory = adapter.allocate((_DEPTH + 1) * _PIECE)
        self._region = adapter.create_memory_region()
        self._region.register(self._memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(_SEND_LIMIT)
        self.connector: Connector = adapter.create_connector()
        for place in range(_DEPTH):
            self._post(place)

    def _post(self, place: int) -> None:
        self.qp.receive(self._region.sge(place * _PIECE, _PIECE), place)

    def fileno(self) -> int:
        """Return a descriptor that is readable when data has arrived; check `pending` first."""
        self._arrivals.notify()
        return self._arrivals.fileno()

    def pending(self) -> bool:
        """Return whether a message is there already."""
        try:
            self._read(0.0)
        except ChannelClosed:
            return True  # which `receive` will say
        return b"\n" in self._buffer

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message, in pieces if need be."""
        data = json.dumps(message).encode() + b"\n"
        start = _DEPTH * _PIECE
        try:
            for first in range(0, len(data), _PIECE):
                piece = data[first : first + _PIECE]
                self._memory[start : start + len(piece)] = memoryview(piece)
                self.qp.send(self._region.sge(start, len(piece)))
                results = self._sent.wait(1, _SEND_LIMIT)
                if not results or results[0].status:
                    raise ChannelClosed("the other side does not take messages any more")
        except shmnd.NdError as exc:
            raise ChannelClosed(str(exc)) from exc

    def _read(self, timeout: float | None) -> bool:
        results = self._arrivals.wait(_DEPTH, timeout)
        for result in results:
            if result.status:
                raise ChannelClosed("the other side is gone")
            place = result.request_context
            start = place * _PIECE
            self._buffer += self._memory[start : start + result.bytes_transferred].tobytes()
            self._post(place)
        return bool(results)

    def close(self) -> None:
        """End the conversation; the other end sees ChannelClosed."""
        self._adapter.close()
