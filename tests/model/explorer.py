# SPDX-License-Identifier: Apache-2.0
"""All interleavings of small concurrent programs under a weak memory.

Each thread has a store buffer without order among different words: a plain store may become visible
at any later moment, before or after its neighbours. A release store waits until all earlier stores
of its thread are visible; a fence and a read-modify-write drain the buffer. Loads happen in program
order, so what needs an acquire is given one for free; what is explored is the order of stores and
the passing of loads before stores, which is what the protocols' fences are for.

A thread is a generator that yields operations and receives what a load gives. The explorer replays
each prefix of choices from the start, which keeps the programs plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

Op = tuple[Any, ...]
Thread = Generator[Op, int, None]

MOST_STATES = 400_000


def store(word: str, value: int) -> Op:
    """A relaxed store."""
    return ("store", word, value)


def release(word: str, value: int) -> Op:
    """A store after all earlier stores of this thread."""
    return ("release", word, value)


def load(word: str) -> Op:
    """A load; the yield gives its value."""
    return ("load", word)


def fence() -> Op:
    """Everything stored before is visible before anything loaded after."""
    return ("fence",)


def swap(word: str, expected: int, value: int) -> Op:
    """Compare and swap; the yield gives 1 when it succeeded."""
    return ("swap", word, expected, value)


class _Run:
    """One execution, steered by choices."""

    def __init__(self, threads: list[Callable[[], Thread]], memory: dict[str, int]) -> None:
        self.memory = dict(memory)
        self.buffers: list[list[tuple[str, int, bool]]] = [[] for _ in threads]
        self.threads: list[Thread | None] = [make() for make in threads]
        self.waiting: list[Op | None] = [None] * len(threads)
        self.trace: list[tuple[Any, ...]] = []
        self.history: list[list[Any]] = [[] for _ in threads]
        for number in range(len(threads)):
            self._advance(number, None)

    def _advance(self, number: int, value: int | None) -> None:
        thread = self.threads[number]
        assert thread is not None
        self.history[number].append(value)
        try:
            self.waiting[number] = next(thread) if value is None else thread.send(value)
        except StopIteration:
            self.threads[number] = None
            self.waiting[number] = None

    def choices(self) -> list[tuple[str, int, int]]:
        """What may happen next: a thread's step, or one of its stores becoming visible."""
        found = []
        for number, op in enumerate(self.waiting):
            if op is not None and (op[0] not in ("fence", "swap") or not self.buffers[number]):
                found.append(("step", number, 0))
        for number, buffer in enumerate(self.buffers):
            seen: set[str] = set()
            for at, (word, _, released) in enumerate(buffer):
                if word not in seen and (not released or at == 0):
                    found.append(("show", number, at))
                seen.add(word)
        return found

    def do(self, choice: tuple[str, int, int]) -> None:
        kind, number, at = choice
        self.trace.append(choice)
        if kind == "show":
            word, value, _ = self.buffers[number].pop(at)
            self.memory[word] = value
            return
        op = self.waiting[number]
        assert op is not None
        self._advance(number, self._perform(number, op))

    def _perform(self, number: int, op: Op) -> int:
        if op[0] in ("store", "release"):
            self.buffers[number].append((op[1], op[2], op[0] == "release"))
            return 0
        if op[0] == "load":
            for word, value, _ in reversed(self.buffers[number]):
                if word == op[1]:
                    return value
            return self.memory[op[1]]
        if op[0] == "swap":
            if self.memory[op[1]] != op[2]:
                return 0
            self.memory[op[1]] = op[3]
            return 1
        return 0

    def state(self) -> tuple[Any, ...]:
        return (
            tuple(sorted(self.memory.items())),
            tuple(tuple(buffer) for buffer in self.buffers),
            tuple(tuple(history) for history in self.history),
        )


def explore(
    threads: list[Callable[[], Thread]],
    memory: dict[str, int],
    final: Callable[[dict[str, int]], None] | None = None,
) -> int:
    """Run every interleaving; an assertion of a thread or of `final` ends it. Gives the states."""
    seen: set[tuple[Any, ...]] = set()
    todo: list[list[tuple[str, int, int]]] = [[]]
    while todo:
        prefix = todo.pop()
        run = _Run(threads, memory)
        for choice in prefix:
            run.do(choice)
        state = run.state()
        if state in seen:
            continue
        seen.add(state)
        assert len(seen) < MOST_STATES, "the model is too large to be explored whole"
        choices = run.choices()
        if not choices:
            if final is not None:
                final(run.memory)
            continue
        todo.extend([*prefix, choice] for choice in choices)
    return len(seen)
