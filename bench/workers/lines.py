# SPDX-License-Identifier: Apache-2.0
"""One server for all transports of a run: each has a line of its own to it, over one channel.

The harness commands one transport at a time, so of the answers on the channel only that of the
last command is awaited. One for another line is late, from a transport that was given up.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from .control import ChannelClosed, Conversation
from .worker import SERVER, Worker


class Exchange:
    """The client's end of the channel."""

    def __init__(self, channel: Conversation) -> None:
        self._channel = channel
        self._lines = 0

    def line(self) -> Conversation:
        """Return a new line."""
        self._lines += 1
        return _Line(self._channel, self._lines)

    def close(self) -> None:
        """End the channel, and all lines with it."""
        self._channel.close()


class _Line:
    """A conversation among others on a channel; its end leaves the channel open."""

    def __init__(self, channel: Conversation, number: int) -> None:
        self._channel = channel
        self._number = number
        self._last = self._over = False

    def fileno(self) -> int:
        return self._channel.fileno()

    def pending(self) -> bool:
        return self._channel.pending()

    def send(self, message: Mapping[str, Any]) -> None:
        self._channel.send({**message, "line": self._number})
        self._last = message["do"] == "quit"

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        if self._over:
            raise ChannelClosed("the line is closed")
        while (answer := self._channel.receive(timeout))["line"] != self._number:
            pass
        self._over = self._last
        return answer

    def close(self) -> None:
        self._over = True


def serve(channel: Conversation, hire: Callable[[], Worker]) -> None:
    """Serve the channel until it closes, with a worker for each line."""
    workers: dict[int, Worker] = {}
    channel.send({"hello": SERVER, "pid": os.getpid()})
    try:
        while True:
            message = channel.receive()
            line = int(message["line"])
            if message["do"] == "quit":
                if line in workers:
                    workers.pop(line).close()
                answer: dict[str, Any] = {"ok": None}
            else:
                if line not in workers:
                    workers[line] = hire()
                answer = workers[line].answer(message)
            channel.send({**answer, "line": line})
    except ChannelClosed:
        pass
    finally:
        for worker in workers.values():
            worker.close()
