# SPDX-License-Identifier: Apache-2.0
"""What the commands of latency and of bandwidth have in common: options, checks, the table."""

import argparse
import dataclasses
from collections.abc import Callable, Sequence

from ...command import apart, options
from ...command.frame import Report, perform
from ...measure.question import Kind, Question
from ...report.figures import LATENCY_HEADINGS, RATE_HEADINGS, latency_cells, rate_cells, table
from ...subjects.rounds import Answer, Answers, Record


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """One command."""

    command: str
    kinds: tuple[Kind, ...]
    size: int
    """Bytes of a message unless an option sets another size."""

    @property
    def two_sided(self) -> bool:
        """Whether Receives are part of the traffic."""
        return self.kinds[0] in (Kind.PINGPONG, Kind.STREAM)

    @property
    def is_rate(self) -> bool:
        """Whether its figures are rates."""
        return Question(self.kinds[0], self.size).is_stream

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that every one of these commands has."""
        options.add_sizes(parser, self.size)
        options.add_engine(parser)
        options.add_interface(parser)
        inline = self.kinds != (Kind.READ,)
        options.add_queues(parser, two_sided=self.two_sided, inline=inline, pairs=self.is_rate)
        if not self.is_rate:
            options.add_rate(parser)
        options.add_common(parser)
        apart.add_options(parser, self.command)

    def run(self, args: argparse.Namespace, kinds: Sequence[Kind] | None = None) -> int:
        """Measure and print, or be the server of a client that does."""
        how = options.how_of(args)
        questions = [
            Question(kind, size, how=how) for kind in kinds or self.kinds for size in args.sizes
        ]
        subjects = options.subjects_of(args)
        conclude = self._conclude(len(subjects) > 1, len(kinds or self.kinds) > 1)
        record = Record.NEVER if self.is_rate else Record.ALWAYS
        return perform(args, questions, subjects, conclude, record=record)

    def _conclude(self, engines: bool, kinds: bool) -> Callable[[Answers], Report]:
        lead: list[tuple[str, Callable[[Answer], str]]] = []
        if kinds:
            lead.append(("what", lambda answer: answer.question.kind.value))
        if engines:
            lead.append(("engine", lambda answer: answer.subject))

        def conclude(answers: Answers) -> Report:
            found = list(answers)
            text = (
                table(found, RATE_HEADINGS, rate_cells, lead)
                if self.is_rate
                else table(found, LATENCY_HEADINGS, latency_cells, lead)
            )
            if found and found[0].question.how.rate:
                there = "" if self.kinds == (Kind.READ,) else "there and back, "
                text += f"\ntimes are {there}from the intended start of each message"
            return Report(text, {"command": self.command}, any(a.error for a in found))

        return conclude
