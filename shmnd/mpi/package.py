# SPDX-License-Identifier: Apache-2.0
"""What the package mpi4py offers besides its modules: its configuration, and profilers."""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shmnd.common.interruption import pass_on

FRONT: Final = Path(__file__).parent / "front"
VERSION: Final = "4.1.2"
"""The version of mpi4py whose interface this is."""
_loaded: list[object] = []


def get_include() -> str:
    """Return the folder of headers that end a compilation with why there is no C interface."""
    return str(FRONT / "mpi4py" / "include")


def get_config() -> dict[str, str]:
    """Return the configuration of the build: empty, as no compiler of MPI took part."""
    return {}


def profile(
    name: str, *, path: str | bytes | os.PathLike[str] | Iterable[str] | None = None
) -> None:
    """Load a library into the process, as mpi4py loads profilers of MPI.

    The library can see no calls: there is no MPI in C below. A file that is not a library is a
    warning, and a name that is not found a ValueError.
    """
    if path is None:
        folders = [""]
    elif isinstance(path, str | bytes | os.PathLike):
        folders = [os.fsdecode(path)]
    else:
        folders = [os.fsdecode(folder) for folder in path]
    names = (name, f"lib{name}.so")
    found = [
        str(Path(folder, file))
        for folder in folders
        for file in names
        if Path(folder, file).is_file()
    ]
    if not found:
        raise ValueError(f"profile({name!r}): not found in {', '.join(folders) or 'the path'}")
    from ctypes import CDLL, RTLD_GLOBAL  # ranks start faster without it, and few call this

    try:
        _loaded.append(CDLL(found[0], mode=RTLD_GLOBAL))
    except OSError as error:
        pass_on(error)
        warnings.warn(f"profile({name!r}): {error}", UserWarning, stacklevel=2)
