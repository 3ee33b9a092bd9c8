# SPDX-License-Identifier: Apache-2.0
"""A link that runs for long keeps nothing of publishers and topics that have gone."""

import json
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import shmnd
from link.kit import unique, until
from shmnd import ipc
from shmnd.directory import Directory
from shmnd_tools.link import bridge, far_publishers, wire
from shmnd_tools.link.bridge import Link
from shmnd_tools.link.claims import CLAIM
from shmnd_tools.link.incoming import LATEST


class Nowhere:
    """Stands for a session without another link: tokens are seen by none."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.seen: dict[str, Callable[[str, bool], None]] = {}

    def send(self, key: str, payload: bytes, attachment: bytes = b"", *, block: bool) -> None:
        if wire.unpack(attachment).kind == wire.END:
            self.ends.append(wire.parts(key)[2])

    def listen(self, key: str, heard: object) -> str:
        return key

    def follow(self, key: str, seen: Callable[[str, bool], None]) -> str:
        self.seen[wire.parts(key.removesuffix("/**"))[0]] = seen
        return key

    def token(self, key: str) -> str:
        return key

    def end(self, declared: object) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def nowhere() -> Nowhere:
    return Nowhere()


@pytest.fixture
def namespace() -> str:
    return unique("long")


@pytest.fixture
def link(nowhere: Nowhere, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    # It carries what other processes publish, and takes this one for another.
    monkeypatch.setattr(bridge, "os", types.SimpleNamespace(getpid=lambda: 0))
    made = Link(cast("Any", nowhere), ["*"], [], namespace=namespace)
    made._mark.close()
    yield made
    made.close()


def _topics_of_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("link to ")]


def _come_and_go(link: Link, nowhere: Nowhere, name: str, value: int, namespace: str) -> str:
    """Publish a value that a far link wants, and end; return the publisher's name in the link."""
    with ipc.Publisher(name, "i8", namespace=namespace) as pub:
        uid: str = pub._adapter.uid
        until(lambda: uid in link._topics.publishers)
        nowhere.seen["want"](wire.key("want", link.origin, uid, "far", LATEST), True)
        pub.wait_for_subscribers(1, timeout=30)
        pub.send(np.int64(value))
    until(lambda: uid in nowhere.ends)
    return uid


def test_topics_without_publishers_leave_no_thread(
    link: Link, nowhere: Nowhere, namespace: str
) -> None:
    with ipc.Publisher("stays", "i8", namespace=namespace):
        for number in range(5):
            uid = _come_and_go(link, nowhere, f"t{number}", number, namespace)
            # Too late: the far link has not heard of the end.
            nowhere.seen["want"](wire.key("want", link.origin, uid, "far", LATEST), True)
        until(lambda: _topics_of_threads() == ["link to stays"])
        assert set(link._topics.outgoing) == {"stays"}
        assert len(link._topics.routes) == 1


@pytest.mark.parametrize("data", [{}, {"type": "[" * 3000}, {"type": "5"}])
def test_a_topic_whose_type_makes_no_sense_stops_no_other(
    data: dict[str, str], link: Link, nowhere: Nowhere, namespace: str
) -> None:
    with (
        shmnd.open_adapter(namespace=namespace) as adapter,
        Directory(adapter).announce("ipc.topic", "a", data),
        ipc.Publisher("b", "i8", namespace=namespace) as pub,
    ):
        until(lambda: pub._adapter.uid in link._topics.publishers)
        assert set(link._topics.outgoing) == {"b"}
        assert len(link._carrier.complaints) == 1


def test_publishers_of_a_topic_that_stays_are_forgotten(
    link: Link, nowhere: Nowhere, namespace: str
) -> None:
    with ipc.Publisher("t", "i8", namespace=namespace) as stays:
        for number in range(5):
            _come_and_go(link, nowhere, "t", number, namespace)
        until(lambda: len(link._topics.routes) == 1)
        outgoing = link._topics.outgoing["t"]
        assert outgoing.offers(stays._adapter.uid)
        until(lambda: not (outgoing._totals or outgoing._wishes.wants or outgoing._wishes.begun))
        assert set(outgoing._publishers) == {stays._adapter.uid}


def test_numbers_of_far_publishers_that_have_gone_are_bounded(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        mode = LATEST
        last = 7

        def __init__(self, uid: str) -> None:
            self.uid = uid

    monkeypatch.setattr(far_publishers, "_MOST_SEEN", 3)
    for number in (0, 1, 2, 0, 3):
        link._far.keep_place(cast("Any", Gone(f"far{number}")))
    assert list(link._far.seen) == ["far2", "far0", "far3"]


def _offer(name: str, type_: str) -> str:
    """Return what a far link says of a publisher of its host."""
    told = {"name": name, "type": type_, "attributes": {}, "history": 1}
    return wire.key("pub", "far", unique("far"), json.dumps(told))


def test_a_far_publisher_of_another_type_is_taken_when_the_one_here_has_ended(
    link: Link, nowhere: Nowhere, namespace: str
) -> None:
    key = _offer("t", "bytes")
    with ipc.Publisher("t", "i8", namespace=namespace):
        nowhere.seen["pub"](key, True)
        until(lambda: bool(link._carrier.complaints))
        assert "TypeMismatch" in " ".join(link._carrier.complaints)
        assert not link._far._incoming
    until(lambda: bool(link._far._incoming))
    assert not link._refused


def test_a_far_publisher_that_was_refused_and_has_gone_is_not_tried_again(
    link: Link, nowhere: Nowhere, namespace: str
) -> None:
    key = _offer("t", "bytes")
    with ipc.Publisher("t", "i8", namespace=namespace):
        nowhere.seen["pub"](key, True)
        until(lambda: key in link._refused)
        nowhere.seen["pub"](key, False)
        until(lambda: not link._refused)
    assert not link._far._incoming


def test_a_publisher_that_another_link_had_before_is_left_to_it(
    link: Link, nowhere: Nowhere, namespace: str
) -> None:
    """After the death of a broker two links may both have one."""
    offer = {"name": "t", "type": "any", "attributes": {}, "history": 0}
    nowhere.seen["pub"](wire.key("pub", "far", "p", json.dumps(offer)), True)
    until(lambda: ("far", "p") in link._far._incoming)
    incoming = link._far._incoming["far", "p"]
    with shmnd.open_adapter(namespace=namespace) as adapter:
        directory = Directory(adapter)
        with directory.announce(CLAIM, "p", {"made": 2**62}):  # it will leave it
            until(lambda: len(link._far._claims._watch.entries) == 2)
            link._far.superseded()
            assert link._far._incoming["far", "p"] is incoming
        with directory.announce(CLAIM, "p", {"made": 0}):
            until(lambda: len(directory.find(CLAIM)) == 1)
            assert not link._far._incoming
        until(lambda: ("far", "p") in link._far._incoming)
