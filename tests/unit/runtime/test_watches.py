# SPDX-License-Identifier: Apache-2.0
"""What a watch keeps while its changes are not taken."""

import random

from shmnd.common.records import Change, Entry, Watch

COMINGS = 20_000


def entry(number: int, state: int = 0) -> Entry:
    return Entry("topic", f"name {number}", {"state": state}, "adapter", "process", 1, number)


def new_watch() -> Watch:
    return Watch("topic", "", lambda: None)


def states_after(changes: list[Change], told: dict[int, int]) -> dict[int, int]:
    """What a program knows after some changes: the states by their numbers."""
    for change in changes:
        number = change.entry.number
        if change.gone:
            del told[number]  # each end is that of one that it knows
        else:
            told[number] = change.entry.data["state"]
    return told


def test_few_changes_come_one_by_one() -> None:
    watch = new_watch()
    for number in range(1000):
        watch.take(entry(number), gone=False)
        watch.take(entry(number), gone=True)
    assert [each.gone for each in watch.changes()] == [False, True] * 1000


def test_comings_and_goings_that_are_not_read_take_bounded_memory() -> None:
    watch = new_watch()
    watch.take(entry(COMINGS), gone=False)
    for number in range(COMINGS):
        watch.take(entry(number), gone=False)
        watch.take(entry(number), gone=True)
    changes = watch.changes()
    assert len(changes) < COMINGS / 2
    assert changes[0] == Change(entry(COMINGS), gone=False)
    assert states_after(changes, {}) == {COMINGS: 0}
    assert watch.changes() == []


def test_states_that_are_not_read_take_bounded_memory() -> None:
    watch = new_watch()
    for state in range(COMINGS):
        watch.take(entry(0, state), gone=False)
    changes = watch.changes()
    assert len(changes) < COMINGS / 2
    assert states_after(changes, {}) == {0: COMINGS - 1}


def test_records_that_come_again_end_before() -> None:
    watch = new_watch()
    watch.take(entry(0), gone=False)
    assert states_after(watch.changes(), {}) == {0: 0}
    for state in range(1, COMINGS):
        watch.take(entry(0), gone=True)
        watch.take(entry(0, state), gone=False)
    changes = watch.changes()
    assert len(changes) < COMINGS / 2
    assert [each.gone for each in changes[:2]] == [True, False]
    assert changes[-1] == Change(entry(0, COMINGS - 1), gone=False)


def test_as_many_as_there_are_stay_and_are_merged_seldom() -> None:
    watch = new_watch()
    for number in range(COMINGS):
        watch.take(entry(number), gone=False)
    assert states_after(watch.changes(), {}) == dict.fromkeys(range(COMINGS), 0)


def test_reports_match_the_present_entries_after_any_changes() -> None:
    chance = random.Random(7)
    watch, there, told = new_watch(), dict[int, int](), dict[int, int]()
    for state in range(10 * COMINGS):
        number = chance.randrange(300)
        if number in there and chance.random() < 0.5:
            watch.take(entry(number, there.pop(number)), gone=True)
        else:
            there[number] = state
            watch.take(entry(number, state), gone=False)
        if chance.random() < 0.0001:
            told = states_after(watch.changes(), told)
            assert told == there
    assert states_after(watch.changes(), told) == there
