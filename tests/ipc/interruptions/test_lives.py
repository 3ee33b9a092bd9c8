# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises where an object is dropped: what waits for its end sees it."""

import functools
import gc
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from census import open_files
from interrupting import Alarm, interrupted
from shmnd import ipc
from shmnd.ipc.common.namespace_adapter import NamespaceAdapter

PATIENCE = 30.0
PLACES = 60
"""Of the end of a life, so many places from its beginning on are tried."""


@pytest.fixture(autouse=True)
def _no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors


def anywhere(path: str) -> bool:
    """Whether a file is not of those that stand for the handler."""
    return not path.endswith("interrupting.py")


def at_each_place(act: Callable[[Callable[[list[Any]], bool]], None]) -> None:
    """Call `act` for each place, with a function that empties a list and is interrupted there."""
    more = True

    def drop(made: list[Any]) -> bool:
        nonlocal more
        more = interrupted(at, made.clear, anywhere, Alarm)
        return more

    for at in itertools.count():
        act(drop)
        if not more or at == PLACES:
            break
    assert at > 3


def test_a_request_that_is_dropped_fails() -> None:
    name = f"dropped-{os.getpid()}"
    with ipc.Server(name) as server, ipc.Client(name) as client:

        def act(drop: Callable[[list[Any]], bool]) -> None:
            pending = client.send("value", PATIENCE)
            drop([server.receive(PATIENCE)])
            with pytest.raises(ipc.RemoteError, match="dropped"):
                pending.result(PATIENCE)

        at_each_place(act)


def test_the_stream_of_an_answer_that_is_dropped_ends() -> None:
    name = f"streams-{os.getpid()}"
    with ipc.Server(name) as server, ipc.Client(name) as client:

        def act(drop: Callable[[list[Any]], bool]) -> None:
            pending = [client.send("value", PATIENCE)]
            request = server.receive(PATIENCE)
            request._send_part(1, "test")
            assert pending[0].result(PATIENCE).value == 1
            drop(pending)
            assert request._is_ended()
            request._finish()

        at_each_place(act)


def test_a_stream_that_a_call_does_not_read_ends() -> None:
    """The call ends by the handler, and is interrupted again where it ends the stream."""
    name = f"calls-{os.getpid()}"
    with ipc.Server(name) as server, ipc.Client(name) as client:
        for at in itertools.count():
            pending = client._begun("value", "Client.call")[0]
            item = (*client._where, pending._number, client._answers._core.me, 1)
            client._put(pending, item, PATIENCE, "Client.call")
            request = server.receive(PATIENCE)
            end = functools.partial(client._end_stream, pending)
            came = interrupted(at, end, anywhere, Alarm)
            end()  # as it is called again
            assert request._is_ended(), at
            request._finish()
            if not came:
                break
        assert at > 3


def test_what_a_sample_keeps_of_its_publisher_is_given_back() -> None:
    name = f"held-{os.getpid()}"

    def act(drop: Callable[[list[Any]], bool]) -> None:
        with ipc.Publisher(name, "u1") as pub, ipc.Subscriber(name) as sub:
            pub.send(7)
            held = [sub.receive(PATIENCE)]
        del pub, sub
        drop(held)
        gc.collect()
        assert not NamespaceAdapter._all

    act(lambda made: bool(made.clear()))
    files = open_files()
    at_each_place(act)
    gc.collect()
    assert len(open_files()) <= len(files)
