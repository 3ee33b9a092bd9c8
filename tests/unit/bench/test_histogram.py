# SPDX-License-Identifier: Apache-2.0
"""Exact percentiles without a library; the library agrees; every verb works without the extras."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from shmnd_bench.measure.histogram import PERCENTILES, Histogram

WITHOUT_EXTRAS = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("hdrh", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from shmnd_tools.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_percentiles_are_times_that_occurred() -> None:
    histogram = Histogram.of(Counter({1000: 900, 2000: 99, 7000: 1}))
    assert histogram.count == 1000
    assert (histogram.least, histogram.greatest) == (1.0, 7.0)
    assert [histogram.percentile(percent) for percent in (0, 50, 90)] == [1.0, 1.0, 1.0]
    assert [histogram.percentile(percent) for percent in (90.1, 99.9, 99.91)] == [2.0, 2.0, 7.0]
    assert histogram.percentile(100) == 7.0
    assert histogram.mean == pytest.approx(1.105)
    assert Histogram.of(Counter({1000: 1}), ways=2).percentile(50) == 0.5


def test_the_library_gives_the_same_percentiles() -> None:
    library = pytest.importorskip("hdrh.histogram")
    chance = random.Random(13)
    samples = Counter(int(chance.lognormvariate(7, 1)) + 1 for _ in range(5000))
    theirs = library.HdrHistogram(1, 3600 * 10**9, 3)
    for time, count in samples.items():
        theirs.record_value(time, count)
    ours = Histogram.of(samples)
    for percent in PERCENTILES:
        expected = theirs.get_value_at_percentile(percent) / 1e3
        assert ours.percentile(percent) == pytest.approx(expected, rel=0.002)


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
def test_latencies_need_no_extra() -> None:
    done = bench("mrlat", "-s", "4K", "--rounds", "1", "-n", "20")
    assert done.returncode == 0, done.stderr
    assert "t_typical[usec]" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["report", "--folder", "{}"], "matplotlib"),
        (["pingpong", "--plot", "{}/a.png"], "matplotlib"),
        (["mrlat", "--hdr", "{}/a.hlog"], "hdrhistogram"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_extra_is_named_before_anything_is_measured(
    arguments: list[str], needed: str, tmp_path: Path
) -> None:
    done = bench(*(argument.format(tmp_path) for argument in arguments))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install 'shmnd[bench]'" in done.stderr
    assert f"({needed}" in done.stderr or f"or {needed} alone" in done.stderr
    assert list(tmp_path.iterdir()) == []
