# SPDX-License-Identifier: Apache-2.0
"""The settings in effect: those of `mpi4py.rc`, and before them those of the environment."""

import os
import warnings
from typing import Any, Final

from shmnd.common.interruption import pass_on
from shmnd.mpi.rc import NAMES, Rc

_YES: Final = ("1", "y", "yes", "t", "true", "on")
_NO: Final = ("0", "n", "no", "f", "false", "off")

_WORDS: Final = {
    "thread_level": ("single", "funneled", "serialized", "multiple"),
    "errors": ("default", "exception", "abort", "fatal"),
}


def _of_environment(text: str, default: Any) -> Any:
    """Return the value that a variable names, as mpi4py reads it."""
    if type(default) is int and text.isdecimal():
        return int(text)
    word = text.lower()
    if word in _YES or word in _NO:
        return word in _YES
    return word


def _meaning(name: str, value: Any) -> Any:
    """Return what a value means for a setting; ValueError if it means nothing."""
    if name in _WORDS:
        if isinstance(value, str) and value in _WORDS[name]:
            return value
    elif name == "irecv_bufsz":
        if type(value) is int and value >= 0:
            return value
    elif name == "finalize" and value is None:
        return None
    elif value in (True, "yes"):
        return True
    elif value in (False, "no"):
        return False
    raise ValueError(f"mpi4py.rc.{name}: unexpected value {value!r}")


def settings_of(rc: Rc) -> Rc:
    """Return the settings in effect, and show those of the environment in `rc`.

    A value that means nothing is a warning, and the default is in effect: programs for mpi4py run
    with it.
    """
    found = Rc()
    for name in NAMES:
        text = os.environ.get(f"MPI4PY_RC_{name.upper()}")
        if text is not None:
            setattr(rc, name, _of_environment(text, getattr(Rc, name)))
        try:
            setattr(found, name, _meaning(name, getattr(rc, name)))
        except ValueError as error:
            pass_on(error)
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    return found
