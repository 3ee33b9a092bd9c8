# SPDX-License-Identifier: Apache-2.0
"""Extension modules that were compiled against mpi4py: their import is an ImportError.

Such a module takes all classes of mpi4py.MPI while it is loaded, and later reads handles of MPI in
their objects. Cython lets it compare their sizes first, and `MPI.File` is shorter here than with
any MPI: it has no more than a reference to its state. Other modules ask for the functions of the C
interface, which are not there. A module that is loaded before mpi4py is refused when it begins.
"""

import sys
from collections.abc import Callable
from functools import wraps
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, Final

from shmnd.common.interruption import pass_on

_CLASSES: Final = (
    "Datatype Status Request Prequest Grequest Op Group Info Errhandler Comm Intracomm Topocomm "
    "Cartcomm Graphcomm Distgraphcomm Intercomm Win File"
)
_STRINGS: Final = tuple(f"{name}\0".encode() for name in ("mpi4py.MPI", *_CLASSES.split()))
"""The strings in a module that was compiled against mpi4py, of any version."""
_STEPS: Final = ("create_module", "exec_module")
_refusing_steps: Final[set[Callable[..., Any]]] = set()


def refuse() -> None:
    """Refuse the extension module that is being loaded, and all later ones, if it has to be.

    The loader itself is extended: all that finds modules uses it, and specs and pickles name it.
    """
    for name in _STEPS:
        step = getattr(ExtensionFileLoader, name)
        if step not in _refusing_steps:
            _refuse_loading(step)
            refusing = _refusing(step)
            _refusing_steps.add(refusing)
            setattr(ExtensionFileLoader, name, refusing)


def _refuse_loading(step: Callable[..., Any]) -> None:
    """Raise ImportError if a module is in that step that uses the C interface."""
    frame = sys._getframe()
    while (outer := frame.f_back) is not None:
        frame = outer
        if frame.f_code is step.__code__ and _uses_the_c_interface(frame.f_locals["self"]):
            raise _refusal(frame.f_locals["self"])


def _refusing(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step of the loader whose failure is explained."""

    @wraps(step)
    def refusing(loader: ExtensionFileLoader, subject: Any) -> Any:
        try:
            return step(loader, subject)
        except Exception as error:
            if not _uses_the_c_interface(loader):
                raise
            raise _refusal(loader) from error

    return refusing


def _uses_the_c_interface(loader: ExtensionFileLoader) -> bool:
    """Return whether the module of a loader was compiled against mpi4py."""
    try:
        text = Path(loader.path).read_bytes()
    except OSError as exc:
        pass_on(exc)
        return False  # the loader has no such file either, and says so
    return all(string in text for string in _STRINGS)


def _refusal(loader: ExtensionFileLoader) -> ImportError:
    return ImportError(
        f"the extension module {loader.name} uses the C interface of mpi4py, which shmnd.mpi does "
        "not have: run the program with a real MPI and mpi4py",
        name=loader.name,
        path=loader.path,
    )
