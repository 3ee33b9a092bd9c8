# SPDX-License-Identifier: Apache-2.0
"""The questions about topics and queues, and the targets."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

from ..measure.how import How
from ..measure.question import Kind, Question
from ..measure.spread import Spread
from ..report.table import in_unit, number
from ..report.targets import Target, Verdict, judge, weigh
from ..subjects.rounds import Answers

TOPICS: Final = "shmnd.ipc"
QUEUE: Final = "ipc.Queue"

VALUES: Final = tuple(Question(Kind.VALUE, size) for size in (8, 4 << 10, 64 << 10, 1 << 20))
ARRAYS: Final = tuple(Question(Kind.ARRAY, size) for size in (8, 4 << 10, 64 << 10, 1 << 20))
HUGE: Final = Question(Kind.ARRAY, 1 << 30)
BUILT: Final = Question(Kind.BUILT, 1 << 20)
PUBLISH: Final = tuple(
    Question(Kind.PUBLISH, 8, how=How(subscribers=subscribers)) for subscribers in (1, 16)
)
IDLE: Final = 1000
WOKEN: Final = Question(Kind.WOKEN, 8)
OBJECTS: Final = tuple(Question(Kind.OBJECT, size) for size in (0, 1 << 10, 1 << 20, 64 << 20))
WORDS: Final = ("values", "arrays", "built", "publish", "woken", "queues")
"""The words that choose questions."""
CROWD_BOUND: Final = 0.3
"""So many microseconds a publish to a thousand idle subscribers may take more."""


def crowd(idle: int = IDLE) -> Question:
    """Return the question about a publish with so many idle subscribers."""
    return dataclasses.replace(PUBLISH[0], idle=idle)


def questions(words: Sequence[str] = WORDS, idle: int = IDLE) -> list[Question]:
    """Return the questions that the words choose."""
    known = {
        "values": VALUES,
        "arrays": (*ARRAYS, HUGE),
        "built": (BUILT,),
        "publish": (*PUBLISH, *([crowd(idle)] if idle else [])),
        "woken": (WOKEN,),
        "queues": OBJECTS,
    }
    return [question for word in words for question in known[word]]


def targets() -> list[Target]:
    """Return the targets that are ratios."""
    bounds = {("iceoryx2", question): 0.1 for question in (*VALUES, *ARRAYS)}
    bounds["iceoryx2", HUGE] = 0.2
    bounds |= {("cache line", question): 3.0 for question in (*ARRAYS, HUGE)}
    found = [
        Target(TOPICS, question, bound, peer, floor="bare calls")
        for (peer, question), bound in bounds.items()
    ]
    found.append(Target(TOPICS, BUILT, 4.0, "iceoryx2", floor="fill alone"))
    found += [Target(TOPICS, question, round(1 / 6, 3), "iceoryx2") for question in PUBLISH]
    found.append(Target(TOPICS, WOKEN, 0.75, "iceoryx2", floor="bare calls"))
    of_sizes = {0: 0.1, 1 << 10: 0.2, 1 << 20: 0.025, 64 << 20: 0.025}
    found += [
        Target(QUEUE, question, of_sizes[question.size], "multiprocessing.Queue")
        for question in OBJECTS
    ]
    found += [Target(TOPICS, question, 0.01, "pyzmq ipc") for question in (VALUES[0], ARRAYS[-1])]
    return found


def verdicts(answers: Answers, asked: Sequence[Question]) -> list[Verdict]:
    """Return the verdicts on the targets of the questions that were asked."""
    judged = [judge(target, answers) for target in targets() if target.question in asked]
    crowds = [question for question in asked if question.kind is Kind.PUBLISH and question.idle]
    return [*judged, *(judge_crowd(answers, question) for question in crowds)]


def judge_crowd(answers: Answers, question: Question) -> Verdict:
    """Return the verdict on a publish to many idle subscribers, compared with one."""
    base = Verdict(f"{question.label}, {TOPICS}", f"≤ {CROWD_BOUND:g} µs more", "", TOPICS)
    many, alone = answers.get(TOPICS, question), answers.get(TOPICS, PUBLISH[0])
    if many is None or alone is None or many.spread is None or alone.spread is None:
        failed = next((each for each in (many, alone) if each is not None and each.error), None)
        return dataclasses.replace(base, remark=failed.reason if failed else "not part of this run")
    in_us = functools.partial(in_unit, question)
    figures = [spread.map(in_us) for spread in (many.spread, alone.spread)]
    base = dataclasses.replace(
        base, ours=f"{number(figures[0].median)} µs", theirs=f"{number(figures[1].median)} µs"
    )
    more = [(one - two) * 1e6 for one, two in zip(many.values, alone.values, strict=True)]
    noisy = any(spread.noisy for spread in figures)
    return weigh(base, Spread.of_median(more), CROWD_BOUND, at_least=False, noisy=noisy)
