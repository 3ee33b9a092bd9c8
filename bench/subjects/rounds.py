# SPDX-License-Identifier: Apache-2.0
"""Rounds A B A B: each question is measured for every subject in turn, and then all again.

A machine changes during a benchmark: other guests, clocks, the place of the cores. Figures that are
compared are therefore measured within the same tenths of a second, many times, and compared round
by round. Figures of separate runs are never compared.
"""

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from ..measure import histogram
from ..measure.question import Question
from ..measure.spread import Spread
from ..workers.child import HarnessError
from ..workers.harness import Stage
from .subject import Subject

Progress = Callable[[str], None]

_COUNT_MAX = 5_000_000
_GROWTH = 8
_RECORD_PART = 4
"""A recording that is apart has the fourth part of the messages."""


class Record(enum.Enum):
    """Whether single rounds are timed."""

    NEVER = enum.auto()
    ALWAYS = enum.auto()
    """Within the measurement: the mean and the percentiles are of the same rounds."""
    APART = enum.auto()
    """Separately, so that means are comparable with programs that time only the whole."""


@dataclasses.dataclass(slots=True)
class Answer:
    """What one subject answered to one question, round by round."""

    subject: str
    question: Question
    count: int = 0
    values: list[float] = dataclasses.field(default_factory=list)
    """Seconds per message."""
    samples: Counter[int] = dataclasses.field(default_factory=Counter)
    """How often a round of the loop took so many nanoseconds, over all rounds of the run."""
    error: str | None = None

    @property
    def spread(self) -> Spread | None:
        """Median and range of the rounds; None if it failed."""
        return Spread.of(self.values) if self.values and self.error is None else None

    @property
    def reason(self) -> str:
        """The reason why there is no figure."""
        return f"{self.subject}: {self.error or 'no round was measured'}"

    def as_json(self) -> dict[str, Any]:
        """Return the form for reports."""
        return {
            "subject": self.subject,
            "question": self.question.as_json(),
            "count": self.count,
            "seconds_per_message": self.values,
            "error": self.error,
            "times": self._times(),
        }

    def dump(self) -> dict[str, Any]:
        """Return all there is, to be read again by `load`."""
        return {**self.as_json(), "samples": list(self.samples.items()), "times": None}

    @classmethod
    def load(cls, data: dict[str, Any]) -> Self:
        """Return the object from the form that `dump()` returned."""
        return cls(
            str(data["subject"]),
            Question.from_json(data["question"]),
            int(data["count"]),
            [float(value) for value in data["seconds_per_message"]],
            Counter({int(time): int(count) for time, count in data["samples"]}),
            data["error"],
        )

    def _times(self) -> dict[str, Any] | None:
        """Return the times of single rounds in microseconds, where they were seen."""
        if not self.samples or self.error is not None:
            return None
        return histogram.Histogram.of(self.samples, self.question.ways).as_json()


class Answers:
    """All answers of a run, found by subject and question."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, Question], Answer] = {}
        self.versions: dict[str, dict[str, str]] = {}

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._all.values())

    def get(self, subject: str, question: Question) -> Answer | None:
        """Return one answer; None if it was never asked for."""
        return self._all.get((subject, question))

    def expect(self, subject: str, question: Question) -> Answer:
        """Return the answer to a question, begun if there is none."""
        return self._all.setdefault((subject, question), Answer(subject, question))

    def as_json(self) -> list[dict[str, Any]]:
        """Return the form for reports."""
        return [answer.as_json() for answer in self._all.values()]

    def dump(self) -> list[dict[str, Any]]:
        """Return all there is, to be read again by `load`."""
        return [answer.dump() for answer in self._all.values()]

    @classmethod
    def load(cls, data: Iterable[dict[str, Any]]) -> Self:
        """Return the object from the form that `dump()` returned."""
        self = cls()
        for answer in map(Answer.load, data):
            self._all[answer.subject, answer.question] = answer
        return self


class Run:
    """Puts questions to subjects in rounds. A subject that fails becomes a remark, no more."""

    def __init__(
        self,
        stage: Stage,
        *,
        rounds: int,
        seconds: float,
        progress: Progress,
        count: int | None = None,
        record: Record = Record.NEVER,
    ) -> None:
        self._stage = stage
        self._rounds = rounds
        self._seconds = seconds
        self._count = count
        self._record = record
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
                for place, (question, subject) in enumerate(plan, 1):
                    self._progress(
                        f"round {number} of {self._rounds}, {place} of {len(plan)}: "
                        f"{question.label}, {subject.name}"
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
        if self._count is not None:
            subject.measure(answer.question, min(self._count, answer.question.fewest))
            answer.count = self._count
            return
        count, least = answer.question.fewest, math.inf
        while True:
            reading = subject.measure(answer.question, count)
            # The least: a pause of the machine must not be taken for the way it always is.
            least = min(least, reading.seconds * answer.question.ways)
            if count * least >= self._seconds / _GROWTH or count >= _COUNT_MAX:
                break
            count *= _GROWTH
        fitting = int(self._seconds / max(least, 1e-9))
        answer.count = min(max(fitting, answer.question.fewest), _COUNT_MAX)

    def _measure(self, subject: Subject, answer: Answer) -> None:
        reading = subject.measure(answer.question, answer.count, self._record is Record.ALWAYS)
        answer.values.append(reading.seconds)
        if self._record is Record.APART and not answer.question.is_stream:
            count = max(answer.count // _RECORD_PART, answer.question.fewest)
            reading = subject.measure(answer.question, count, True)
        answer.samples.update(reading.samples)
