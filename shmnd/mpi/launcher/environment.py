# SPDX-License-Identifier: Apache-2.0
"""The environment of a rank: what says which one it is, and where it finds the package `mpi4py`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shmnd.mpi.launcher.options import JobOptions
from shmnd.mpi.package import FRONT
from shmnd.mpi.transport.place import LIFE_VARIABLE, outside

__all__ = ["hidden_by", "of_rank"]

_RANK_VARIABLES: Final = ("PMI_RANK", "MPI_LOCALRANKID")
_SIZE_VARIABLES: Final = ("PMI_SIZE", "MPI_LOCALNRANKS")
"""Those of the launcher of MPICH: programs read their place, and whether they are ranks, from them,
without MPI. A process that a rank starts inherits them; MPI libraries ignore them there."""


_HIDING: Final = "IE"
_WITH_ARGUMENT: Final = "XW"
_LAST: Final = "cm"
"""Options of Python: those without PYTHONPATH, with an argument, and before the program's own."""


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


def hidden_by(command: Sequence[str]) -> str:
    """Return the option of a Python that hides this `mpi4py` from the ranks, or an empty text.

    Another `mpi4py` that is installed would make each of them a job of its own, without a word.
    """
    program, *words = command
    if not Path(program).name.startswith("python"):
        return ""
    of_option = False
    for word in words:
        if of_option:
            of_option = False
            continue
        if not word.startswith("-") or word in ("-", "--"):
            break
        letters = "" if word.startswith("--") else word[1:]
        of_option = word == "--check-hash-based-pycs"
        for i, letter in enumerate(letters):
            if letter in _HIDING:
                return f"-{letter}"
            if letter in _LAST:
                return ""
            if letter in _WITH_ARGUMENT:
                of_option = i + 1 == len(letters)
                break
    return ""


def _found_without(root: str) -> bool:
    """Return whether another interpreter finds this package by itself: it is installed."""
    return "site-packages" in root or "dist-packages" in root
