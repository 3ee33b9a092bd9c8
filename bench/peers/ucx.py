# SPDX-License-Identifier: Apache-2.0
"""UCX over shared memory, by its own C program ucx_perftest."""

import re
import subprocess
from pathlib import Path
from typing import ClassVar, Final

from ..measure.question import Kind, Question
from ..workers.child import HarnessError
from .program import LISTEN_LIMIT, Program

_TESTS: Final = {
    Kind.PINGPONG: "tag_lat",
    Kind.WRITE: "ucp_put_lat",
    Kind.READ: "ucp_get",
    Kind.STREAM: "tag_bw",
    Kind.WRITE_STREAM: "ucp_put_bw",
}
_FIELDS: Final = 8


class UcxPerftest(Program):
    """Two C processes on the protocol layer, with transports of one host only."""

    name: ClassVar[str] = "ucx_perftest"
    install: ClassVar[str] = "apt-get install ucx-utils"
    program: ClassVar[str] = "ucx_perftest"
    variable: ClassVar[str] = "SHMND_BENCH_UCX_PERFTEST"
    env: ClassVar[dict[str, str]] = {"UCX_TLS": "shm,self"}

    def answers(self, question: Question) -> bool:
        """Return True for all but streams of Reads, which are one of its latency tests."""
        return question.kind in _TESTS and self.plain(question)

    def command(self, question: Question, count: int, port: int, host: str | None) -> list[str]:
        """Return the command of one side; perftest demands the same options of both."""
        test = ["-t", _TESTS[question.kind], "-s", str(question.size), "-n", str(count)]
        warmup = ["-w", str(count // 20 + 1)]
        return [*([host] if host else []), *test, *warmup, "-f", "-v", "-p", str(port)]

    def parse(self, output: str, question: Question) -> float:
        """Return the figure in the table."""
        return parse(output)

    def versions(self) -> dict[str, str]:
        """Return the versions that ucx_info reports, which comes with the program."""
        info = Path(self.path or "").with_name("ucx_info")
        try:
            printed = subprocess.run(
                [str(info), "-v"], capture_output=True, text=True, timeout=LISTEN_LIMIT
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return {"UCX": "unknown"}
        found = re.search(r"[Vv]ersion:?\s+(\S+)", printed)
        return {"UCX": found[1] if found else "unknown"}


def parse(output: str) -> float:
    """Return the seconds per message from the CSV of ucx_perftest.

    Its last field is messages per second over the whole run; for a ping-pong, one way.
    """
    for line in reversed(output.splitlines()):
        fields = line.split(",")
        if len(fields) == _FIELDS and (rate := _number(fields[-1])) > 0:
            return 1 / rate
    raise HarnessError(f"cannot read the output of ucx_perftest: {output.strip()!r}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
