# SPDX-License-Identifier: Apache-2.0
"""Servers that answer as no server of this library does."""

from typing import Any

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 60.0
HUGE = 2**70


class Unpicklable:
    """Whose item names no request, and cannot be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


NONSENSE: list[Any] = [
    None, 5, "abcde", (), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6), np.arange(5), dict.fromkeys("abcde"),
    *((number, "part", 0, 0, "wrong") for number in (0, -1, HUGE, 1.0, True, None, "x", [1])),
    *((float(number), "end", 0, 0, None) for number in ("nan", "inf")),
    (np.arange(3), "value", 0, 0, "wrong"),
    *((1, kind, 0, 0, "wrong") for kind in (None, 5, [1], np.arange(2))),
    *((1, "value", sequence, 0, "wrong") for sequence in (None, "s", 0.5)),
    (1, "value", 0, None, "wrong"),
    *((1, "taken", 0, 0, claim) for claim in (
        None, (), (1, 2), (float("inf"),) * 4, ("1",) * 4, (np.arange(2),) * 4,
        *((1, 5, 5, word) for word in (-1, HUGE, 10**5000)), (1, 5, 10**5000, 5),
    )),
    *((1, kind, 0, 0, "wrong") for kind in ("", "Value", "parts", "x" * 1000)),
    Unpicklable(),
]  # fmt: skip


def test_an_answer_that_makes_no_sense_is_left_out() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send("ask")
        request = server.receive(PATIENCE)
        assert pending._number == 1
        for each in NONSENSE:
            request._answers._put_or_drop(each)
            assert not pending.done(), each
        request.respond("right")
        assert pending.result(PATIENCE).value == "right"
        again = client.send("ask")
        server.receive(PATIENCE).respond("right, too")
        assert again.result(PATIENCE).value == "right, too"
        assert not client._ended


def test_a_server_that_there_is_not_is_lost() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send("ask")
        request = server.receive(PATIENCE)
        request._send("taken", (2**63,) * 4)
        with pytest.raises(ipc.PeerLost):
            pending.result(PATIENCE)
        again = client.send("ask")
        server.receive(PATIENCE).respond("right")
        assert again.result(PATIENCE).value == "right"


@pytest.mark.parametrize(
    "failure",
    [
        None, 5, (), ("KeyError", ("a",)), (5, (), "text"), ("KeyError", 5, "text"),
        ("UnicodeDecodeError", ("utf-8", b"", HUGE, 1, "why"), "text"), ("print", ("x",), "text"),
        ("KeyboardInterrupt", (), "text"), ("SystemExit", (1,), "text"), ("KeyError", (), None),
    ],
    ids=repr,
)  # fmt: skip
def test_a_failure_that_makes_no_sense_ends_its_request_alone(failure: Any) -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        failed, other = client.send("ask"), client.send("ask")
        server.receive(PATIENCE)._send("failure", failure)
        server.receive(PATIENCE).respond("right")
        assert other.result(PATIENCE).value == "right"
        with pytest.raises(ipc.RemoteError, match=r"text|a server of 's' sent"):
            failed.result(PATIENCE)


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("word", [HUGE, -1, float("inf"), None, "1", 10**5000], ids=type)
def test_a_request_that_makes_no_sense_is_left_out(place: int, word: Any) -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        forged = [*client._where, 1, client._answers._core.me, "forged"]
        forged[place] = word
        client._requests.put(tuple(forged))
        pending = client.send("good")
        request = server.receive(PATIENCE)
        assert request.value == "good"
        request.respond("right")
        assert pending.result(PATIENCE).value == "right"
