# SPDX-License-Identifier: Apache-2.0
"""Streams of which a client reads no more: each is marked, for its server, and its waits end."""

import threading
from typing import Any

import pytest

from shmnd import ipc
from shmnd.ipc.service import answers

PATIENCE = 20.0
MOST = 5000


def test_a_wait_ends_in_time_while_values_come_as_fast_as_they_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = 0

    def take_one(client: Any, *args: Any) -> None:
        nonlocal taken
        one(client, *args)
        taken += 1
        if taken < MOST:
            request._send_part(taken, "test")

    one = answers.Answers._take_one
    with ipc.Server("s") as server, ipc.Client("s") as client, client.stream("values"):
        request = server.receive(PATIENCE)
        request._send_part(0, "test")
        other = client.send("never")
        monkeypatch.setattr(answers.Answers, "_take_one", take_one)
        assert not other.done()
        with pytest.raises(TimeoutError):
            other.result(0.0)
        assert 0 < taken < 500
        monkeypatch.undo()


def test_a_stream_that_ended_without_a_mark_is_marked_at_its_next_value() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send("values")
        request = server.receive(PATIENCE)
        client._end_lost(pending)  # as where its server claims it too late
        request._send_part(0, "test")
        client._take_answers()
        assert list(client._ended.values()) == [pending._number]
        assert not pending._answers


def test_the_end_of_a_stream_that_was_interrupted_wakes_its_waits() -> None:
    with ipc.Server("s"), ipc.Client("s") as client:
        stream = client.stream("never")
        pending = stream._pending
        waiting = threading.Thread(target=lambda: list(stream), daemon=True)
        waiting.start()
        while not pending._waiting:
            pass
        pending._over = True  # where a handler of a signal has raised before the wakes
        woken: list[bool] = []
        pending._waiters.append(_Woken(woken))
        stream.close()
        assert woken == [True]
        waiting.join(PATIENCE)
        assert not waiting.is_alive()


class _Woken:
    def __init__(self, woken: list[bool]) -> None:
        self._woken = woken

    def wake(self) -> None:
        self._woken.append(True)


def test_a_value_does_not_undo_a_close_within_its_taking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler of a signal closes the stream while a value of it is taken."""

    def answer(*args: Any) -> Any:
        stream.close()
        return made(*args)

    made = answers.Answer
    with ipc.Server("s") as server, ipc.Client("s") as client:
        stream = client.stream("values")
        request = server.receive(PATIENCE)
        request._send_part(0, "test")
        monkeypatch.setattr(answers, "Answer", answer)
        client._take_answers()
        monkeypatch.undo()
        assert stream._pending._over
        assert list(stream) == []
