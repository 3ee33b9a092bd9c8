# SPDX-License-Identifier: Apache-2.0
"""Claims of links: what ends them, and what a link takes for the claim of another one."""

from collections.abc import Iterator

import pytest

import shmnd
from link.kit import half, unique, until
from shmnd.directory import Directory
from shmnd_tools.link import claims
from shmnd_tools.link.carrier import Carrier
from shmnd_tools.link.claims import CLAIM, Claims
from shmnd_tools.link.far_publishers import FarPublishers
from shmnd_tools.link.wire import parts


@pytest.fixture
def two() -> Iterator[tuple[Claims, Claims]]:
    namespace = unique("claims")
    with (
        shmnd.open_adapter(namespace=namespace) as first,
        shmnd.open_adapter(namespace=namespace) as second,
    ):
        yield tuple(Claims(Directory(each), each.uid) for each in (first, second))


def test_a_claim_is_of_one_link_until_all_its_parts_have_ended(two: tuple[Claims, Claims]) -> None:
    first, second = two
    assert first.take("p", "far")
    assert first.take("p", "far")
    assert not first.take("p", "other")
    assert not second.take("p", "far")
    first.release("p")
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


def test_pauses_are_forgotten(two: tuple[Claims, Claims], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two
    monkeypatch.setattr(claims, "_PAUSE", 0.0)
    monkeypatch.setattr(second._watch, "_progress", lambda: None)  # it does not hear of the first
    for number in range(5):
        assert first.take(f"p{number}", "far")
        assert not second.take(f"p{number}", "far")
    assert len(second._pauses) == 1


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


def test_a_link_without_objects_claims_no_topic_of_objects() -> None:
    namespace = unique("claims")
    said: list[str] = []

    class Nowhere:
        def listen(self, key: str, heard: object) -> str:
            return parts(key)[0]

        def end(self, declared: object) -> None:
            pass

    offer = {"name": "t", "type": "object", "attributes": {}, "history": 0}
    carrier: Carrier = half(Nowhere(), namespace, said.append)
    with shmnd.open_adapter(namespace=namespace) as adapter:
        directory = Directory(adapter)
        far = FarPublishers(carrier, ["*"], directory, adapter.uid)
        far.take("far", "p", offer)
        try:
            assert not directory.find(CLAIM)
            assert said == ["t carries objects, which take --objects"]
        finally:
            far.close()
