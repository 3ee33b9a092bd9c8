# SPDX-License-Identifier: Apache-2.0
"""Which MPI a compiled module was made for, as `mpi4py._mpiabi` finds it.

mpi4py ships one extension module for each family of MPI libraries and chooses among them here.
shmnd.mpi has one implementation and nothing to choose; the module is for programs that ask.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, Final

MPIABI: str | None = os.environ.get("MPI4PY_MPIABI") or None
LIBMPI: str | None = os.environ.get("MPI4PY_LIBMPI") or None
_registry: Final[dict[str, dict[str, str]]] = {}
_FAMILIES: Final = (
    ("i_mpi", "mpich"),
    ("mpich", "mpich"),
    ("open mpi", "openmpi"),
    ("open-mpi", "openmpi"),
)


def _verbose_info(message: object, verbosity: int = 1) -> None:
    """Print a line to the standard error, where Python is as verbose as that."""
    if sys.flags.verbose >= verbosity:
        print(f"# [{_NAME}] {message}", file=sys.stderr)


_NAME: Final = "mpi4py._mpiabi"


def _get_mpiabi_from_string(string: str) -> str:
    """Return the family that a name or a version string means."""
    lowered = string.lower()
    return next((family for words, family in _FAMILIES if words in lowered), lowered)


def _get_mpiabi_from_libmpi(libmpi: str | None = None) -> str:
    """Return the family of a library: that of the standard, which this one follows."""
    return "mpiabi" if libmpi is None or Path(libmpi).exists() else _get_mpiabi_from_string(libmpi)


def _get_mpiabi() -> str:
    """Return the family in use, found once."""
    known: str | None = getattr(_get_mpiabi, "mpiabi", None)
    if known is None:
        known = _get_mpiabi_from_string(MPIABI) if MPIABI else _get_mpiabi_from_libmpi(LIBMPI)
        _get_mpiabi.mpiabi = known  # type: ignore[attr-defined]
    return known


def _register(module: str, mpiabi: str) -> None:
    """Note that a module is there for a family."""
    _registry.setdefault(module, {})[mpiabi] = f".{mpiabi}" if mpiabi else ""


def _get_mpiabi_suffix(module: str) -> str | None:
    """Return the end of the file name of a module for the family in use, None if not noted."""
    known = _registry.get(module)
    return None if known is None else known.get(_get_mpiabi())


class _Finder:
    """Finds the files of modules that are noted."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is noted, None for all others."""
        suffix = _get_mpiabi_suffix(fullname)
        if suffix is None:
            return None
        name = fullname.rpartition(".")[2]
        for folder in path or ():
            file = Path(folder, f"{name}{suffix}.py")
            if file.is_file():
                return spec_from_file_location(fullname, file)
        warnings.warn(f"{fullname}: no file for {_get_mpiabi()!r}", RuntimeWarning, stacklevel=2)
        return None


def _install_finder() -> None:
    """Have imports ask the finder, the last of all."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)


def _dlopen_rpath() -> list[str]:
    """Return where a library of MPI would be looked for: nowhere, as none is loaded."""
    return []
