# SPDX-License-Identifier: Apache-2.0
"""Rounds A B A B: each question is put to every subject in turn, then all of it again.

A machine changes under a benchmark: other guests, clocks, the place of the cores. What is to be
compared is therefore taken within the same tenths of a second, many times, and compared round by
round. Figures of separate runs are never put side by side.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .harness import HarnessError, Stage
from .question import Question
from .spread import Spread
from .subject import Subject

Progress = Callable[[str], None]

_FIRST_COUNT = 16
_COUNT_MAX = 5_000_000
_GROWTH = 8


@dataclasses.dataclass(slots=True)
class Answer:
    """What one subject answered to one question, round by round."""

    subject: str
    question: Question
    count: int = 0
    values: list[float] = dataclasses.field(default_factory=list)
    """Seconds per message."""
    error: str | None = None

    @property
    def spread(self) -> Spread | None:
        """Median and range of the rounds; None if it failed."""
        return Spread.of(self.values) if self.values and self.error is None else None

    @property
    def reason(self) -> str:
        """Say why there is no figure."""
        return f"{self.subject}: {self.error or 'no round was measured'}"

    def as_json(self) -> dict[str, Any]:
        """Give the form for reports."""
        return {
            "subject": self.subject,
            "question": self.question.as_json(),
            "count": self.count,
            "seconds_per_message": self.values,
            "error": self.error,
        }


class Answers:
    """All answers of a run, found by subject and question."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, Question], Answer] = {}
        self.versions: dict[str, dict[str, str]] = {}

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._all.values())

    def get(self, subject: str, question: Question) -> Answer | None:
        """Find one answer; None if it was never asked for."""
        return self._all.get((subject, question))

    def expect(self, subject: str, question: Question) -> Answer:
        """Find an answer, or begin it."""
        return self._all.setdefault((subject, question), Answer(subject, question))

    def as_json(self) -> list[dict[str, Any]]:
        """Give the form for reports."""
        return [answer.as_json() for answer in self._all.values()]


class Run:
    """Puts questions to subjects in rounds. A subject that fails becomes a remark, no more."""

    def __init__(self, stage: Stage, *, rounds: int, seconds: float, progress: Progress) -> None:
        self._stage = stage
        self._rounds = rounds
        self._seconds = seconds
        self._progress = progress
        self.answers = Answers()

    def ask(self, questions: Sequence[Question], subjects: Sequence[Subject]) -> None:
        """Start the subjects, put every question in every round, and stop them."""
        plan = [(question, subject) for question in questions for subject in subjects]
        plan = [(question, subject) for question, subject in plan if subject.answers(question)]
        try:
            for subject in subjects:
                self._start(subject, [question for question, other in plan if other is subject])
            for question, subject in plan:
                self._attempt(subject, question, self._calibrate)
            for number in range(1, self._rounds + 1):
                for question, subject in plan:
                    self._progress(
                        f"round {number} of {self._rounds}: {question.label}, {subject.name}"
                    )
                    self._attempt(subject, question, self._measure)
        finally:
            for subject in subjects:
                subject.stop()

    def _start(self, subject: Subject, questions: Sequence[Question]) -> None:
        answers = [self.answers.expect(subject.name, question) for question in questions]
        if not answers:
            return
        self._progress(f"starting {subject.name}")
        problem = subject.missing()
        if problem is None:
            try:
                subject.start(self._stage)
                self.answers.versions[subject.name] = subject.versions()
                return
            except HarnessError as exc:
                problem = str(exc)
                subject.stop(orderly=False)
        for answer in answers:
            answer.error = problem

    def _attempt(
        self, subject: Subject, question: Question, step: Callable[[Subject, Answer], None]
    ) -> None:
        answer = self.answers.expect(subject.name, question)
        if answer.error is not None:
            return
        try:
            step(subject, answer)
        except HarnessError as exc:
            # Its processes may be in any state now: end them, and let it try its other
            # questions with fresh ones.
            answer.error = str(exc)
            subject.stop(orderly=False)
            self._restart(subject)

    def _restart(self, subject: Subject) -> None:
        try:
            subject.start(self._stage)
        except HarnessError:
            subject.stop(orderly=False)  # each further question will say that it is not running

    def _calibrate(self, subject: Subject, answer: Answer) -> None:
        """Find how many rounds fill the wanted time; this warms everything up, too."""
        self._progress(f"warming up: {answer.question.label}, {subject.name}")
        count, elapsed = _FIRST_COUNT, 0.0
        while True:
            elapsed = subject.measure(answer.question, count) * count * answer.question.ways
            if elapsed >= self._seconds / _GROWTH or count >= _COUNT_MAX:
                break
            count *= _GROWTH
        fitting = int(count * self._seconds / max(elapsed, 1e-9))
        answer.count = min(max(fitting, _FIRST_COUNT), _COUNT_MAX)

    def _measure(self, subject: Subject, answer: Answer) -> None:
        answer.values.append(subject.measure(answer.question, answer.count))
