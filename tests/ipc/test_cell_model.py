# SPDX-License-Identifier: Apache-2.0
"""Cells and signals, through all interleavings; with each order taken away in turn."""

import pytest

from model.explorer import (
    Thread,
    acquire,
    clear_bits,
    explore,
    load,
    loads_before,
    release,
    set_bits,
    store,
    stores_before,
)
from model.verdict import violated

# -- SYNC published, SYNC begun: with two copies of two words, and three versions --


def cell(weak: str) -> int:
    def writer() -> Thread:
        for version in (2, 3):
            copy = version % 2
            if weak != "begun before bytes":
                yield store("begun", version)
            if weak != "release fence":
                yield stores_before()
            yield store(f"a{copy}", version)
            yield store(f"b{copy}", version)
            if weak == "begun before bytes":
                yield store("begun", version)
            if weak == "published release":
                yield store("published", version)
            else:
                yield release("published", version)

    def reader() -> Thread:
        if weak == "published acquire":
            version = yield load("published")
        else:
            version = yield acquire("published")
        copy = version % 2
        a = yield load(f"a{copy}")
        b = yield load(f"b{copy}")
        if weak != "acquire fence":
            yield loads_before()
        begun = yield load("begun")
        if begun < version + (3 if weak == "one copy too many" else 2):
            assert (a, b) == (version, version), "a torn value, or another version"

    memory = {"published": 1, "begun": 1, "a1": 1, "b1": 1, "a0": 0, "b0": 0}
    return explore([writer, reader], memory)


def test_a_reader_gets_a_whole_value() -> None:
    assert cell("") > 100


@pytest.mark.parametrize(
    "weak",
    [
        "begun before bytes",
        "release fence",
        "published release",
        "published acquire",
        "acquire fence",
        "one copy too many",
    ],
)
def test_each_order_of_a_cell_is_needed(weak: str) -> None:
    assert violated(lambda: cell(weak))


# -- SYNC signal: none is lost --


def signals(weak: str) -> int:
    def notifier() -> Thread:
        if weak == "bit before mark":
            yield set_bits("words", 1)
            yield set_bits("bits", 1)
        else:
            yield set_bits("bits", 1)
            yield set_bits("words", 1)

    def listener() -> Thread:
        if weak == "marks before bits":
            found = yield clear_bits("bits", 1)
            yield clear_bits("words", 1)
        else:
            marked = yield clear_bits("words", 1)
            if not marked:
                return
            found = yield clear_bits("bits", 1)
        if found:
            yield store("taken", 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["taken"] or (memory["bits"] and memory["words"]), "a signal without a mark"

    # A mark of another number of the same word may stand there already.
    return explore([notifier, listener], {"bits": 0, "words": 1, "taken": 0}, final)


def test_no_signal_is_lost() -> None:
    assert signals("") > 5


@pytest.mark.parametrize("weak", ["bit before mark", "marks before bits"])
def test_each_order_of_a_signal_is_needed(weak: str) -> None:
    assert violated(lambda: signals(weak))
