# SPDX-License-Identifier: Apache-2.0
"""How a benchmark talks with its worker processes: JSON messages, one per line, on a socket.

Between two rounds a worker sits in `Channel.receive()` and costs nothing, so the pairs of all
transports can stay alive side by side while one of them is measured.
"""

import abc
import json
import select
import socket
import time
from collections.abc import Mapping
from typing import Any, Protocol

_CHUNK = 65536


class ChannelClosed(ConnectionError):
    """The other end is gone."""


class Conversation(Protocol):
    """One end of an exchange of messages, whatever carries it."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when something comes."""

    def pending(self) -> bool:
        """Return whether a message is there already."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message; TimeoutError when `timeout` seconds end first."""

    def close(self) -> None:
        """End the conversation."""


class LineReceiver(abc.ABC):
    """The receiving half of a conversation: messages, out of pieces that come in any size."""

    def __init__(self) -> None:
        self._buffer = b""

    @abc.abstractmethod
    def _read(self, timeout: float | None) -> bool:
        """Append the next piece to the buffer; return False if none has come."""

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message; TimeoutError when `timeout` seconds end first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._read(left) and left is not None and left <= 0:
                raise TimeoutError(f"no message within {timeout:g} s")
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class Channel(LineReceiver):
    """One end of a conversation, on a socket."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    def fileno(self) -> int:
        """Return the socket's descriptor, for select."""
        return self._sock.fileno()

    def pending(self) -> bool:
        """Return whether a message is there already."""
        return b"\n" in self._buffer

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; messages are small, so this does not wait in practice."""
        try:
            self._sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError as exc:
            raise ChannelClosed(str(exc)) from exc

    def _read(self, timeout: float | None) -> bool:
        if not select.select([self._sock], [], [], timeout)[0]:
            return False
        try:
            chunk = self._sock.recv(_CHUNK)
        except OSError as exc:
            raise ChannelClosed(str(exc)) from exc
        if not chunk:
            raise ChannelClosed("end of file")
        self._buffer += chunk
        return True

    def close(self) -> None:
        """End the conversation; the other end sees ChannelClosed."""
        self._sock.close()
