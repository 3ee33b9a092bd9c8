# SPDX-License-Identifier: Apache-2.0
"""Claims of links: what ends them, and what a link takes for the claim of another one."""

import os
from collections.abc import Iterator

import pytest

import shmnd
from link.kit import PATIENCE, half, unique, until
from shmnd.directory import Directory, Entry
from shmnd_tools.link import incoming
from shmnd_tools.link.carrier import Carrier
from shmnd_tools.link.claims import CLAIM, Claims
from shmnd_tools.link.far_publishers import CarriedElsewhere, FarPublishers, NotYet
from shmnd_tools.link.wire import END, Message, pack, parts


@pytest.fixture
def two() -> Iterator[tuple[Claims, Claims]]:
    namespace = unique("claims")
    with (
        shmnd.open_adapter(namespace=namespace) as first,
        shmnd.open_adapter(namespace=namespace) as second,
    ):
        yield tuple(Claims(Directory(each), each.uid) for each in (first, second))


def test_a_claim_is_of_one_link_until_it_is_released(two: tuple[Claims, Claims]) -> None:
    first, second = two
    assert first.take("p", "far")
    assert not first.take("p", "other")
    assert not second.take("p", "far")
    first.release("p")
    first.release("p")
    until(lambda: second.take("p", "far"))


