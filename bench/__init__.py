# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth of shmnd, side by side with what else is installed on the machine.

Every figure that the project claims comes from here. Nothing here asserts a time: a benchmark
reports what it saw, how far it spread, and whether that reaches a target.

This package must import without shmnd and without numpy: its worker processes also run in the
Python environments of the peers.
"""

from typing import Final

COMMANDS: Final = {
    "core": "shmnd_bench.bench_core",
    "pingpong": "shmnd_bench.bench_pingpong",
    "rpingpong": "shmnd_bench.bench_rpingpong",
    "read-lat": "shmnd_bench.bench_read_lat",
    "ping": "shmnd_bench.bench_ping",
    "rping": "shmnd_bench.bench_rping",
    "batch": "shmnd_bench.bench_batch",
    "crossover": "shmnd_bench.bench_crossover",
    "mrlat": "shmnd_bench.bench_mrlat",
    "mrrate": "shmnd_bench.bench_mrrate",
    "connect": "shmnd_bench.bench_connect",
    "notify": "shmnd_bench.bench_notify",
    "scale": "shmnd_bench.bench_scale",
    "compare": "shmnd_bench.bench_compare",
    "report": "shmnd_bench.bench_report",
}
"""The verbs of `shmnd bench`, each with the module that holds HELP, configure() and run()."""
