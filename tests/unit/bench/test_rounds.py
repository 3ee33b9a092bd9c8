# SPDX-License-Identifier: Apache-2.0
"""Rounds: which subject is asked when, and what becomes of a subject that fails."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from shmnd_bench.measure.question import Kind, Question
from shmnd_bench.measure.reading import Reading
from shmnd_bench.subjects.rounds import Answers, Run
from shmnd_bench.subjects.subject import Subject
from shmnd_bench.workers.child import HarnessError
from shmnd_bench.workers.harness import Stage

PING = Question(Kind.PINGPONG, 40)
STREAM = Question(Kind.STREAM, 8)


class Fake(Subject):
    """Answers at once, with a time per message that does not depend on the machine."""

    def __init__(
        self,
        name: str,
        log: list[tuple[str, Kind]],
        *,
        kinds: tuple[Kind, ...] = (Kind.PINGPONG, Kind.STREAM),
        missing: str | None = None,
        fail: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        self.name = name  # type: ignore[misc]  # one class plays several subjects
        self.alive = 0
        self.calls = 0
        self._log = log
        self._kinds = kinds
        self._missing = missing
        self._fail = fail

    install: ClassVar[str] = ""

    def missing(self) -> str | None:
        return self._missing

    def answers(self, question: Question) -> bool:
        return question.kind in self._kinds

    def start(self, stage: Stage) -> None:
        self.alive += 1

    def stop(self, *, orderly: bool = True) -> None:
        self.alive = 0

    def measure(self, question: Question, count: int, record: bool = False) -> Reading:
        self.calls += 1
        self._log.append((self.name, question.kind))
        problem = self._fail(self.calls)
        if problem is not None:
            raise HarnessError(problem)
        return Reading(1e-3, {1000: count})


def ask(questions: list[Question], subjects: list[Fake], **options: Any) -> Answers:
    with Stage([0, 0]) as stage:
        run = Run(stage, rounds=3, seconds=0.01, progress=lambda _: None)
        run.ask(questions, subjects)
    assert not any(subject.alive for subject in subjects)
    return run.answers


def test_rounds_are_interleaved() -> None:
    log: list[tuple[str, Kind]] = []
    ask([PING, STREAM], [Fake("a", log), Fake("b", log, kinds=(Kind.PINGPONG,))])
    one_round = [("a", Kind.PINGPONG), ("b", Kind.PINGPONG), ("a", Kind.STREAM)]
    assert log[-9:] == one_round * 3


def test_the_count_fills_the_time() -> None:
    answers = ask([PING, STREAM], [Fake("a", [])])
    ping, stream = answers.get("a", PING), answers.get("a", STREAM)
    assert ping is not None
    assert stream is not None
    # 10 ms at 1 ms a message would be 10 messages; the least count is more than that.
    assert ping.count == stream.count == 16
    assert ping.values == [1e-3] * 3
    assert ping.spread is not None


def test_a_missing_subject_is_not_started() -> None:
    log: list[tuple[str, Kind]] = []
    answers = ask([PING], [Fake("a", log), Fake("b", log, missing="get it by apt")])
    missing = answers.get("b", PING)
    assert missing is not None
    assert missing.error == "get it by apt"
    assert missing.spread is None
    assert {name for name, _ in log} == {"a"}


def test_a_failure_ends_one_answer_and_not_the_run() -> None:
    # The first call is the calibration of PING, the second that of STREAM.
    broken = Fake("b", [], fail=lambda call: "it broke" if call == 1 else None)
    answers = ask([PING, STREAM], [broken, Fake("a", [])])
    failed, other, intact = (
        answers.get("b", PING),
        answers.get("b", STREAM),
        answers.get("a", PING),
    )
    assert failed is not None
    assert other is not None
    assert intact is not None
    assert failed.error == "it broke"
    assert len(other.values) == 3
    assert len(intact.values) == 3


def test_a_failure_in_a_late_round_drops_the_answer() -> None:
    broken = Fake("b", [], fail=lambda call: "it broke" if call == 3 else None)
    failed = ask([PING], [broken]).get("b", PING)
    assert failed is not None
    assert len(failed.values) == 1
    assert failed.spread is None


def test_answers_become_json() -> None:
    (data,) = ask([PING], [Fake("a", [])]).as_json()
    times = data.pop("times")
    assert data == {
        "subject": "a",
        "question": {"kind": "pingpong", "size": 40, "idle": 0, "how": {}},
        "count": 16,
        "seconds_per_message": [1e-3] * 3,
        "error": None,
    }
    # 1,000 ns there and back; three rounds of 16.
    assert times is None or (times["p50"], times["count"]) == (pytest.approx(0.5), 48)


def test_a_pause_in_the_calibration_is_not_taken_for_the_usual() -> None:
    class Stumbling(Fake):
        def measure(self, question: Question, count: int, record: bool = False) -> Reading:
            super().measure(question, count, record)
            return Reading(1e-1 if self.calls == 2 else 1e-6)

    answer = ask([STREAM], [Stumbling("a", [])]).get("a", STREAM)
    assert answer is not None
    assert answer.count == 10_000


def test_a_count_that_was_given_is_used() -> None:
    with Stage([0, 0]) as stage:
        run = Run(stage, rounds=2, seconds=10.0, count=5, progress=lambda _: None)
        run.ask([PING], [Fake("a", [])])
    answer = run.answers.get("a", PING)
    assert answer is not None
    assert answer.count == 5
    assert answer.samples == {1000: 10}
