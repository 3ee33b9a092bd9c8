# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""What every object with a `close()` has besides: `with`, the end of its life, and no copies.

Compiled for the end of a life. A handler of a signal runs at the first instruction of any function
in Python. If it raised there, in a `__del__`, the object would never be closed. Compiled code has
begun before a handler can run, and calls again what one has interrupted.
"""

import sys
import weakref

from shmnd.common.interruption import is_interruption

cdef str _TWICE = (
    "it belongs to this process, and its end would come twice; another process opens one of its own"
)
# Kept by this module: its own globals may be gone when the last objects end.
cdef object _is_finalizing = sys.is_finalizing
cdef object _is_interruption = is_interruption
# Raised by the search for a handler as well, which needs memory and calls.
cdef tuple _FAULTS = (MemoryError, RecursionError)
cdef set _ends = set()  # of objects that are there

cdef enum:
    # Calls of one end: what looks like an interruption may be none. A close that waits is repeated
    # as well, so that it may wait as often.
    _MOST = 100


def refuse_copy(obj, why=_TWICE):
    """Raise TypeError: the object can be neither copied nor pickled."""
    raise TypeError(f"cannot copy or pickle {type(obj).__name__!r} object: {why}")


cdef bint _interrupts(object exc):
    """Return whether an exception is a signal handler's, which may run in here as well."""
    try:
        return not _is_finalizing() and _is_interruption(exc)
    except BaseException:
        return True


def surely(end, *args) -> None:
    """Call what may be called again, until no handler of a signal interrupts it.

    What the last of the handlers has raised is raised then.
    """
    _call_surely(end, args)


cdef int _call_surely(object end, tuple args) except -1:
    """Call it until no handler interrupts it, by no name of this module.

    The names may be gone when the interpreter ends.
    """
    cdef object interruption = None
    cdef int _calls
    for _calls in range(_MOST):
        try:
            end(*args)
            break
        except BaseException as exc:
            if isinstance(exc, _FAULTS) or not _interrupts(exc):
                if interruption is None:
                    raise
                raise interruption from exc
            interruption = exc
    if interruption is not None:
        raise interruption
    return 0


cdef int end_of_life(object end) except -1:
    """Call the end of an object that nothing refers to any more; `__del__` in compiled code does.
    """
    try:
        _call_surely(end, ())
    except BaseException as exc:
        if isinstance(exc, _FAULTS) or _interrupts(exc):
            raise
        # Else the object is half-made, or the parts of its module are gone: no caller could take
        # the error.
    return 0


cdef class _End:
    """What the end of an object calls."""

    cdef object reference, end
    cdef tuple args

    def _over(self, _) -> None:
        _ends.discard(self)
        self.reference = None  # a cycle: its callback is a method of this object
        try:
            _call_surely(self.end, self.args)
        except BaseException:
            if not _is_finalizing():
                raise
            # Else the parts of its module are gone.


def when_dropped(obj, end, *args) -> None:
    """Call a function once an object is gone.

    The function must not hold the object, and may be called more than once. As `weakref.finalize`,
    but a handler of a signal cannot end it before it has begun.
    """
    cdef _End made = _End.__new__(_End)
    made.end, made.args = end, args
    _ends.add(made)
    made.reference = weakref.ref(obj, made._over)


def made_by(str call):
    """Return a decorator of a class whose objects that call makes, from arguments.

    `__new__` alone would make one without parts, which no method expects. It raises a TypeError
    that names the call.
    """
    def refuse_others(kind):
        make = kind.__new__

        def new(cls, *args, **options):
            if not args and not options:
                raise TypeError(f"cannot create {cls.__name__!r} objects; {call} returns them")
            return make(cls, *args, **options)

        kind.__new__ = staticmethod(new)
        return kind

    return refuse_others


def why_closed(adapter, str what) -> str:
    """Return why a closed object refuses a call, and the remedy: its adapter may have closed it."""
    if adapter._closed:
        return "its adapter is closed; open another one"
    return f"the {what} is closed; make a new one"


cdef class Ending:
    """Base of objects that end something when nothing refers to them any more."""

    def _end_of_life(self) -> None:
        """End it; every subclass says how. It may be called again."""

    def __del__(self):
        end_of_life(self._end_of_life)


cdef class Closing(Ending):
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
        end_of_life(self.close)


cdef class Front(Closing):
    """Base of an object in front of another one that closes itself when it is dropped.

    A pending operation may keep the other object longer than this one.
    """

    def __del__(self):
        pass
