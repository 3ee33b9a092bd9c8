# SPDX-License-Identifier: Apache-2.0
"""The explorer itself, checked by the usual litmus tests of memory models."""

from model.explorer import (
    Op,
    Thread,
    acquire,
    explore,
    fence,
    load,
    loads_before,
    release,
    set_bits,
    store,
    stores_before,
    swap,
)


def outcomes(*programs: list[Op], memory: str = "xy") -> set[tuple[int, ...]]:
    """Return all combinations of values that the loads may return, thread after thread."""
    found: set[tuple[int, ...]] = set()
    given: dict[int, tuple[int, ...]] = {}

    def thread(number: int, program: list[Op]) -> Thread:
        values = []
        for op in program:
            value = yield op
            if op[0] in ("load", "acquire", "swap", "set_bits"):
                values.append(value)
        given[number] = tuple(values)

    def final(_: dict[str, int]) -> None:
        found.add(sum((given[number] for number in range(len(programs))), ()))

    makers = [lambda n=n, p=p: thread(n, p) for n, p in enumerate(programs)]
    explore(makers, dict.fromkeys(memory, 0), final)
    return found


def test_message_passing() -> None:
    writes = [store("x", 1), release("y", 1)]
    assert (1, 0) not in outcomes(writes, [acquire("y"), load("x")])
    assert (1, 0) in outcomes(writes, [load("y"), load("x")])
    assert (1, 0) in outcomes([store("x", 1), store("y", 1)], [acquire("y"), load("x")])


def test_message_passing_by_fences() -> None:
    writes = [store("x", 1), stores_before(), store("y", 1)]
    reads = [load("y"), loads_before(), load("x")]
    assert (1, 0) not in outcomes(writes, reads)
    assert (1, 0) in outcomes(writes, [load("y"), load("x")])
    assert (1, 0) in outcomes([store("x", 1), store("y", 1)], reads)


def test_store_buffering() -> None:
    one, other = [store("x", 1), load("y")], [store("y", 1), load("x")]
    assert (0, 0) in outcomes(one, other)
    fenced = [one[0], fence(), one[1]], [other[0], fence(), other[1]]
    assert (0, 0) not in outcomes(*fenced)
    assert (0, 0) in outcomes(fenced[0], other)
    strong = [release("x", 1), acquire("y")], [release("y", 1), acquire("x")]
    assert (0, 0) in outcomes(*strong), "release and acquire do not order a store before a load"


def test_coherence() -> None:
    """All threads see the values of one word in the same order."""
    found = outcomes([store("x", 1)], [store("x", 2)], [load("x"), load("x")], [load("x")] * 2)
    assert (1, 2, 2, 1) not in found
    assert (2, 1, 1, 2) not in found
    assert {(1, 2, 1, 2), (2, 1, 2, 1)} <= found
    assert not any(first and not second for first, second, *_ in found), "back to the oldest"


def test_independent_reads_of_independent_writes() -> None:
    writes = [release("x", 1)], [release("y", 1)]
    apart = outcomes(*writes, [acquire("x"), acquire("y")], [acquire("y"), acquire("x")])
    assert (1, 0, 1, 0) in apart, "without fences two readers may differ"
    fenced = outcomes(*writes, [load("x"), fence(), load("y")], [load("y"), fence(), load("x")])
    assert (1, 0, 1, 0) not in fenced


def test_a_word_that_is_read_and_modified_is_modified_once() -> None:
    found = outcomes([swap("x", 0, 1)], [swap("x", 0, 2)], memory="x")
    assert found == {(1, 0), (0, 1)}
    assert outcomes([set_bits("x", 1)], [set_bits("x", 2)], memory="x") == {(0, 1), (2, 0)}


def test_a_modification_continues_the_release_sequence() -> None:
    """The release sequence: an acquire load of the swap sees the stores before the release."""
    found = outcomes([store("x", 1), release("y", 1)], [swap("y", 1, 2)], [acquire("y"), load("x")])
    assert all(seen for swapped, y, seen in found if y == 2)
    assert (1, 2, 1) in found
