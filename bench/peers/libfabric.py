# SPDX-License-Identifier: Apache-2.0
"""libfabric's shared-memory provider, by its own C program fi_pingpong."""

import itertools
import subprocess
from pathlib import Path
from typing import ClassVar

from ..measure.question import Kind, Question
from ..workers.child import HarnessError
from .program import LISTEN_LIMIT, Program


class FiPingpong(Program):
    """Two C processes that exchange messages through the shm provider."""

    name: ClassVar[str] = "fi_pingpong"
    install: ClassVar[str] = "apt-get install libfabric-bin"
    program: ClassVar[str] = "fi_pingpong"
    variable: ClassVar[str] = "SHMND_BENCH_FI_PINGPONG"

    def answers(self, question: Question) -> bool:
        """Return True only for ping-pong: it measures nothing else."""
        return question.kind is Kind.PINGPONG and self.plain(question)

    def command(self, question: Question, count: int, port: int, host: str | None) -> list[str]:
        """Return the command of one side; both have the same options, except for the port."""
        common = ["-p", "shm", "-e", "rdm", "-S", str(question.size), "-I", str(count)]
        return [*common, *(("-B", str(port)) if host is None else ("-P", str(port), host))]

    def parse(self, output: str, question: Question) -> float:
        """Return the figure in the table."""
        return parse(output, question.size)

    def versions(self) -> dict[str, str]:
        """Return the versions that fi_info reports, which comes with the program."""
        info = Path(self.path or "").with_name("fi_info")
        try:
            printed = subprocess.run(
                [str(info), "--version"], capture_output=True, text=True, timeout=LISTEN_LIMIT
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return {"libfabric": "unknown"}
        pairs = (line.partition(":")[::2] for line in printed.splitlines())
        return {key: value.strip() for key, value in pairs if key == "libfabric"}


def parse(output: str, size: int) -> float:
    """Return the seconds one way from the table of fi_pingpong.

    Its `usec/xfer` has two decimals, which is too coarse for tenths of a microsecond; `MB/sec`
    says the same with more digits.
    """
    lines = [line.split() for line in output.splitlines()]
    for names, values in itertools.pairwise(lines):
        if "MB/sec" in names and len(values) == len(names):
            rate = float(values[names.index("MB/sec")])
            if rate > 0:
                return size / (rate * 1e6)
    raise HarnessError(f"cannot read the output of fi_pingpong: {output.strip()!r}")
