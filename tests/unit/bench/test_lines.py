# SPDX-License-Identifier: Apache-2.0
"""Lines to one server: each has its own worker, and none hears the answer of another."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest

from shmnd_bench.workers.control import ChannelClosed
from shmnd_bench.workers.lines import Exchange, serve
from shmnd_bench.workers.worker import SERVER, Worker


class Script:
    """A channel on which all that comes is known beforehand; then it closes."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.coming = deque(messages)
        self.sent: list[dict[str, Any]] = []
        self.closed = False

    def fileno(self) -> int:
        raise AssertionError("no call has to wait")

    def pending(self) -> bool:
        return bool(self.coming)

    def send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(dict(message))

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        if not self.coming:
            raise ChannelClosed("end of file")
        return self.coming.popleft()

    def close(self) -> None:
        self.closed = True


class Hand(Worker):
    """A worker that tells which one it is."""

    def __init__(self, number: int, closed: list[int]) -> None:
        super().__init__(SERVER)
        self._number, self._closed = number, closed

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": self._number}

    def close(self) -> None:
        self._closed.append(self._number)


def test_a_line_passes_over_the_late_answer_to_another() -> None:
    channel = Script({"ok": "late", "line": 1}, {"ok": "mine", "line": 2})
    exchange = Exchange(channel)
    first, second = exchange.line(), exchange.line()
    first.send({"do": "run"})
    first.close()
    second.send({"do": "open"})
    assert second.receive(1.0)["ok"] == "mine"
    assert [message["line"] for message in channel.sent] == [1, 2]


def test_a_line_ends_and_the_channel_stays() -> None:
    channel = Script({"ok": None, "line": 1}, {"ok": 7, "line": 2})
    exchange = Exchange(channel)
    line = exchange.line()
    line.send({"do": "quit"})
    assert line.receive(1.0)["ok"] is None
    with pytest.raises(ChannelClosed):
        line.receive(1.0)
    assert not channel.closed
    next_line = exchange.line()
    next_line.send({"do": "run"})
    assert next_line.receive(1.0)["ok"] == 7
    exchange.close()
    assert channel.closed


def test_a_server_has_a_worker_for_each_line_and_closes_them_all() -> None:
    asked = [("run", 1), ("run", 2), ("run", 1), ("quit", 2), ("quit", 3), ("run", 2)]
    channel = Script(*({"do": do, "line": line} for do, line in asked))
    closed: list[int] = []
    hired: list[Hand] = []

    def hire() -> Worker:
        hired.append(Hand(len(hired), closed))
        return hired[-1]

    serve(channel, hire)
    greeting, *answers = channel.sent
    assert greeting["hello"] == SERVER
    told = [(answer["ok"], answer["line"]) for answer in answers]
    assert told == [(0, 1), (1, 2), (0, 1), (None, 2), (None, 3), (2, 2)]
    assert sorted(closed) == [0, 1, 2]
    assert closed[0] == 1
