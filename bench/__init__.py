# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth of shmnd, side by side with what else is installed on the machine.

Every figure that the project claims comes from here. Nothing here asserts a time: a benchmark
reports what it saw, how far it spread, and whether that reaches a target.

This package must import without shmnd and without numpy: its worker processes also run in the
Python environments of the peers.
"""

from typing import Final

COMMANDS: Final = {
    "core": "shmnd_bench.programs.core",
    "pingpong": "shmnd_bench.programs.traffic.pingpong",
    "rpingpong": "shmnd_bench.programs.traffic.rpingpong",
    "read-lat": "shmnd_bench.programs.traffic.read_lat",
    "ping": "shmnd_bench.programs.traffic.ping",
    "rping": "shmnd_bench.programs.traffic.rping",
    "batch": "shmnd_bench.programs.batch",
    "sweep": "shmnd_bench.programs.sweep",
    "crossover": "shmnd_bench.programs.crossover",
    "mrlat": "shmnd_bench.programs.mrlat",
    "mrrate": "shmnd_bench.programs.mrrate",
    "connect": "shmnd_bench.programs.connect",
    "connections": "shmnd_bench.programs.connections",
    "notify": "shmnd_bench.programs.notify",
    "scale": "shmnd_bench.programs.scale",
    "ipc": "shmnd_bench.programs.ipc",
    "compare": "shmnd_bench.programs.compare",
    "report": "shmnd_bench.programs.report",
}
"""The verbs of `shmnd bench`, each with the module that holds HELP, configure() and run()."""
