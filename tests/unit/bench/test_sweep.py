# SPDX-License-Identifier: Apache-2.0
"""Sweeps over sizes: the sizes, and the ratios that are reported as steps."""

import itertools

from shmnd_bench.measure.how import How, Memory
from shmnd_bench.measure.question import Kind, Question
from shmnd_bench.programs.sweep import FACTOR, sizes_between, steps_of
from shmnd_bench.subjects.rounds import Answers


def test_sizes_grow_by_a_third() -> None:
    sizes = sizes_between(1, 16 << 20)
    assert sizes[:6] == [1, 2, 3, 4, 5, 6]
    assert sizes[-1] > (16 << 20) / FACTOR
    assert all(b > a and b <= max(a + 1, a * FACTOR + 1) for a, b in itertools.pairwise(sizes))
    assert sizes_between(512, 511) == []


def test_a_step_is_above_the_factor_in_the_rounds_themselves() -> None:
    questions = [Question(Kind.PINGPONG, size) for size in (100, 130, 169, 220)]
    answers = Answers()
    rounds = ([1.0, 10.0, 1.0], [1.2, 12.0, 1.2], [2.4, 24.0, 2.4], [2.6, 48.0, 3.6])
    for question, values in zip(questions, rounds, strict=True):
        answers.expect("shmnd", question).values = values
    steps = steps_of("shared-shared", questions, answers)
    assert [(step.below, step.above, step.word) for step in steps] == [
        (100, 130, ""),
        (130, 169, "step"),
        (169, 220, "step (unsure)"),
    ]


def test_a_size_that_failed_takes_part_in_no_ratio() -> None:
    questions = [Question(Kind.PINGPONG, size) for size in (100, 130, 169)]
    answers = Answers()
    answers.expect("shmnd", questions[0]).values = [1.0]
    answers.expect("shmnd", questions[1]).error = "it went away"
    answers.expect("shmnd", questions[2]).values = [9.0]
    assert steps_of("shared-shared", questions, answers) == []


def test_the_memory_of_the_receiver_goes_to_the_workers() -> None:
    how = How(memory=Memory.PRIVATE, into=Memory.SEGMENT)
    assert How.from_json(how.as_json()) == how
    assert how.describe() == "private memory, into segment memory"
