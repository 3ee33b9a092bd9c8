# SPDX-License-Identifier: Apache-2.0
"""Verdicts: which way round a ratio is, when it is sure, and the remark when it is missing."""

import pytest

from shmnd_bench.measure.question import Kind, Question
from shmnd_bench.report.comparison import rows
from shmnd_bench.report.table import Notes
from shmnd_bench.report.targets import (
    SEND,
    SMALL_BYTES,
    Target,
    about_floors,
    connection_targets,
    core_targets,
    judge,
    judge_footprint,
    summary,
)
from shmnd_bench.subjects.rounds import Answers

STREAM = Question(Kind.STREAM, 1 << 20)


def answers_of(**values: list[float]) -> Answers:
    """Make answers of subjects to the 40-byte ping-pong."""
    answers = Answers()
    for subject, rounds in values.items():
        answers.expect(subject, SEND).values = rounds
    return answers


def test_a_latency_is_met_below_its_share_of_the_peer() -> None:
    verdict = judge(
        Target("ours", SEND, 0.5, "peer"), answers_of(ours=[1.0, 1.2, 1.4], peer=[4.0] * 3)
    )
    assert verdict.met
    assert verdict.sure
    assert verdict.word == "met"
    assert verdict.value is not None
    assert verdict.value.median == pytest.approx(0.3)


def test_the_floor_of_a_target_has_its_ratio_to_the_same_figure() -> None:
    """A reader sees whether the bound can be reached at all."""
    target = Target("ours", SEND, 0.5, "peer", floor="bare")
    verdict = judge(target, answers_of(ours=[3.0] * 3, peer=[4.0] * 3, bare=[2.4] * 3))
    assert (verdict.floor, verdict.word) == ("bare: 0.600", "missed")
    assert verdict.cells(Notes())[-3:] == ["bare: 0.600", "≤ 0.5", "missed"]
    without = judge(target, answers_of(ours=[3.0] * 3, peer=[4.0] * 3))
    assert without.floor == ""
    assert (len(about_floors([without, verdict])), about_floors([without])) == (1, [])


def test_the_floor_of_a_rate_is_a_multiple_too() -> None:
    answers = Answers()
    for subject, seconds in (("ours", 1.0), ("peer", 3.0), ("bare", 0.75)):
        answers.expect(subject, STREAM).values = [seconds] * 3
    assert judge(Target("ours", STREAM, 5.0, "peer", floor="bare"), answers).floor == "bare: 4.00"


def test_a_bound_within_the_range_makes_a_verdict_unsure() -> None:
    verdict = judge(
        Target("ours", SEND, 0.5, "peer"), answers_of(ours=[1.6, 1.7, 3.0], peer=[4.0] * 3)
    )
    assert verdict.word == "met (unsure)"
    verdict = judge(
        Target("ours", SEND, 0.5, "peer"), answers_of(ours=[1.6, 3.0, 3.0], peer=[4.0] * 3)
    )
    assert verdict.word == "missed (unsure)"


@pytest.mark.parametrize(
    ("ours", "peer"),
    [
        ([0.01, 1.0, 1.0], [400.0] * 3),  # a disturbance of ours
        ([1.0] * 3, [1.9, 400.0, 400.0]),  # one of the peer
        ([1.0, 1.6, 1.6], [400.0, 400.0, 210.0]),  # each within the limit, their ratio is not
    ],
)
def test_rounds_that_differ_too_much_get_no_verdict(ours: list[float], peer: list[float]) -> None:
    """However far the ratio is from its bound."""
    verdict = judge(Target("ours", SEND, 0.5, "peer"), answers_of(ours=ours, peer=peer))
    assert (verdict.met, verdict.word) == (None, "too noisy")
    assert verdict.cells(Notes())[-1] == "too noisy"
    assert summary([verdict]) == "0 met, 0 missed, 1 too noisy, 0 unknown"


def test_a_disturbance_of_both_leaves_the_ratio_and_its_verdict() -> None:
    """The two figures of one round are measured together."""
    verdict = judge(
        Target("ours", SEND, 0.5, "peer"), answers_of(ours=[1.0, 3.0, 9.0], peer=[4.0, 12.0, 35.0])
    )
    assert verdict.word == "met"


def test_of_many_rounds_a_few_disturbed_ones_are_left_out() -> None:
    ours = [1.0] * 12 + [0.01, 7.0, 9.0]
    assert (
        judge(Target("ours", SEND, 0.5, "peer"), answers_of(ours=ours, peer=[4.0] * 15)).word
        == "met"
    )
    few = ours[8:]
    assert (
        judge(Target("ours", SEND, 0.5, "peer"), answers_of(ours=few, peer=[4.0] * 7)).word
        == "too noisy"
    )


