# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios and the way numbers are written."""

import math

import pytest

from shmnd_bench.measure.question import Kind, Question, format_size
from shmnd_bench.measure.spread import CONFIDENCE, Spread
from shmnd_bench.report.table import Notes, in_unit, number, render, unit


def test_a_spread_is_the_median_and_the_range() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([4.0, 1.0, 2.0, 3.0]).median == 2.5


def test_a_spread_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no median"):
        Spread.of([])


def test_ratios_are_taken_round_by_round() -> None:
    # The machine became three times slower in the last round, for both.
    assert Spread.of_ratios([1.0, 1.0, 3.0], [2.0, 2.0, 6.0]) == Spread(0.5, 0.5, 0.5)
    # One disturbed round of nine is left out at each end.
    assert Spread.of_ratios([9.0, 0.1, *[1.0] * 7], [2.0] * 9) == Spread(0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("rounds", "out"), [(1, 0), (2, 0), (5, 0), (7, 0), (8, 0), (9, 1), (12, 2), (15, 3), (30, 9)]
)
def test_the_interval_of_a_median_leaves_out_as_many_as_the_confidence_permits(
    rounds: int, out: int
) -> None:
    values = [float(value) for value in range(rounds)]
    spread = Spread.of_median(values[::-1])
    assert (spread.low, spread.high) == (out, rounds - 1 - out)
    assert spread.median == (rounds - 1) / 2


@pytest.mark.parametrize("rounds", range(6, 25))
def test_the_interval_encloses_the_true_median_with_its_confidence(rounds: int) -> None:
    """Counted over all ways in which the rounds can lie above and below it."""
    spread = Spread.of_median([float(value) for value in range(rounds)])
    out = int(spread.low)
    outside = 2 * sum(math.comb(rounds, above) for above in range(out + 1))
    more = outside + 2 * math.comb(rounds, out + 1)
    assert outside / 2**rounds <= 1 - CONFIDENCE < more / 2**rounds


def test_the_middle_half_leaves_out_as_many_rounds_at_both_ends() -> None:
    assert Spread.of_middle_half([9.0, 1.0, 3.0, 2.0, 0.1]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of_middle_half([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_ratios_need_as_many_rounds_on_both_sides() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Spread.of_ratios([1.0, 2.0], [1.0])


def test_a_unit_that_turns_the_order_keeps_low_below_high() -> None:
    turned = Spread(2.0, 1.0, 4.0).map(lambda seconds: 1 / seconds)
    assert turned == Spread(0.5, 0.25, 1.0)


def test_a_spread_is_written_with_its_range() -> None:
    assert Spread(0.25, 0.2, 0.5).format(number) == "0.250 (0.200..0.500)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.001234, "0.00123"),
        (0.2512, "0.251"),
        (1, "1.00"),
        (9.996, "10.00"),
        (25.14, "25.1"),
        (251.4, "251"),
        (2514.0, "2,514"),
        (-0.5, "-0.500"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(1, "1 B"), (40, "40 B"), (1024, "1 KiB"), (1500, "1500 B"), (4 << 20, "4 MiB")],
)
def test_sizes_are_written_in_the_usual_units(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


def test_tables_line_up() -> None:
    table = render(["what", "µs"], [["Send", "0.25"], ["a longer name", "12"]], right=" r")
    assert table.splitlines() == [
        "what             µs",
        "-------------  ----",
        "Send           0.25",
        "a longer name    12",
    ]


def test_a_long_text_is_printed_once_below_the_table() -> None:
    notes = Notes()
    assert [notes.refer(text) for text in ("a", "b", "a")] == ["- [1]", "- [2]", "- [1]"]
    assert notes.lines() == ["[1] a", "[2] b"]


def test_a_table_without_rows_is_its_heading() -> None:
    assert render(["a", "b"], []).splitlines() == ["a  b", "-  -"]


def test_answers_have_the_unit_of_the_question() -> None:
    latency = Question(Kind.PINGPONG, 40)
    assert (unit(latency), in_unit(latency, 2.5e-7)) == ("µs", pytest.approx(0.25))
    rate = Question(Kind.STREAM, 8)
    assert (unit(rate), in_unit(rate, 1e-7)) == ("M/s", pytest.approx(10.0))
    bandwidth = Question(Kind.STREAM, 1 << 20)
    assert (unit(bandwidth), in_unit(bandwidth, 1e-4)) == ("GB/s", pytest.approx(10.48576))


def test_questions_survive_json() -> None:
    question = Question(Kind.PINGPONG, 40, idle=1000)
    assert Question.from_json(question.as_json()) == question
    assert question.label == "40 B ping-pong, one way, 1,000 idle connections"
    assert question.ways == 2
