# SPDX-License-Identifier: Apache-2.0
"""What every room of the package uses: close, number checks, descriptors, step names.

And what shmnd requires of the interpreter that loads it, checked before any compiled module.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

__all__ = ["require_gil", "require_main_interpreter"]

_INTERPRETERS: Final = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
"""The module of the standard library that names the interpreter it runs in."""


def require_main_interpreter() -> None:
    """Raise ImportError in a subinterpreter.

    The compiled modules, and those of numpy, load into one interpreter of a process: a
    subinterpreter that comes first keeps them from the main one, too.
    """
    try:
        interpreters = import_module(_INTERPRETERS)
    except ImportError:
        return  # a Python without it
    if interpreters.get_current() != interpreters.get_main():
        raise ImportError(
            "shmnd works in the main interpreter of a process only, and this is a "
            "subinterpreter; import it in the main one or in a process of its own (in mod_wsgi "
            "by 'WSGIApplicationGroup %{GLOBAL}')"
        )


def require_gil() -> None:
    """Raise ImportError if the interpreter runs without the GIL although shmnd needs it.

    The GIL makes the operations of a thread on a queue pair, a completion queue or the tables of
    an adapter atomic for the other threads; without it they would see incomplete states.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "shmnd requires the GIL, which is disabled in this interpreter; run it "
            "without PYTHON_GIL=0 and -X gil=0"
        )


require_main_interpreter()
