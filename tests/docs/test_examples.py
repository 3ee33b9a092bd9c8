# SPDX-License-Identifier: Apache-2.0
"""Each example ends by itself, in time, and prints what it promises."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

EXAMPLES: Final = Path(__file__).parents[2] / "docs" / "examples"

OUTPUTS: Final = {
    "all_reduce": [f"process {rank}: every sum is between 10 and 10" for rank in range(4)],
    "asyncio_server": [
        *(f"CLIENT {number}, ROUND 4" for number in range(8)),
        "40 messages of 8 clients answered",
    ],
    "echo": ["one -> one", "two -> two", "three -> three"],
    "key_value": [
        "client 0: written",
        "client 1: written",
        "client 2: written",
        "client 0: value 7 of client 1",
        "client 1: value 7 of client 2",
        "client 2: value 7 of client 0",
        "the server reaped 0 completions",
    ],
    "pipeline": ["20 frames of 512 KiB in order, sum 12451840"],
    "request_response": [
        f"response to request {number}: {question}! = {math.factorial(question) % 2**64}"
        for number, question in ((3, 33), (2, 20), (1, 10), (0, 3))
    ],
    "version_one": [
        "a window of 1024 bytes is lent",
        "its owner reads: written from the other side",
    ],
}


def run(program: Path) -> tuple[int, str, str]:
    """Run a program with all that it starts, for at most a minute."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output, errors


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(OUTPUTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_an_example_prints_its_expected_output(name: str) -> None:
    status, output, errors = run(EXAMPLES / f"{name}.py")
    assert (status, output.splitlines(), errors) == (0, OUTPUTS[name], "")