def test_rounds_within_the_limit_get_a_verdict() -> None:
    verdict = judge(
        Target("ours", SEND, 0.5, "peer"), answers_of(ours=[1.0, 2.0], peer=[400.0] * 2)
    )
    assert verdict.word == "met"


def test_an_absolute_rate_of_noisy_rounds_gets_no_verdict() -> None:
    rate = Question(Kind.STREAM, 8)
    answers = Answers()
    answers.expect("ours", rate).values = [4e-7, 4e-7, 9e-7]
    assert judge(Target("ours", rate, 1.0), answers).word == "too noisy"


def test_a_comparison_marks_noisy_rounds() -> None:
    answers = answers_of(shmnd=[1.0, 1.1], steady=[2.0, 2.1], noisy=[2.0, 9.0])
    ratios = {row[1]: row[4] for row in rows(answers, [SEND], Notes())}
    assert ratios["shmnd"] == ""
    assert "noisy" not in ratios["steady"]
    assert ratios["noisy"].endswith(", too noisy")


def test_a_bandwidth_is_met_above_its_multiple_of_the_peer() -> None:
    answers = Answers()
    answers.expect("ours", STREAM).values = [1.0]
    answers.expect("peer", STREAM).values = [1.5]
    verdict = judge(Target("ours", STREAM, 1.3, "peer"), answers)
    assert verdict.met
    assert verdict.value is not None
    assert verdict.value.median == pytest.approx(1.5)
    assert verdict.bound == "≥ 1.3"
    assert judge(Target("ours", STREAM, 1.6, "peer"), answers).met is False


def test_an_absolute_rate_needs_no_peer() -> None:
    rate = Question(Kind.STREAM, 8)
    answers = Answers()
    answers.expect("ours", rate).values = [4e-7, 4e-7]
    verdict = judge(Target("ours", rate, 2.0), answers)
    assert verdict.met
    assert verdict.bound == "≥ 2 M/s"
    assert verdict.ours == "2.50 M/s"


def test_a_missing_peer_is_a_remark_with_its_installation() -> None:
    answers = answers_of(ours=[1.0])
    answers.expect("peer", SEND).error = "no peer here: pip install peer"
    verdict = judge(Target("ours", SEND, 0.5, "peer"), answers)
    assert verdict.met is None
    assert verdict.word == "unknown"
    notes = Notes()
    assert "- [1]" in verdict.cells(notes)
    assert notes.lines() == ["[1] peer: no peer here: pip install peer"]


def test_a_failed_figure_of_shmnd_is_reported_as_a_remark() -> None:
    answers = answers_of(peer=[1.0])
    answers.expect("ours", SEND).error = "the server ended by SIGSEGV"
    verdict = judge(Target("ours", SEND, 0.5, "peer"), answers)
    assert verdict.met is None
    assert verdict.remark == "ours: the server ended by SIGSEGV"
    assert judge(Target("absent", SEND, 0.5, "peer"), answers).remark == "not part of this run"


def test_a_target_may_be_another_figure_of_the_same_subject() -> None:
    write = Question(Kind.WRITE, 40)
    answers = answers_of(ours=[2.0])
    answers.expect("ours", write).values = [1.0]
    assert judge(Target("ours", write, 1.0, "ours", SEND), answers).met


def test_memory_of_an_idle_connection() -> None:
    assert judge_footprint(65536.0).met
    assert judge_footprint(65537.0).met is False
    assert judge_footprint(None).met is None


def test_verdicts_are_counted() -> None:
    verdicts = [judge_footprint(size) for size in (1.0, 2.0, 1e9, None)]
    assert summary(verdicts) == "2 met, 1 missed, 0 too noisy, 1 unknown"


def test_every_target_has_a_label_of_its_own() -> None:
    targets = core_targets()
    seen = [(target.label, target.against) for target in targets]
    assert len(set(seen)) == len(seen)
    assert len(core_targets(idle=0)) == len(targets) - 1


def test_the_bound_of_all_pairs_holds_for_the_usual_number_of_processes() -> None:
    usual, other = connection_targets(), connection_targets(processes=8)
    assert [target.bound_label for target in usual] == ["≤ 300 µs", "≤ 500,000 µs"]
    assert other == usual[:1]
    answers = Answers()
    for target, seconds in zip(usual, (0.29e-3, 0.6), strict=True):
        answers.expect(target.subject, target.question).values = [seconds]
    assert [judge(target, answers).met for target in usual] == [True, False]


def test_the_memory_of_connections_with_small_queues() -> None:
    assert judge_footprint(16384.0, SMALL_BYTES, ", queues of 4").met
    verdict = judge_footprint(16385.0, SMALL_BYTES, ", queues of 4")
    assert (verdict.met, verdict.bound) == (False, "≤ 16 KiB")
    assert verdict.label == "shared memory per idle connection, queues of 4"
