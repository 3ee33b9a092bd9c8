# SPDX-License-Identifier: Apache-2.0
"""Names that processes announce to each other, through real brokers that come and go."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd
from processes.kit import Child, broker_pid, end_process, until
from shmnd import NdError, Status
from shmnd.directory import Change, Directory, Watch

pytestmark = pytest.mark.slow

OWNER = """
from shmnd.directory import Directory
adapter = shmnd.open_adapter()
directory = Directory(adapter)
names = {}
while True:
    what, name = hear()
    if what == "announce":
        names[name] = directory.announce("topic", name, {"size": len(name)})
    elif what == "retract":
        names.pop(name).close()
    elif what == "progress":
        directory.find("topic")
    say("done")
"""


@pytest.fixture
def directory() -> Iterator[Directory]:
    with shmnd.open_adapter() as adapter:
        yield Directory(adapter)


def ask(owner: Child, what: str, name: str = "") -> None:
    owner.say([what, name])
    assert owner.hear() == "done"


def taken(watch: Watch, count: int) -> list[Change]:
    """So many changes, when they have come."""
    changes: list[Change] = []

    def met() -> bool:
        changes.extend(watch.changes())
        return len(changes) >= count

    until(met)
    return changes


def test_a_record_is_found_and_followed_by_another_process(directory: Directory) -> None:
    with Child(OWNER) as owner:
        ask(owner, "announce", "first")
        with directory.watch("topic") as watch:
            ask(owner, "announce", "second")
            ask(owner, "retract", "first")
            changes = taken(watch, 3)
            assert [(change.entry.name, change.gone) for change in changes] == [
                ("first", False),
                ("second", False),
                ("first", True),
            ]
            (entry,) = directory.find("topic")
            assert entry == changes[1].entry
            assert entry.data == {"size": 6}
            assert entry.pid == owner.pid
            assert watch.entries == (entry,)
            assert directory.find("topic", "first") == ()
            assert directory.find("service") == ()


def test_the_records_of_a_process_that_dies_go(directory: Directory) -> None:
    with Child(OWNER) as owner, directory.watch("topic", "x") as watch:
        ask(owner, "announce", "x")
        assert not taken(watch, 1)[0].gone
        owner.kill()
        assert taken(watch, 1)[0].gone
        assert directory.find("topic") == ()


def test_a_new_broker_learns_the_records_and_watchers_see_no_change(directory: Directory) -> None:
    with Child(OWNER) as owner, directory.watch("topic") as watch:
        ask(owner, "announce", "kept")
        taken(watch, 1)
        end_process(broker_pid())
        assert directory.announce("topic", "own").kind == "topic"  # starts a broker
        ask(owner, "progress")
        until(lambda: len(directory.find("topic")) == 2)
        assert [(change.entry.name, change.gone) for change in taken(watch, 1)] == [("own", False)]
        ask(owner, "retract", "kept")
        assert [(change.entry.name, change.gone) for change in taken(watch, 1)] == [("kept", True)]


def test_a_process_that_dies_without_a_broker_goes_after_a_while(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmnd.runtime.broker.announcements._GRACE", 0.2)
    with Child(OWNER) as owner, directory.watch("topic") as watch:
        ask(owner, "announce", "lost")
        taken(watch, 1)
        end_process(broker_pid())
        owner.kill()
        assert directory.find("topic") == ()
        assert taken(watch, 1)[0].gone


def test_a_watch_wakes_its_owner(directory: Directory) -> None:
    with Child(OWNER) as owner, directory.watch("topic") as watch:
        woken: list[bool] = []
        watch.wake = lambda: woken.append(True)
        ask(owner, "announce", "x")
        until(lambda: bool(watch.changes()) or bool(woken))
        assert woken


def test_a_record_ends_with_its_adapter(directory: Directory) -> None:
    with shmnd.open_adapter() as other:
        Directory(other).announce("topic", "x")
        assert [entry.name for entry in directory.find("topic")] == ["x"]
    assert directory.find("topic") == ()


def test_invalid_announcements_are_refused(directory: Directory) -> None:
    for kind, name, data in (
        ("Topic", "x", {}),
        ("", "x", {}),
        ("topic", "x" * 256, {}),
        ("topic", "x", {"a": "b" * 5000}),
    ):
        with pytest.raises(ValueError, match="must be") as refused:
            directory.announce(kind, name, data)
        assert isinstance(refused.value, NdError)
        assert "Directory.announce" in str(refused.value)
    assert directory.find("topic") == ()


def test_a_closed_adapter_announces_and_finds_nothing() -> None:
    with shmnd.open_adapter() as adapter:
        directory = Directory(adapter)
        announcement = directory.announce("topic", "x")
        watch = directory.watch("topic")
    for call in (
        lambda: directory.announce("topic", "y"),
        lambda: directory.find("topic"),
        lambda: directory.watch("topic"),
    ):
        with pytest.raises(NdError) as refused:
            call()
        assert refused.value.status is Status.DEVICE_REMOVED
    announcement.close()
    watch.close()
    watch.close()


def test_a_watch_that_begins_as_another_thread_ends_the_last_one_of_its_name(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker hears of the end behind the beginning, and the new one hears of records."""
    first = directory.watch("topic", "name")
    engine = directory._names._engine
    call = engine.call

    def ended_meanwhile(op: str, *args: Any, **fields: Any) -> Any:
        reply = call(op, *args, **fields)
        if op == "watch":
            other = threading.Thread(target=first.close)
            other.start()
            other.join(30)
            assert not other.is_alive()
        return reply

    monkeypatch.setattr(engine, "call", ended_meanwhile)
    with directory.watch("topic", "name") as second:
        monkeypatch.undo()
        with shmnd.open_adapter() as other, Directory(other).announce("topic", "name"):
            directory.find("topic", "name")
            assert [each.gone for each in second.changes()] == [False]
        assert taken(second, 1)[0].gone
    # No watch is left, and the next one begins anew.
    assert ("topic", "name") not in directory._names._watches
    with shmnd.open_adapter() as other, Directory(other).announce("topic", "name"):
        assert len(directory.watch("topic", "name").entries) == 1
