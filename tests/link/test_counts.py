# SPDX-License-Identifier: Apache-2.0
"""The counts that a link prints at its end."""

import argparse
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from link.kit import PATIENCE, unique
from shmnd import ipc
from shmnd_tools.ipc import link as command
from shmnd_tools.link import wire
from shmnd_tools.link.wire import Message
from shmnd_tools.sample_kinds import ARRAY


class FarLink:
    """Stands for a session with a far link, which offers one publisher."""

    def __init__(self, *_: object) -> None:
        self.ended = threading.Event()
        self._seen: dict[str, Callable[[str, bool], None]] = {}
        self._heard: dict[str, Callable[[str, bytes, bytes], None]] = {}
        self.listens = threading.Event()

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        pass

    def follow(self, key: str, seen: Callable[[str, bool], None]) -> str:
        self._seen[wire.parts(key.removesuffix("/**"))[0]] = seen
        return key

    def listen(self, key: str, heard: Callable[[str, bytes, bytes], None]) -> str:
        self._heard[wire.parts(key.removesuffix("/**"))[0]] = heard
        if key.startswith(wire.key("data")):
            self.listens.set()
        return key

    def token(self, key: str) -> str:
        return key

    def end(self, declared: object) -> None:
        self.ended.set()

    def close(self) -> None:
        pass

    def offer(self, told: str) -> None:
        self._seen["pub"](wire.key("pub", "there", "uid", told), True)
        assert self.listens.wait(PATIENCE)

    def say(self, kind: int, value: int) -> None:
        array = np.array(value, "i8")
        told = Message(kind, value, None, wire.forms.description(array, "test"))
        self._heard["data"]("", array.tobytes(), wire.pack(told))


def test_the_last_sample_counts_also_where_the_link_is_ended_as_it_arrives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The thread that has published it has not counted it when the signal comes."""
    namespace = unique("counts")
    with ipc.Publisher("type", "i8", namespace=namespace) as pub:
        type_ = pub.type.description
    told = json.dumps({"name": "t", "type": type_, "attributes": {}, "history": 1})
    send = ipc.Publisher.send

    def wait_until_it_arrives(_: object, session: FarLink, *more: object) -> None:
        def slow(self: Any, value: Any, *more: Any) -> int:
            number = send(self, value, *more)
            session.ended.wait(PATIENCE)  # the first thing that the end of a link does
            return number

        session.ended.clear()
        monkeypatch.setattr(ipc.Publisher, "send", slow)
        with ipc.Subscriber("t", "i8", namespace=namespace) as sub:
            session.offer(told)
            session.say(ARRAY, 0)
            assert sub.receive(PATIENCE).value == 0

    monkeypatch.setattr(command, "Session", FarLink)
    monkeypatch.setattr(command, "_wait", wait_until_it_arrives)
    args = argparse.Namespace(
        topic=["*"], service=[], listen=["here"], connect=[], config=None, namespace=namespace,
        objects=False, seconds=None, format="json",
    )  # fmt: skip
    assert command.run(args) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["number"], row["lost"]) == (1, 0)
