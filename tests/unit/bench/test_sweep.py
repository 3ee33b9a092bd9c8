# SPDX-License-Identifier: Apache-2.0
"""Sweeps over sizes: the sizes, and the ratios that are reported as steps."""

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from shmnd_bench.command import frame
from shmnd_bench.measure.how import How, Memory
from shmnd_bench.measure.question import Kind, Question
from shmnd_bench.programs import sweep
from shmnd_bench.programs.sweep import FACTOR, Series, Step, sizes_between, steps_of, summary
from shmnd_bench.subjects.own import Shmnd, ShmndNative
from shmnd_bench.subjects.rounds import Answers

KIB = 1024


def steps(times: dict[int, Sequence[float]]) -> list[Step]:
    """Return the steps between sizes whose rounds took these times."""
    series = Series.of("pingpong", "shared-shared", [*times])
    answers = Answers()
    for question, values in zip(series.questions, times.values(), strict=True):
        answers.expect("shmnd", question).values = [*values]
    return steps_of(series, "shmnd", answers)


def test_sizes_grow_by_a_third() -> None:
    sizes = sizes_between(1, 16 << 20)
    assert sizes[:6] == [1, 2, 3, 4, 5, 6]
    assert sizes[-1] > (16 << 20) / FACTOR
    assert all(b > a and b <= max(a + 1, a * FACTOR + 1) for a, b in itertools.pairwise(sizes))
    assert sizes_between(512, 511) == []


def test_a_step_is_above_the_factor_in_the_rounds_themselves() -> None:
    found = steps({100: [1, 10, 1], 130: [1.2, 12, 1.2], 169: [2.4, 24, 2.4], 220: [3.6, 28, 3.6]})
    assert [(step.below, step.above, step.word) for step in found] == [
        (100, 130, ""),
        (130, 169, "step"),
        (169, 220, "unsure"),
    ]
    assert found[1].ratio.median == pytest.approx(2)


def test_a_noisy_ratio_is_not_judged() -> None:
    found = steps({100: [1, 1, 1], 130: [1.5, 1.5, 3.1], 169: [1.5, 1.5, 3.1], 220: [9, 9, 9]})
    assert [step.word for step in found] == ["noisy", "", "noisy"]
    assert summary(found) == "0 steps above 1.3 between 3 pairs of sizes, 2 noisy"


def test_a_few_disturbed_rounds_change_nothing() -> None:
    (step,) = steps({100: [1, 1, 1, 1, 9, 1, 1, 1], 130: [2, 2, 90, 2, 2, 2, 2, 2]})
    assert (step.word, step.ratio.low, step.ratio.high) == ("step", 2, 2)


def test_the_time_of_the_added_bytes_makes_no_step() -> None:
    sizes = [size * KIB for size in (64, 100, 150, 200, 250)]
    times = dict(zip(sizes, ([64.0], [100.0], [150.0], [330.0], [400.0]), strict=True))
    found = steps(times)
    assert [step.word for step in found] == ["", "", "step", ""]
    assert found[0].ratio.median == pytest.approx(100 / 64)
    assert found[0].beyond.median == pytest.approx(1)
    assert found[2].beyond.median == pytest.approx((330 - 50) / 150)


def test_bytes_explain_nothing_where_only_short_messages_were_measured() -> None:
    (step,) = steps({100: [1], 200: [2]})
    assert (step.beyond, step.word) == (step.ratio, "step")


def test_a_size_that_failed_takes_part_in_no_ratio() -> None:
    series = Series.of("ping", "private-private", [100, 130, 169])
    answers = Answers()
    one, other, last = (answers.expect("shmnd", question) for question in series.questions)
    one.values, other.error, last.values = [1.0], "it went away", [9.0]
    assert steps_of(series, "shmnd", answers) == []
    assert summary([]) == "0 steps above 1.3 between 0 pairs of sizes"


def test_the_memory_of_the_receiver_goes_to_the_workers() -> None:
    how = How(memory=Memory.PRIVATE, into=Memory.SEGMENT)
    assert How.from_json(how.as_json()) == how
    assert how.describe() == "private memory, into segment memory"


def asked_for(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[list[Question], list[Any]]:
    """Return the questions and subjects of the command with these options."""
    asked: list[Any] = []

    def perform(args: object, questions: object, subjects: object, *_: object, **__: object) -> int:
        asked.extend([questions, subjects])
        return 0

    parser = argparse.ArgumentParser()
    sweep.configure(parser)
    monkeypatch.setattr(sweep, "perform", perform)
    assert sweep.run(parser.parse_args(words)) == 0
    return asked[0], asked[1]


def test_all_ways_of_both_kinds_are_measured_by_the_compiled_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions, subjects = asked_for(monkeypatch)
    assert [type(subject) for subject in subjects] == [ShmndNative]
    sizes = sizes_between(1, 16 << 20)
    hows = [
        How(memory=Memory.PRIVATE),
        How(memory=Memory.PRIVATE, into=Memory.SEGMENT),
        How(into=Memory.PRIVATE),
        How(),
    ]
    assert questions == [
        Question(kind, size, how=how)
        for kind in (Kind.PINGPONG, Kind.STREAM)
        for how in hows
        for size in sizes
    ]


def test_mixed_memory_is_measured_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ["--from", "600", "--to", "800"]
    questions, _ = asked_for(monkeypatch, *sizes, "--ways", "mixed-shared,mixed-mixed")
    assert {question.how for question in questions} == {
        How(memory=Memory.MIXED, into=Memory.SEGMENT),
        How(memory=Memory.MIXED),
    }


def test_the_options_choose_sizes_and_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ["--from", "4", "--to", "5"]
    series = ["--kinds", "ping", "--ways", "shared-shared"]
    questions, subjects = asked_for(monkeypatch, *sizes, *series, "--engine", "both", "--memcpy")
    assert questions == [Question(Kind.STREAM, size) for size in (4, 5)]
    assert [type(subject) for subject in subjects[:2]] == [Shmnd, ShmndNative]
    assert [subject.name for subject in subjects[2:]] == ["memcpy", "memcpy private"]


def test_one_series_is_measured_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts: list[list[Question]] = []

    class Run:
        def __init__(self, stage: object, *, progress: Any, **_: object) -> None:
            self.answers, self.progress = Answers(), progress

        def ask(self, questions: list[Question], subjects: object) -> None:
            parts.append(questions)
            self.progress("round 1")

    monkeypatch.setattr(frame, "Run", Run)
    parser = argparse.ArgumentParser()
    sweep.configure(parser)
    words = ["--from", "4", "--to", "5", "--ways", "shared-shared,private-private", "--progress"]
    assert sweep.run(parser.parse_args(words)) == 0
    assert [{(each.kind, each.how.memory) for each in part} for part in parts] == [
        {(Kind.PINGPONG, Memory.SEGMENT)},
        {(Kind.PINGPONG, Memory.PRIVATE)},
        {(Kind.STREAM, Memory.SEGMENT)},
        {(Kind.STREAM, Memory.PRIVATE)},
    ]
    said = capsys.readouterr()
    assert "part 2 of 4, round 1\n" in said.err
    assert "0 steps above 1.3" in said.out
