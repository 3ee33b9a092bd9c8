# SPDX-License-Identifier: Apache-2.0
"""The machine on which a benchmark ran, and its noise."""

import dataclasses
import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SHM = Path("/dev/shm")
_NOISE_SECONDS = 0.2
_GAP_NS = 2_000
"""A pause longer than this between two readings of the clock was not caused by the loop."""
_LOST_MAX = 0.05
_LONGEST_MAX_US = 2_000.0


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """The pauses of a loop that only reads the clock on one CPU."""

    cpu: int
    lost: float
    """Share of the time in which the loop did not run."""
    longest_us: float
    timer_ns: float
    """The time of one reading of the clock from Python, which every timestamp adds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Environment:
    """The machine, its state before the run, and the versions."""

    machine: str
    cpu: str
    cpus: int
    virtual: bool
    pinned: tuple[int, ...]
    kernel: str
    python: str
    load: float
    shm_bytes: int
    shm_free_bytes: int
    noise: tuple[Noise, ...]

    @classmethod
    def collect(cls, pinned: Sequence[int]) -> "Environment":
        """Return the description of this machine; the noise takes 0.2 s for each pinned CPU."""
        info = _read("/proc/cpuinfo")
        model = re.search(r"model name\s*:\s*(.*)", info)
        shm = os.statvfs(_SHM)
        return cls(
            machine=platform.machine(),
            cpu=model.group(1) if model else platform.processor() or "unknown",
            cpus=len(os.sched_getaffinity(0)),
            virtual=re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE) is not None,
            pinned=tuple(pinned),
            kernel=platform.release(),
            python=f"{platform.python_implementation()} {platform.python_version()}",
            load=os.getloadavg()[0],
            shm_bytes=shm.f_blocks * shm.f_frsize,
            shm_free_bytes=shm.f_bavail * shm.f_frsize,
            noise=tuple(measure_noise(cpu) for cpu in pinned),
        )

    def warnings(self) -> list[str]:
        """Return the reasons for not trusting the figures of this run."""
        warnings = []
        if len(set(self.pinned)) < 2:
            warnings.append(
                "both ends share one CPU: figures show the scheduler, not the transport"
            )
        for noise in self.noise:
            if noise.lost > _LOST_MAX or noise.longest_us > _LONGEST_MAX_US:
                warnings.append(
                    f"CPU {noise.cpu} did not run the benchmark for {noise.lost:.1%} of the time, "
                    f"at most {noise.longest_us:,.0f} µs at once: small differences are not "
                    f"significant"
                )
        return warnings

    def lines(self) -> list[str]:
        """Return a description in a few lines."""
        noise = ", ".join(f"CPU {n.cpu} {n.lost:.2%}/{n.longest_us:,.0f} µs" for n in self.noise)
        timer = ", ".join(f"{n.timer_ns:.0f} ns" for n in self.noise)
        return [
            f"{self.cpu} ({self.machine}{', virtual' if self.virtual else ''}), "
            f"{self.cpus} CPUs, pinned to {', '.join(map(str, self.pinned)) or 'none'}",
            f"Linux {self.kernel}, {self.python}, load {self.load:.2f}, "
            f"/dev/shm {self.shm_free_bytes >> 20:,} of {self.shm_bytes >> 20:,} MiB free",
            f"noise while idle (time lost/longest pause): {noise or 'not measured'}; "
            f"one reading of the clock: {timer or 'not measured'}",
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the form for reports."""
        return dataclasses.asdict(self)


def measure_noise(cpu: int, seconds: float = _NOISE_SECONDS) -> Noise:
    """Return the measured pauses of one CPU, which must be idle."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        return _read_clock(cpu, seconds)
    finally:
        os.sched_setaffinity(0, before)


def _read_clock(cpu: int, seconds: float) -> Noise:
    clock = time.perf_counter_ns
    lost = longest = readings = 0
    last = start = clock()
    end = start + int(seconds * 1e9)
    while last < end:
        now = clock()
        gap = now - last
        if gap > _GAP_NS:
            lost += gap
            longest = max(longest, gap)
        readings += 1
        last = now
    return Noise(cpu, lost / (last - start), longest / 1e3, (last - start - lost) / readings)


def choose_cpus(wanted: Sequence[int]) -> list[int]:
    """Return the CPUs of client and server: the wanted ones, or the first two allowed."""
    allowed = sorted(os.sched_getaffinity(0))
    if not wanted:
        return allowed[:2] if len(allowed) > 1 else allowed * 2
    strange = [cpu for cpu in wanted if cpu not in allowed]
    if strange or len(wanted) != 2:
        raise ValueError(
            f"--pin takes two of the CPUs {', '.join(map(str, allowed))}, not "
            f"{','.join(map(str, wanted))}"
        )
    return list(wanted)


def shared_memory_used() -> int:
    """Return the bytes of shared memory in use: named in /dev/shm or not.

    Segments lose their name as soon as both ends hold them, so a listing would miss them; the
    kernel's counts do not. The greater of two counts is taken, lest one of them miss a kind.
    """
    shm = os.statvfs(_SHM)
    named = (shm.f_blocks - shm.f_bfree) * shm.f_frsize
    found = re.search(r"^Shmem:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return max(named, int(found.group(1)) * 1024 if found else 0)


def _read(path: str) -> str:
    return Path(path).read_text()
