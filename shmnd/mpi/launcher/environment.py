# SPDX-License-Identifier: Apache-2.0
"""The environment of a rank: what says which one it is, and where it finds the package `mpi4py`."""

import os
from pathlib import Path
from typing import Final

from shmnd.mpi.launcher.options import JobOptions
from shmnd.mpi.package import FRONT
from shmnd.mpi.transport.place import LIFE_VARIABLE, outside

__all__ = ["of_rank"]

_RANK_VARIABLES: Final = ("PMI_RANK", "MPI_LOCALRANKID")
_SIZE_VARIABLES: Final = ("PMI_SIZE", "MPI_LOCALNRANKS")
"""Those of the launcher of MPICH: programs read their place, and whether they are ranks, from them,
without MPI. A process that a rank starts inherits them; MPI libraries ignore them there."""


def of_rank(options: JobOptions, number: int, memory: int, life: int) -> dict[str, str]:
    """Return the environment of a rank that inherits two descriptors."""
    given = {**outside(os.environ), **options.environment}
    path = given.get("PYTHONPATH")
    root = str(Path(__file__).parents[3])
    parts = [str(FRONT)]
    if path:
        parts.append(path)
    if not _found_without(root):
        parts.append(root)
    return {
        **given,
        **dict.fromkeys(_RANK_VARIABLES, str(number)),
        **dict.fromkeys(_SIZE_VARIABLES, str(options.ranks)),
        "PYTHONPATH": os.pathsep.join(parts),
        "SHMND_MPI_RANK": str(number),
        "SHMND_MPI_SIZE": str(options.ranks),
        "SHMND_MPI_LAUNCHER": str(os.getpid()),
        "SHMND_MPI_JOB": str(memory),
        LIFE_VARIABLE: str(life),
    }


def _found_without(root: str) -> bool:
    """Return whether another interpreter finds this package by itself: it is installed."""
    return "site-packages" in root or "dist-packages" in root
