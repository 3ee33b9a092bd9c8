# SPDX-License-Identifier: Apache-2.0
"""What a broker that is started on demand does not keep of the program that starts it.

It serves each process of its namespace, and chance decides which of them starts it. A program that
is bound to a processor and polls there with real-time priority would otherwise keep the broker,
bound to the same processor with the same priority, from running at all.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from shmnd.common.interruption import Ignoring

__all__ = ["drop_inherited"]

_SYSTEM: Final = Path("/sys/devices/system/cpu")
_RESERVED: Final = ("isolated", "nohz_full")
"""Lists of processors that the machine's owner keeps for chosen programs."""


def drop_inherited() -> None:
    """Run with the usual policy, on each processor that the control group allows; block no signal.

    The nice value stays: only a privileged process may lower it.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with Ignoring(OSError):  # of SCHED_IDLE, or in a sandbox: it is forbidden
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with Ignoring(OSError):  # the kernel leaves out what the group does not allow
        os.sched_setaffinity(0, _shared_processors())


def _shared_processors() -> set[int]:
    """Return the processors of the machine that are not reserved."""
    every = set(range(os.sysconf("SC_NPROCESSORS_CONF")))
    return every.difference(*(_listed(_SYSTEM / name) for name in _RESERVED))


def _listed(file: Path) -> set[int]:
    """Return the numbers of a list as `0,2-5`; empty where there is none or it is not one."""
    found: set[int] = set()
    with Ignoring(OSError, ValueError):
        for part in file.read_text().strip().split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
        return found
    return set()
