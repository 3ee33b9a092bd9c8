# SPDX-License-Identifier: Apache-2.0
"""A subscriber that announces itself by the number of another one, which all can read."""

import uuid
from typing import Any

import numpy as np
import pytest

import shmnd
from shmnd import ipc
from shmnd.directory import Announcement, Directory
from shmnd.ipc.topic import here
from shmnd.ipc.topic.seats import POLICIES
from shmnd.ipc.topic.source import Source

BUFFER = 4
STATE, CLOSED = 9, 2  # a word of the page, and what it says
LARGE = 70_000  # bytes: a slot of it is used again at once


class Forger:
    """A process of the same user that asks a publisher for seats, with any number."""

    def __init__(self, pub: ipc.Publisher) -> None:
        self.adapter = shmnd.open_adapter()
        self.directory = Directory(self.adapter)
        self.pub = pub
        self.pages: list[Any] = []

    def ask(self, ident: int, policy: int) -> Announcement:
        page = self.adapter.allocate(Source.page_bytes(1), peers="read")
        self.pages.append(page)
        segment, offset = self.adapter.locate(page)
        record = {
            "topic": self.pub.name, "segment": segment, "offset": offset, "held": 1,
            "policy": policy, "buffer": BUFFER, "first": 0, "ident": ident,
        }  # fmt: skip
        made = self.directory.announce("ipc.seat", self.pub._adapter.uid, record)
        self.directory.find("ipc.seat", self.pub._adapter.uid)
        _ = self.pub.subscribers
        return made

    def leave(self, asked: Announcement, page: int) -> None:
        self.pages[page].view("u8")[STATE] = CLOSED
        asked.close()
        self.directory.find("ipc.seat", self.pub._adapter.uid)
        _ = self.pub.subscribers

    def number_of_another(self) -> int:
        """Return the number that another subscriber has announced."""
        found = self.directory.find("ipc.seat", self.pub._adapter.uid)
        (entry,) = (each for each in found if each.adapter != self.adapter.uid)
        return int(entry.data["ident"])


@pytest.mark.parametrize("policy", [1, 3], ids=["drop_newest", "block"])
def test_the_number_of_another_subscriber_gives_nothing_of_its_seat(
    policy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sits down before the other one looks for its seat, takes nothing, or closes."""
    admit = here.admit
    with ipc.Publisher(f"topic-{uuid.uuid4().hex}", "u1", max_subscribers=2) as pub:
        forger = Forger(pub)
        first, second = (forger.ask(number, policy) for number in (5, 6))
        forger.leave(first, 0)
        forger.leave(second, 1)

        def forge(uid: str) -> None:
            """Admit the subscriber, and the forger behind it."""
            monkeypatch.undo()
            admit(uid)
            forger.ask(forger.number_of_another(), policy)

        monkeypatch.setattr(here, "admit", forge)
        overflow = POLICIES[policy]
        with ipc.Subscriber(pub.name, "u1", overflow=overflow, buffer=BUFFER) as sub:
            if overflow == "block":
                forger.pages[2].view("u8")[STATE] = CLOSED
            assert sub.publishers == 1
            for number in range(40):
                pub.send(np.full(LARGE, number, "u1"), timeout=10)
                if number % BUFFER == BUFFER - 1:
                    _ = pub.subscribers  # lets go of those that are closed
                    for wanted in range(number + 1 - BUFFER, number + 1):
                        with sub.receive(10) as sample:
                            assert sample.sequence == wanted
                            assert (sample.array == wanted).all()
            with pytest.raises(TimeoutError):  # and not that it was let go of
                sub.receive(0)
            assert sub.lost == 0
        forger.adapter.close()
