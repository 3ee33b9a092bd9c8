# SPDX-License-Identifier: Apache-2.0
"""Deaths of whole processes at random instants, under everything that they can do at once.

The long run, which prints how soon the survivors were through:

    SHMND_DEATHS=1000 python -m pytest tests/crash/test_crowd.py -m soak -s
"""

import os
import statistics
import time
from collections import Counter
from random import Random

import pytest

from crash.crowd import CONNECTED, held
from crash.links import Report
from crash.spawning import MOMENTS, Crowd
from processes.kit import broker_pid

LIFE = 0.15
"""Seconds that the longest lives last beyond their moment."""
BOUND = 20.0
"""Seconds after which what must happen counts as missing, also on a busy machine."""

pytestmark = pytest.mark.crash


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker of its own."""
    name = f"crowd-{os.getpid()}"
    monkeypatch.setenv("SHMND_NAMESPACE", name)
    return name


class Counters:
    """What the deaths came to."""

    def __init__(self) -> None:
        self.deaths = self.lines = self.requests = 0
        self.took: list[float] = []
        self.statuses: set[str] = set()

    def add(self, instant: float, reports: list[Report]) -> None:
        self.deaths += 1
        for report in reports:
            self.statuses |= report.statuses
            if report.over > instant and report.connected:
                self.lines += 1
                self.requests += report.outstanding
                self.took.append(1000 * (report.over - instant))


def look(crowd: Crowd, broker: int) -> tuple[list[Counter[str]], list[int]]:
    """What survivors and broker hold, and how many messages the survivors had of each other."""
    looks = crowd.looks()
    return [*(kinds for kinds, _ in looks), held(str(broker))], [got for _, got in looks]


def deaths(count: int, seed: int) -> Counters:
    """So many, one after another; everything is checked."""
    chance, counters = Random(seed), Counters()
    crowd = Crowd(seed)
    try:
        broker = broker_pid()
        before, honest = look(crowd, broker)
        for number in range(count):
            version, moment = chance.choice((1, 2)), chance.choice((*MOMENTS, CONNECTED))
            counters.add(*crowd.kill_one(version, seed + number, moment, chance.random() * LIFE))
            deadline = time.monotonic() + BOUND
            while True:
                now, got = look(crowd, broker)
                if number < 6:
                    before = now  # until everything has been made once
                if now == before and all(b > a for a, b in zip(honest, got, strict=True)):
                    break
                more = [each - old for each, old in zip(now, before, strict=True)]
                assert time.monotonic() < deadline, (number, more, honest, got)
            honest = got
    finally:
        crowd.close()
    return counters


@pytest.mark.slow
def test_deaths_under_everything(namespace: str) -> None:
    counters = deaths(int(os.environ.get("SHMND_DEATHS", "30")), 1)
    assert counters.lines > 3
    assert counters.requests > counters.lines


@pytest.mark.soak
def test_many_deaths_under_everything(namespace: str) -> None:
    counters = deaths(int(os.environ.get("SHMND_DEATHS", "1000")), 1000)
    cuts = statistics.quantiles(counters.took, n=1000)
    late = sum(took > 100 for took in counters.took)
    print(
        f"\n{counters.deaths} deaths, {counters.lines} lines cut with {counters.requests} requests"
        f" outstanding ({', '.join(sorted(counters.statuses))}); over after (ms): median"
        f" {cuts[499]:.1f}, 99 % {cuts[989]:.1f}, 99.9 % {cuts[998]:.1f},"
        f" longest {max(counters.took):.1f}; {late} later than 100"
    )
