# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""What every object with a `close()` has besides: `with`, the end of its life, and no copies.

Compiled for the end of a life. A handler of a signal runs at the first instruction of any function
in Python. If it raised there, in a `__del__`, the object would never be closed.
"""

import sys

from shmnd.common.interruption import is_interruption

cdef str _TWICE = (
    "it belongs to this process, and its end would come twice; another process opens an adapter of"
    " its own and connects"
)
# Kept by this module: its own globals may be gone when the last objects end.
cdef object _is_finalizing = sys.is_finalizing


def refuse_copy(obj, why=_TWICE):
    """Raise TypeError: the object can be neither copied nor pickled."""
    raise TypeError(f"cannot copy or pickle {type(obj).__name__!r} object: {why}")


cdef int end_of_life(object dropped) except -1:
    """Close an object that nothing refers to any more; a `__del__` in compiled code calls it."""
    try:
        dropped.close()
    except BaseException as exc:
        if _is_finalizing():
            return 0  # the parts of this module may be gone
        if is_interruption(exc):
            dropped.close()  # continues it: no other call will
            raise
        # Else half-made: no caller could take the error.
    return 0


cdef class Closing:
    """Base of the objects released by `close()`, which may be called twice, late, or never."""

    def close(self) -> None:
        """Release the object; every subclass says how."""

    def __reduce_ex__(self, protocol):
        refuse_copy(self)

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def __del__(self):
        end_of_life(self)


cdef class Front(Closing):
    """Base of an object in front of another one that closes itself when it is dropped.

    A pending operation may keep the other object longer than this one.
    """

    def __del__(self):
        pass
