# SPDX-License-Identifier: Apache-2.0
"""Keep this `mpi4py` before one that is installed, also where a program puts that first.

The folder of a program comes before those of PYTHONPATH, and so does what the program itself, or
pytest for the tests of an installed package, puts first on the path. Where that is the folder of
an installed mpi4py, each rank would be a job of one rank, without a word.

The interpreter imports this module when it starts, and nothing else does. The next one of the name
runs as it would without this one. It has to run in each Python 3 that a rank may start.
"""

import os
import sys

TYPE_CHECKING = False  # without `typing`, whose import would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_FRONT = __file__.rpartition("/")[0]  # absolute, as the path of the ranks has it


class _Finder:
    """Finds the package of this folder in place of one that has a compiled `MPI`."""

    front = _FRONT

    @classmethod
    def find_spec(
        cls, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return where the package is; None for all others, and where the program's own counts."""
        if name != "mpi4py" or _FRONT not in sys.path:
            return None
        from importlib.machinery import PathFinder

        found = PathFinder.find_spec(name)
        if found is None or not any(map(_is_compiled, found.submodule_search_locations or ())):
            return None
        return PathFinder.find_spec(name, [_FRONT])


def _is_compiled(folder: str) -> bool:
    names = os.listdir(folder) if os.path.isdir(folder) else ()  # noqa: PTH112, PTH208
    return any(each.startswith("MPI.") and each.endswith(".so") for each in names)


def _run_next() -> None:
    """Run the module of this name that the interpreter would have found without this one."""
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec(__name__, [each for each in sys.path if each != _FRONT])
    if found is None or found.loader is None:
        return
    from importlib.util import module_from_spec

    sys.modules[__name__] = module = module_from_spec(found)
    found.loader.exec_module(module)


if not any(getattr(each, "front", None) == _FRONT for each in sys.meta_path):
    sys.meta_path.insert(0, _Finder)
_run_next()
