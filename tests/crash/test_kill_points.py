# SPDX-License-Identifier: Apache-2.0
"""Death at every named step of the data plane, and at random instants; a stop at every step.

Two processes of the headers alone, over shared memory (`kill_points.c`), built with the named
steps. The long run, which prints how soon survivors were through:

    SHMND_KILLS=1000 python -m pytest tests/crash -m soak -s
"""

import os
import re
import statistics
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RING = ROOT / "shmnd" / "ring"
POINTS = sorted(
    {
        name
        for path in RING.rglob("*.h")
        for names in re.findall(r"SHMND_KILL_POINT\(([^)]+)\)", path.read_text())
        for name in re.findall(r'"([^"]+)"', names)
    }
)
BOUND = 5_000_000
"""Microseconds: far more than it takes, so that a busy machine is not a failure."""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]  # the first one waits for the compiler


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("crash") / "kill_points"
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-DSHMND_KILL_POINTS", "-g", "-O1"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", f"-I{RING}"]
    command += [f"-I{ROOT / 'tests' / 'native'}", str(HERE / "kill_points.c"), "-o", str(binary)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=350)
    assert built.returncode == 0, built.stderr
    return binary


ATTEMPTS = 5
"""Runs in which the child has to come to a step once: some depend on which side is quicker."""


def play(program: Path, name: str, number: int, *how: str) -> subprocess.CompletedProcess[str]:
    """Have the child come to a step; 3 is the exit code when it never did in several runs."""
    command = [str(program), name, str(number), *how]
    for _ in range(ATTEMPTS):
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
        assert ran.returncode in (0, 3), ran.stderr
        if ran.returncode == 0:
            break
    return ran


def die(program: Path, name: str, number: int) -> int | None:
    """Microseconds until the survivor was through; None when the child came to its end alive."""
    ran = play(program, name, number)
    if ran.returncode == 3:
        return None
    return int(ran.stdout.split()[0])


def test_the_steps_have_names() -> None:
    assert len(POINTS) > 40
    assert "killpoint" not in {name for name in POINTS if not re.fullmatch(r"[a-z-]+", name)}


@pytest.mark.parametrize("name", POINTS)
def test_death_at(program: Path, name: str) -> None:
    took = die(program, name, 1)
    assert took is not None, "no process came to this step"
    assert took < BOUND


@pytest.mark.parametrize("name", POINTS)
def test_a_stop_at(program: Path, name: str) -> None:
    assert play(program, name, 1, "stopped").returncode == 0, "no process came to this step"


@pytest.mark.slow
def test_death_at_random_instants(program: Path) -> None:
    for seed in range(40):
        took = die(program, "at-random", seed)
        assert took is not None, "it lives until it is killed"
        assert took < BOUND


@pytest.mark.soak
def test_death_at_many_random_instants(program: Path) -> None:
    took: list[int] = []
    for seed in range(1000, 1000 + int(os.environ.get("SHMND_KILLS", "1000"))):
        one = die(program, "at-random", seed)
        assert one is not None
        took.append(one)
    cuts = statistics.quantiles(took, n=1000)
    print(
        f"\n{len(took)} deaths; survivors through after (us): median {cuts[499]:.0f},"
        f" 99 % {cuts[989]:.0f}, 99.9 % {cuts[998]:.0f}, longest {max(took)}"
    )
    assert max(took) < BOUND
