# SPDX-License-Identifier: Apache-2.0
"""All executions of small concurrent programs under the memory of C11.

Memory keeps, for each word, every value that was ever stored, in the word's modification order. A
thread has a *view*: for each word the oldest value that it may still read. A relaxed load may
return any value from there on, however old, and moves the view of that word only. A store may take
any place in the modification order after the view. A release store carries its thread's view, and
an acquire load of it joins that view; a read-modify-write comes directly after the value that it
read, and passes on the view that this value carried; sequentially consistent fences join each view
with one global view. This is the operational form of release, acquire, relaxed and SC fences in
C11 without out-of-thin-air values: a load that is reordered before another load or an earlier store
is represented by a load that returns a stale value.

One reordering is not explored: a store before an *earlier load* of its own thread. Where that
matters the headers use a release, which forbids it.

A thread is a generator that yields operations and receives the values of its loads. The explorer
replays each prefix of choices from the start, so the programs are plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

Op = tuple[Any, ...]
Thread = Generator[Op, int, None]
Choice = tuple[int, int]

MOST_STATES = 400_000


def store(word: str, value: int) -> Op:
    """A relaxed store."""
    return ("store", word, value)


def release(word: str, value: int) -> Op:
    """A release store."""
    return ("release", word, value)


def load(word: str) -> Op:
    """A relaxed load; the yield returns its value."""
    return ("load", word)


def acquire(word: str) -> Op:
    """An acquire load; the yield returns its value."""
    return ("acquire", word)


def fence() -> Op:
    """A sequentially consistent fence."""
    return ("fence",)


def loads_before() -> Op:
    """An acquire fence: orders all earlier loads before later accesses."""
    return ("loads_before",)


def stores_before() -> Op:
    """A release fence: orders all earlier accesses before later stores."""
    return ("stores_before",)


def swap(word: str, expected: int, value: int) -> Op:
    """Compare and swap (acquire, release); the yield returns 1 when it succeeded."""
    return ("swap", word, expected, value)


def set_bits(word: str, bits: int) -> Op:
    """Fetch and or (acquire, release); the yield returns the previous value."""
    return ("set_bits", word, bits)


def add(word: str, more: int) -> Op:
    """Fetch and add (acquire, release); the yield returns the previous value."""
    return ("add", word, more)


def clear_bits(word: str, bits: int) -> Op:
    """Fetch and and-not (acquire, release); the yield returns the previous value."""
    return ("clear_bits", word, bits)


@dataclass(eq=False)
class _Write:
    """A value in the history of a word."""

    value: int
    carried: dict[str, _Write]
    """The view that an acquire load joins."""
    followed: bool = False
    """A read-modify-write comes directly after it: no other value may come between."""


View = dict[str, _Write]


@dataclass
class _Views:
    """The views of one thread."""

    now: View
    at_acquire: View = field(default_factory=dict)  # joined by an acquire fence
    at_release: View = field(default_factory=dict)  # as of the last release fence


class _Run:
    """One execution, determined by a list of choices."""

    def __init__(self, threads: list[Callable[[], Thread]], memory: dict[str, int]) -> None:
        self.words = {word: [_Write(value, {})] for word, value in memory.items()}
        first = {word: history[0] for word, history in self.words.items()}
        self.views = [_Views(dict(first)) for _ in threads]
        self.all_fences: View = dict(first)
        self.threads: list[Thread | None] = [make() for make in threads]
        self.waiting: list[Op | None] = [None] * len(threads)
        self.given: list[list[Any]] = [[] for _ in threads]
        for number in range(len(threads)):
            self._advance(number, None)

    # -- choices --

    def choices(self) -> list[Choice]:
        """Each thread's next operation, once for each value or place that it may take."""
        return [
            (number, way)
            for number, op in enumerate(self.waiting)
            if op is not None
            for way in self._ways(number, op)
        ]

    def _ways(self, number: int, op: Op) -> list[int]:
        if op[0] in ("fence", "loads_before", "stores_before"):
            return [0]
        history = self.words[op[1]]
        oldest = history.index(self.views[number].now[op[1]])
        if op[0] in ("load", "acquire"):
            return list(range(oldest, len(history)))
        if op[0] in ("store", "release"):
            return [at for at in range(oldest, len(history)) if not history[at].followed]
        return [
            at
            for at in range(oldest, len(history))
            if not history[at].followed or (op[0] == "swap" and history[at].value != op[2])
        ]

    # -- steps --

    def do(self, choice: Choice) -> None:
        number, way = choice
        op = self.waiting[number]
        assert op is not None
        self._advance(number, self._perform(self.views[number], op, way))

    def _perform(self, views: _Views, op: Op, way: int) -> int:
        if op[0] == "fence":
            self._join(views.now, views.at_acquire)
            self._join(views.now, self.all_fences)
            self.all_fences = dict(views.now)
            views.at_release = dict(views.now)
            return 0
        if op[0] == "loads_before":
            self._join(views.now, views.at_acquire)
            return 0
        if op[0] == "stores_before":
            views.at_release = dict(views.now)
            return 0
        word, history = op[1], self.words[op[1]]
        if op[0] in ("store", "release"):
            self._put(views, word, way, op[2], views.now if op[0] == "release" else None)
            return 0
        read = history[way]
        views.now[word] = read
        self._join(views.at_acquire, read.carried)
        if op[0] == "load":
            return read.value
        self._join(views.now, read.carried)
        if op[0] == "acquire":
            return read.value
        return self._modify(views, op, way, read)

    def _modify(self, views: _Views, op: Op, way: int, read: _Write) -> int:
        if op[0] == "swap":
            if read.value != op[2]:
                return 0
            value, gives = op[3], 1
        elif op[0] == "add":
            value, gives = read.value + op[2], read.value
        elif op[0] == "set_bits":
            value, gives = read.value | op[2], read.value
        else:
            value, gives = read.value & ~op[2], read.value
        read.followed = True
        put = self._put(views, op[1], way, value, views.now)
        self._join(put.carried, read.carried)
        return gives

    def _put(self, views: _Views, word: str, behind: int, value: int, view: View | None) -> _Write:
        new = _Write(value, dict(views.at_release if view is None else view))
        self.words[word].insert(behind + 1, new)
        new.carried[word] = views.now[word] = new
        return new

    def _join(self, view: View, other: View) -> None:
        for word, write in other.items():
            history = self.words[word]
            if word not in view or history.index(view[word]) < history.index(write):
                view[word] = write

    def _advance(self, number: int, value: int | None) -> None:
        thread = self.threads[number]
        assert thread is not None
        self.given[number].append(value)
        try:
            self.waiting[number] = next(thread) if value is None else thread.send(value)
        except StopIteration:
            self.threads[number] = None
            self.waiting[number] = None

    # -- state --

    def memory(self) -> dict[str, int]:
        """Return the last value of each word."""
        return {word: history[-1].value for word, history in self.words.items()}

    def state(self) -> tuple[Any, ...]:
        places = {write: at for history in self.words.values() for at, write in enumerate(history)}

        def seen(view: View) -> tuple[Any, ...]:
            return tuple(sorted((word, places[write]) for word, write in view.items()))

        return (
            tuple(
                (word, tuple((each.value, each.followed, seen(each.carried)) for each in history))
                for word, history in sorted(self.words.items())
            ),
            tuple((seen(v.now), seen(v.at_acquire), seen(v.at_release)) for v in self.views),
            seen(self.all_fences),
            tuple(tuple(given) for given in self.given),
        )


def explore(
    threads: list[Callable[[], Thread]],
    memory: dict[str, int],
    final: Callable[[dict[str, int]], None] | None = None,
) -> int:
    """Run every execution, until an assertion of a thread or of `final` fails. Return the number of
    states.
    """
    seen: set[tuple[Any, ...]] = set()
    todo: list[list[Choice]] = [[]]
    while todo:
        prefix = todo.pop()
        run = _Run(threads, memory)
        for choice in prefix:
            run.do(choice)
        state = run.state()
        if state in seen:
            continue
        seen.add(state)
        assert len(seen) < MOST_STATES, "the model is too large to be explored completely"
        choices = run.choices()
        if not choices:
            if final is not None:
                final(run.memory())
            continue
        todo.extend([*prefix, choice] for choice in choices)
    return len(seen)