def test_a_claim_that_fails_leaves_no_record(
    two: tuple[Claims, Claims], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two

    def fail(*_: object) -> None:
        raise OSError("no broker")

    monkeypatch.setattr(first._directory, "find", fail)
    with pytest.raises(OSError, match="no broker"):
        first.take("p", "far")
    until(lambda: second.take("p", "far"))


def test_a_link_that_comes_again_waits_for_no_record_of_its_own(
    two: tuple[Claims, Claims], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end may be on the way still."""
    first = two[0]
    assert first.take("p", "far")
    until(lambda: len(first._watch.entries) == 1)
    with monkeypatch.context() as patch:
        patch.setattr(first._watch, "_progress", lambda: None)
        first.release("p")
        assert first.take("p", "far")


def test_of_two_that_take_at_once_the_first_one_has_it(
    two: tuple[Claims, Claims], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    monkeypatch.setattr(first, "_hear", lambda: None)
    monkeypatch.setattr(second, "_hear", lambda: None)
    find_first, find_second = first._directory.find, second._directory.find
    taken: list[bool] = []

    def find_when_both_have_announced(kind: str, name: str) -> object:
        taken.append(second.take("p", "far"))
        return found.pop()

    def find_of_second(kind: str, name: str) -> object:
        found.append(find_first(kind, name))
        return find_second(kind, name)

    found: list[object] = []
    monkeypatch.setattr(first._directory, "find", find_when_both_have_announced)
    monkeypatch.setattr(second._directory, "find", find_of_second)
    assert first.take("p", "far")
    assert taken == [False]


def test_a_record_announced_again_counts_as_earlier(
    two: tuple[Claims, Claims], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker had died: it may stand behind those of the new one."""
    first, second = two
    with monkeypatch.context() as patch:
        patch.setattr(
            first._directory,
            "find",
            lambda kind, name: (
                Entry(kind, name, {}, first._adapter, "", 1, 1),
                Entry(kind, name, {}, second._adapter, "", 1, 2, since=5),
            ),
        )
        assert not first.take("p", "far")
    assert first.take("p", "far")


def test_the_end_of_a_claim_wakes_a_link_that_waits(two: tuple[Claims, Claims]) -> None:
    first, second = two
    woken: list[bool] = []
    waiting = Claims(second._directory, second._adapter, lambda: woken.append(True))
    assert first.take("p", "far")
    assert not waiting.take("p", "far")
    assert waiting.holder("p") == os.getpid()
    woken.clear()
    first.release("p")
    until(lambda: not waiting._watch.entries and bool(woken))
    assert waiting.take("p", "far")
    assert waiting.holder("p") is None


def test_a_claim_that_makes_no_sense_keeps_others_out_and_ends_none(
    two: tuple[Claims, Claims],
) -> None:
    first, second = two
    directory = Directory(second._directory._adapter)
    assert first.take("p", "far")
    with directory.announce(CLAIM, "p"), directory.announce(CLAIM, "q", {"made": "soon"}):
        until(lambda: len(first._watch.entries) == 3)
        assert not first.take("q", "far")
        assert not first.superseded()


def test_of_two_that_both_have_a_claim_the_later_one_ends(
    two: tuple[Claims, Claims], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new broker hears of records one by one."""
    first, second = two
    assert first.take("p", "far")
    with monkeypatch.context() as patch:
        patch.setattr(second._watch, "_progress", lambda: None)
        patch.setattr(second._directory, "find", lambda *_: ())
        assert second.take("p", "far")
    until(lambda: second.superseded() == [("far", "p")])
    assert not second.take("p", "far")  # while its own ends
    until(lambda: len(first._watch.entries) == 2)
    assert not first.superseded()
    second.release("p")
    assert not second.superseded()
    assert not second.take("p", "far")


def test_a_record_that_is_taken_back_at_once_ends_no_claim(
    two: tuple[Claims, Claims], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link has read the clock before, and found the claim."""
    first, second = two
    tried = Directory(second._directory._adapter).announce(CLAIM, "p", {"made": 1})
    with monkeypatch.context() as patch:
        patch.setattr(first._watch, "_progress", lambda: None)
        patch.setattr(first._directory, "find", lambda *_: ())
        assert first.take("p", "far")
    until(lambda: len(first._watch.entries) == 2)
    assert not first.superseded()
    tried.close()
    until(lambda: len(first._watch.entries) == 1)
    assert not first.superseded()


class Nowhere:
    """A session without other links."""

    def listen(self, key: str, heard: object) -> str:
        return parts(key)[0]

    def end(self, declared: object) -> None:
        pass


OFFER = {"name": "t", "type": "any", "attributes": {}, "history": 0}


@pytest.mark.parametrize("first", ["the link", "the publisher"])
def test_of_a_link_that_has_ended_no_end_of_a_publisher_is_awaited(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two this link hears of first; another link may take it then."""
    monkeypatch.setattr(incoming, "_END_LIMIT", 600.0)
    namespace = unique("claims")
    with (
        shmnd.open_adapter(namespace=namespace) as adapter,
        shmnd.open_adapter(namespace=namespace) as other,
    ):
        waiting = Claims(Directory(other), other.uid)
        far = FarPublishers(half(Nowhere(), namespace), ["*"], Directory(adapter), adapter.uid)
        far.take("far", "p", OFFER)
        far.note_link("another", there=False)
        steps = [lambda: far.note_link("far", there=False), lambda: far.drop("far", "p")]
        for step in steps if first == "the link" else reversed(steps):
            assert not waiting.take("p", "far")
            step()
        until(lambda: waiting.take("p", "far"))
        far.close()


def test_a_link_that_comes_again_is_awaited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its publisher has not ended meanwhile."""
    monkeypatch.setattr(incoming, "_QUIET", 0.0)
    namespace = unique("claims")
    with shmnd.open_adapter(namespace=namespace) as adapter:
        far = FarPublishers(half(Nowhere(), namespace), ["*"], Directory(adapter), adapter.uid)
        far.take("far", "p", OFFER)
        (found,) = far._incoming.values()
        far.note_link("far", there=False)
        far.note_link("far", there=True)
        far.drop("far", "p")
        ((_, ending),) = far._endings.values()
        ending.join(0.1)
        assert ending.is_alive()
        found._on_sample("", b"", pack(Message(END, 0)))
        ending.join(PATIENCE)
        assert not ending.is_alive()
        far.close()


def test_a_publisher_that_comes_again_waits_for_its_end_here() -> None:
    """The one before listens to the same samples until then: each would come twice."""
    namespace = unique("claims")
    woken: list[bool] = []
    with shmnd.open_adapter(namespace=namespace) as adapter:
        far = FarPublishers(
            half(Nowhere(), namespace),
            ["*"],
            Directory(adapter),
            adapter.uid,
            lambda: woken.append("p" not in {uid for _, uid in far._endings}),
        )
        far.take("far", "p", OFFER)
        (before,) = far._incoming.values()
        far.drop("far", "p")
        ((_, ending),) = far._endings.values()
        with pytest.raises(NotYet):
            far.take("far", "p", OFFER)
        assert before.publisher.closed is False
        before._on_sample("", b"", pack(Message(END, 5)))
        ending.join(PATIENCE)
        assert woken[-1], "the link was not woken behind the end"
        far.take("far", "p", OFFER)
        (found,) = far._incoming.values()
        assert before.publisher.closed
        assert not found.publisher.closed
        far.close()


def test_of_two_that_take_at_once_the_other_one_names_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It finds the record by asking, before it has heard of it."""
    namespace = unique("claims")
    with (
        shmnd.open_adapter(namespace=namespace) as adapter,
        shmnd.open_adapter(namespace=namespace) as other,
    ):
        far = FarPublishers(half(Nowhere(), namespace), ["*"], Directory(adapter), adapter.uid)
        far.seen["p"] = 7
        theirs = Claims(Directory(other), other.uid)
        assert theirs.take("p", "far")
        until(lambda: len(far._claims._watch.entries) == 1)
        with monkeypatch.context() as patch:
            hear = far._claims._hear
            patch.setattr(far._claims, "_hear", lambda: patch.setattr(far._claims, "_hear", hear))
            with pytest.raises(CarriedElsewhere, match=f"link of process {os.getpid()} "):
                far.take("far", "p", OFFER)
        assert not far.seen
        theirs.release("p")
        far.close()


def test_what_another_link_carries_is_not_lost() -> None:
    namespace = unique("claims")
    with (
        shmnd.open_adapter(namespace=namespace) as adapter,
        shmnd.open_adapter(namespace=namespace) as other,
    ):
        directory = Directory(adapter)
        far = FarPublishers(half(Nowhere(), namespace), ["*"], directory, adapter.uid)
        far.seen["p"] = 7
        theirs = Claims(Directory(other), other.uid)
        assert theirs.take("p", "far")
        with pytest.raises(CarriedElsewhere, match=f"process {os.getpid()} "):
            far.take("far", "p", OFFER)
        theirs.release("p")
        until(lambda: not directory.find(CLAIM))
        far.take("far", "p", OFFER)
        (found,) = far._incoming.values()
        assert found.last is None
        far.close()


def test_a_link_without_objects_claims_no_topic_of_objects() -> None:
    namespace = unique("claims")
    said: list[str] = []

    carrier: Carrier = half(Nowhere(), namespace, said.append)
    with shmnd.open_adapter(namespace=namespace) as adapter:
        directory = Directory(adapter)
        far = FarPublishers(carrier, ["*"], directory, adapter.uid)
        far.take("far", "p", OFFER | {"type": "object"})
        try:
            assert not directory.find(CLAIM)
            assert said == ["t carries objects, which take --objects"]
        finally:
            far.close()
