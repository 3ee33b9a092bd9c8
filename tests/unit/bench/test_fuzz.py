# SPDX-License-Identifier: Apache-2.0
"""Commands of the latency suite with options drawn at random, also while others want the CPUs.

Whatever the options, a command ends: with figures, or with one line that names the error in
them. A longer run, from another place:

    SHMND_BENCH_RUNS=500 SHMND_SEED=1000 python -m pytest tests/unit/bench/test_fuzz.py --timeout 0
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("hdrh", reason="pip install 'shmnd[bench]'")

pytestmark = pytest.mark.slow

FIRST: Final = int(os.environ.get("SHMND_SEED", "0"))
RUNS: Final = int(os.environ.get("SHMND_BENCH_RUNS", "2"))
LIMIT: Final = 150.0
"""Seconds; a worker that hangs is ended after 60, and that is a failure, too."""

Draw = Callable[[random.Random], list[str]]


def one_of(option: str, *values: str) -> Draw:
    """Sometimes the option, with one of the values; a switch has none."""

    def draw(rng: random.Random) -> list[str]:
        if rng.random() < 0.5:
            return []
        return [option, rng.choice(values)] if values else [option]

    return draw


DEPTHS: Final = ("1", "2", "3", "4", "5", "7", "8", "31", "64", "300")
SIZES: Final = ("1", "2", "8", "511", "512", "513", "4K", "65535", "64K", "65537", "1M", "3M")
SIZE: Final = one_of("-s", *SIZES, "1,64K", "2,513,65535")
SHORT: Final = (one_of("-s", *SIZES[:8], "1,4K"), one_of("-n", "1", "2", "5", "16", "100"))
COMMON: Final = (one_of("--rounds", "1", "2", "3"), one_of("--pin", "0,1", "1,0", "0,0"))
MESSAGES: Final = (SIZE, one_of("--memory", "segment", "private"), one_of("--validate"))
ENGINE: Final = one_of("--engine", "python", "native", "both")
QUEUES: Final = (
    ENGINE,
    one_of("--face", "nd1", "nd2", "both"),
    one_of("--wait", "poll", "event", "hybrid"),
    one_of("-t", *DEPTHS),
    one_of("--warmup", "0", "1", "17"),
)
RECEIVES: Final = one_of("-r", *DEPTHS)
PAIRS: Final = one_of("-q", "1", "2", "3", "5", "9")
INLINE: Final = one_of("-I", "0", "1", "8", "512", "1024")
RATE: Final = one_of("--rate", "1000", "100000", "1e7")

OPTIONS: Final[dict[str, tuple[Draw, ...]]] = {
    "core": (ENGINE, one_of("-s", "1", "40", "4096")),
    "pingpong": (*MESSAGES, *QUEUES, RECEIVES, INLINE, RATE),
    "rpingpong": (*MESSAGES, *QUEUES, INLINE, RATE),
    "read-lat": (*MESSAGES, *QUEUES, RATE),
    "ping": (*MESSAGES, *QUEUES, RECEIVES, PAIRS, INLINE, one_of("--flow", "credit", "receives")),
    "rping": (*MESSAGES, *QUEUES, PAIRS, INLINE, one_of("--verb", "read", "write", "both")),
    "batch": (ENGINE, one_of("-s", "0", "1", "8", "600", "4096")),
    "sweep": (
        ENGINE,
        one_of("--to", "2", "4"),
        one_of("--kinds", "ping", "pingpong"),
        one_of("--ways", "shared-shared", "private-shared"),
    ),
    "mrlat": (*MESSAGES,),
    "mrrate": (*MESSAGES, one_of("--threads", "1", "3,2")),
    "connect": (),
    "connections": (one_of("--processes", "0", "2"),),
    "notify": (*SHORT, one_of("--ways", "wait", "notify,asyncio"), one_of("--rate", "500", "1e5")),
    "scale": (one_of("--connections", "1,2", "7"), one_of("--processes", "2", "3")),
    "compare": (one_of("--idle", "0", "3"), one_of("--peers", "pipe", "memcpy,cacheline")),
}
FEW: Final = ("1", "2", "3", "5", "16", "17", "100", "257")


def drawn(seed: int) -> list[str]:
    """Return a command with some options."""
    rng = random.Random(seed)
    # Those with most options come most often.
    weights = [1 + len(draws) ** 2 for draws in OPTIONS.values()]
    (command,) = rng.choices([*OPTIONS], weights)
    draws = [*OPTIONS[command], *COMMON]
    words = [command, *(word for draw in draws for word in draw(rng))]
    if "--rounds" not in words:
        words += ["--rounds", "2"]
    return words if "-n" in words else [*words, "-n", rng.choice(FEW)]


@pytest.fixture(params=[False, True], ids=["alone", "among others"])
def busy(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Have the CPUs wanted by others, too."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(2 if request.param else 0)]
    try:
        yield request.param
    finally:
        for each in spinning:
            each.kill()
            each.wait()


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_a_command_ends_whatever_its_options(seed: int, busy: bool, tmp_path: Path) -> None:
    words, file = [*drawn(2 * seed + busy)], tmp_path / "report.json"
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main;"
        f"sys.exit(main({['bench', *words, '--json', str(file)]!r}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT
    )
    said = f"shmnd bench {' '.join(words)}\n{told.stdout}{told.stderr}"
    if told.returncode == 2:
        assert told.stderr.startswith("shmnd"), said
        assert told.stderr.count("\n") == 1, said
        return
    assert (told.returncode, told.stderr) == (0, ""), said
    answers = json.loads(file.read_text())["answers"]
    assert answers, said
    assert all(answer["error"] is None for answer in answers), said
