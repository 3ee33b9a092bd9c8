# SPDX-License-Identifier: Apache-2.0
"""Figures of all subjects for each question, also as a multiple of the figure of shmnd."""

import functools
from collections.abc import Sequence

from ..measure.question import Question
from ..measure.spread import Spread
from ..subjects.own import Shmnd
from ..subjects.rounds import Answer, Answers
from .table import Notes, in_unit, number, render, unit

HEADINGS = ("question", "subject", "median (least..greatest)", "", "÷ shmnd, round by round")


def figures(answers: Answers, questions: Sequence[Question], notes: Notes) -> str:
    """Return every figure in a table of text."""
    return render(HEADINGS, rows(answers, questions, notes))


def rows(answers: Answers, questions: Sequence[Question], notes: Notes) -> list[list[str]]:
    """Return a row for each answer; a row without a figure refers to the reason."""
    found = []
    for question in questions:
        for answer in answers:
            if answer.question != question:
                continue
            if answer.spread is None:
                found.append([question.label, answer.subject, notes.refer(answer.reason), "", ""])
                continue
            figure = answer.spread.map(functools.partial(in_unit, question)).format(number)
            ratio = ratio_to_ours(answers, answer)
            share = ratio.format(number) if ratio else ""
            share += ", too noisy" if ratio and ratio.noisy else ""
            found.append([question.label, answer.subject, figure, unit(question), share])
    return found


def ratio_to_ours(answers: Answers, answer: Answer) -> Spread | None:
    """Divide a figure by that of shmnd from the same rounds; return None for shmnd itself."""
    ours = answers.get(Shmnd.name, answer.question)
    if ours is None or ours is answer or ours.spread is None:
        return None
    # Times are divided as they are; rates are one over times.
    pair = (answer.values, ours.values)
    return Spread.of_ratios(*(reversed(pair) if answer.question.is_stream else pair))


def versions(answers: Answers) -> str:
    """Return the versions of the measured programs."""
    lines = [
        f"{subject}: " + ", ".join(f"{name} {version}" for name, version in found.items())
        for subject, found in answers.versions.items()
        if found
    ]
    return "\n".join(lines)
