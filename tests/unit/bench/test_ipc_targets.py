# SPDX-License-Identifier: Apache-2.0
"""The targets of topics and queues: each has its question, and a difference has a verdict, too."""

import pytest

from shmnd_bench.ipc import targets
from shmnd_bench.ipc.bare import BareCalls
from shmnd_bench.ipc.iceoryx import IceoryxTopics
from shmnd_bench.ipc.others import Line, ZeroMqTopics
from shmnd_bench.ipc.own import Topics
from shmnd_bench.ipc.queues import MultiprocessingQueues, Queues
from shmnd_bench.report.table import Notes
from shmnd_bench.subjects.rounds import Answers
from shmnd_bench.subjects.subject import Subject

CROWD = targets.crowd()
SUBJECTS: tuple[Subject, ...] = (
    *(Topics(), Queues(), MultiprocessingQueues()),
    *(IceoryxTopics(), ZeroMqTopics(), Line()),
)


def test_the_floor_of_calls_is_under_every_value_and_array_and_a_wake_up() -> None:
    asked = (*targets.VALUES, *targets.ARRAYS, targets.HUGE, targets.WOKEN)
    assert all(BareCalls().answers(question) for question in asked)
    assert not any(BareCalls().answers(question) for question in (*targets.PUBLISH, CROWD))


def answers_of(alone: list[float], many: list[float]) -> Answers:
    answers = Answers()
    answers.expect(targets.TOPICS, targets.PUBLISH[0]).values = alone
    answers.expect(targets.TOPICS, CROWD).values = many
    return answers


def test_both_sides_of_every_target_are_measured() -> None:
    subjects = {subject.name: subject for subject in SUBJECTS}
    asked = targets.questions()
    assert len(targets.targets()) > 5
    for target in targets.targets():
        assert target.question in asked
        assert target.against is not None
        assert target.against_question is None
        for name in (target.subject, target.against):
            assert subjects[name].answers(target.question), f"{name}: {target.label}"


def test_words_choose_questions() -> None:
    assert targets.questions(["built", "woken"]) == [targets.BUILT, targets.WOKEN]
    assert CROWD not in targets.questions(["publish"], idle=0)
    labels = [question.label for question in targets.questions()]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("many", "word"),
    [
        ([0.4e-6, 0.5e-6], "met"),
        ([0.5e-6, 0.58e-6], "met"),
        ([0.65e-6, 0.7e-6], "missed"),
        ([0.55e-6, 0.7e-6], "missed (unsure)"),
        ([0.3e-6, 0.7e-6], "too noisy"),
    ],
)
def test_a_crowd_may_take_so_much_more(many: list[float], word: str) -> None:
    verdict = targets.judge_crowd(answers_of([0.3e-6, 0.3e-6], many), CROWD)
    assert verdict.word == word
    assert verdict.cells(Notes())[-2] == "≤ 0.3 µs more"


def test_a_crowd_that_was_not_measured_has_a_remark() -> None:
    answers = answers_of([1e-6], [1e-6])
    answers.expect(targets.TOPICS, CROWD).error = "it stopped"
    verdict = targets.judge_crowd(answers, CROWD)
    assert (verdict.word, verdict.remark) == ("unknown", "shmnd.ipc: it stopped")
    assert targets.verdicts(Answers(), targets.questions())[0].remark == "not part of this run"
