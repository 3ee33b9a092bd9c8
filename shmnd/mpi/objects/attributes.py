# SPDX-License-Identifier: Apache-2.0
"""Keys of attributes, and how attributes are copied and deleted.

Each kind of object (Comm, Datatype, Win) has keys of its own. A key that was freed works on in the
objects that hold a value under it, as the standard has it, and cannot be used anew. These objects
hold the key with the value, so its functions live as long as one of them does.
"""

import contextlib
import sys
from collections.abc import Callable
from typing import Any, Final

from shmnd.common.interruption import is_interruption
from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException


class Key:
    """A key: what happens to its values when an object is duplicated and freed."""

    def __init__(self, copy_fn: object, delete_fn: object, nopython: bool) -> None:
        """Keep both functions; True copies and None or False does not."""
        self.copy_fn = copy_fn
        self.delete_fn = delete_fn
        self.nopython = nopython
        self.freed = False


_FREED: Final = Key(None, None, False)
_FREED.freed = True
_keys: Final[dict[tuple[str, int], Key]] = {}
_FAMILIES: Final = ("Comm", "Datatype", "Win")
_next: Final = {family: constants.KEYVAL_FIRST + at for at, family in enumerate(_FAMILIES)}
"""By families, whose numbers take turns: so a number says whose key it was, also a freed one."""


def create(family: str, copy_fn: object, delete_fn: object, nopython: bool) -> int:
    """Create a key for objects of a family, and return its number."""
    for name, function in (("copy_fn", copy_fn), ("delete_fn", delete_fn)):
        if not (function is None or isinstance(function, bool) or callable(function)):
            raise TypeError(
                f"{family}.Create_keyval({name}={function!r}): expected a function, a bool or None"
            )
    number = _next[family]
    _next[family] = number + len(_FAMILIES)
    _keys[family, number] = Key(copy_fn, delete_fn, nopython)
    return number


def key(family: str, keyval: int, call: str) -> Key:
    """Return the key of a number.

    Raise Exception(ERR_KEYVAL) where the family has no such key.
    """
    found = _keys.get((family, keyval))
    if found is None and _was_created(family, keyval):
        return _FREED
    if found is None:
        raise MPIException(
            constants.ERR_KEYVAL, f"{family}.{call}({keyval}): Create_keyval has not returned this"
        )
    return found


def _was_created(family: str, keyval: object) -> bool:
    """Return whether a number was a key of the family and is free: nothing is kept of it."""
    first = constants.KEYVAL_FIRST + _FAMILIES.index(family)
    return isinstance(keyval, int) and keyval in range(first, _next[family], len(_FAMILIES))


def free(family: str, keyval: int) -> int:
    """Free a key, and return KEYVAL_INVALID."""
    found = key(family, keyval, "Free_keyval")
    if found.freed:
        raise MPIException(
            constants.ERR_KEYVAL, f"{family}.Free_keyval({keyval}): it was freed before"
        )
    del _keys[family, keyval]
    return constants.KEYVAL_INVALID


def run(function: Callable[..., Any], *args: object) -> Any:
    """Call a function of the program; print what it raises, and raise it as an error of MPI."""
    try:
        return function(*args)
    except Exception as error:
        if is_interruption(error):
            raise
        import traceback  # every rank would import it at its start, and few programs get here

        traceback.print_exc(file=sys.stderr)
        code = error.Get_error_code() if isinstance(error, MPIException) else constants.ERR_OTHER
    raise MPIException(code, f"{getattr(function, '__name__', function)} raised an exception")


def copied(found: Key, handle: object, keyval: int, value: object) -> tuple[bool, object]:
    """Return whether a duplicate gets the attribute, and with what value."""
    if not callable(found.copy_fn):
        return bool(found.copy_fn), value
    result = run(found.copy_fn, handle, keyval, value)
    return result is not NotImplemented, result


def deleted(found: Key, handle: object, keyval: int, value: object) -> None:
    """Run the delete function of a key for a value."""
    if callable(found.delete_fn):
        run(found.delete_fn, handle, keyval, value)


def dropped(found: Key, handle: object, keyval: int, value: object) -> None:
    """Run the delete function of a key for a value that goes in any case.

    What it raises is printed, and the value replaced or the object freed all the same, as in
    mpi4py: `Delete_attr` alone raises the error.
    """
    with contextlib.suppress(MPIException):
        deleted(found, handle, keyval, value)
