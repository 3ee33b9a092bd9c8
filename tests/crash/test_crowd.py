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
from crash.lines import Report
from crash.nursery import MOMENTS, Crowd
from processes.kit import broker_pid

LIFE = 0.15
"""Seconds that the longest lives last beyond their moment."""

pytestmark = pytest.mark.crash


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker of its own."""
    name = f"crowd-{os.getpid()}"
    monkeypatch.setenv("SHMND_NAMESPACE", name)
    return name


class Tally:
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


def holdings(crowd: Crowd, broker: int) -> list[Counter[str]]:
    """What survivors and broker hold."""
    return [*(kinds for kinds, _ in crowd.looks()), held(str(broker))]


def deaths(count: int, seed: int) -> Tally:
    """So many, one after another; all is looked at."""
    chance, tally = Random(seed), Tally()
    crowd = Crowd(seed)
    try:
        broker = broker_pid()
        before: list[Counter[str]] = []
        for number in range(count):
            honest = [got for _, got in crowd.looks()]
            version, moment = chance.choice((1, 2)), chance.choice((*MOMENTS, CONNECTED))
            tally.add(*crowd.kill_one(version, seed + number, moment, chance.random() * LIFE))
            if number < 6:
                before = holdings(crowd, broker)  # until everything has been made once
            else:
                deadline = time.monotonic() + 5
                while (now := holdings(crowd, broker)) != before:
                    more = [each - old for each, old in zip(now, before, strict=True)]
                    assert time.monotonic() < deadline, (number, more)
            after = [got for _, got in crowd.looks()]
            assert all(b > a for a, b in zip(honest, after, strict=True)), (honest, after)
    finally:
        crowd.close()
    return tally


@pytest.mark.slow
def test_deaths_under_everything(namespace: str) -> None:
    tally = deaths(int(os.environ.get("SHMND_DEATHS", "30")), 1)
    assert tally.lines > 3
    assert tally.requests > tally.lines


@pytest.mark.soak
def test_many_deaths_under_everything(namespace: str) -> None:
    tally = deaths(int(os.environ.get("SHMND_DEATHS", "1000")), 1000)
    cuts = statistics.quantiles(tally.took, n=1000)
    late = sum(took > 100 for took in tally.took)
    print(
        f"\n{tally.deaths} deaths, {tally.lines} lines cut with {tally.requests} requests"
        f" outstanding ({', '.join(sorted(tally.statuses))}); over after (ms): median"
        f" {cuts[499]:.1f}, 99 % {cuts[989]:.1f}, 99.9 % {cuts[998]:.1f},"
        f" longest {max(tally.took):.1f}; {late} later than 100"
    )
