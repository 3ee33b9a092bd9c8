# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Error handlers: whether an error becomes an exception, ends the job, or goes to the program.

The default of mpi4py, an exception, is the handler ERRORS_RETURN. A handler of the program is
called with the object and the code; then the error becomes an exception all the same, as it does
in mpi4py, where the C function has returned the code.
"""

from typing import Any

from shmnd.common.interruption import is_interruption
from shmnd.mpi import constants
from shmnd.mpi.transport import hooks
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.objects.handle import constant, constant_of

LIMIT = 32
"""How many error handlers of its own a program may have at a time, for each kind of object."""

cdef dict _created = {}


cdef class ErrhandlerState(State):
    """How errors are handled."""


cdef class _OwnersHandler(ErrhandlerState):
    """The handler of what an object uses within: the one that the object has at that time."""

    cdef object owner


cdef class Errhandler(Handle):
    """Error handler."""

    _family = "Errhandler"

    def Free(self) -> None:
        """Free an error handler."""
        self._require(constants.ERR_ERRHANDLER, "Free")
        if constant_of(self) is not None:
            self._require_own(constants.ERR_ERRHANDLER, "Free")
        for kind in _created.values():
            if self.ob in kind:
                kind.remove(self.ob)
        self._release()

    def free(self) -> None:
        """Call `Free` unless the handle is null or a constant."""
        if self.ob is not None and constant_of(self) is None:
            self.Free()


def create(kind: str, function: Any) -> Errhandler:
    """Create an error handler that calls `function(object, code)`, for objects of one kind.

    Raise RuntimeError where the program has LIMIT of that kind.
    """
    if not callable(function):
        raise TypeError(f"{kind}.Create_errhandler({function!r}): expected a function")
    known = _created.setdefault(kind, [])
    if len(known) >= LIMIT:
        raise RuntimeError(
            f"{kind}.Create_errhandler: the limit is {LIMIT} error handlers; free some first"
        )
    handler = Errhandler()
    state = ErrhandlerState()
    state.function = function
    handler.ob = state
    known.append(state)
    return handler


def refer(state: ErrhandlerState | None) -> Errhandler:
    """Return a handle to the handler in `state`; None is the default."""
    handler = Errhandler()
    handler.ob = (<Handle> ERRORS_RETURN).ob if state is None else state
    return handler


def begin_with(handler: Errhandler | None) -> None:
    """Set the handler of each object that is made from now on, as `mpi4py.rc.errors` demands.

    None leaves it to the object from which the new one is made, as in the standard.
    """
    global _for_new
    _for_new = None if handler is None else handler.ob


def for_new(inherited: ErrhandlerState | None) -> ErrhandlerState | None:
    """Return the handler of a new object, which inherits one where the settings give none."""
    return inherited if _for_new is None else _for_new


def handle_new(where: Any, handler: Errhandler | None = None) -> None:
    """Set the handler of an object that is made of no other one: the one that the program named, or
    that of the settings; errors are fatal where these leave it to the standard.
    """
    if handler is not None:
        where.Set_errhandler(handler)
    else:
        (<Handle?> where).ob.errhandler = for_new((<Handle> ERRORS_ARE_FATAL).ob)


def handle(where: Any, code: int, text: str) -> None:
    """Have the error handler of `where`, an object or None, handle an error.

    Return only where the handler of the program returned; fatal ones do not.
    """
    ob = None if where is None else (<Handle?> where).ob
    handle_by(None if ob is None else ob.errhandler, where, code, text)


def leave_to(inner: Any, owner: Any) -> None:
    """Have the errors of `inner` handled by the object to which the function `owner` returns a
    handle: a program that uses the one does not know of the other."""
    state = _OwnersHandler()
    state.owner = owner
    (<Handle?> inner).ob.errhandler = state


def handle_by(state: ErrhandlerState | None, where: Any, code: int, text: str) -> None:
    """Have the handler in `state` handle an error of `where`; None is the default."""
    if isinstance(state, _OwnersHandler):
        handle((<_OwnersHandler> state).owner(), code, text)
        return
    if state is None or state is (<Handle> ERRORS_RETURN).ob:
        return
    if state is (<Handle> ERRORS_ARE_FATAL).ob or state is (<Handle> ERRORS_ABORT).ob:
        ob = None if where is None else (<Handle?> where).ob
        title = ("" if ob is None else ob.title()) or type(where).__name__
        try:
            hooks.flush_output(
                f"[rank {hooks.rank()}] {MPIException(code, text)}\n"
                f"[rank {hooks.rank()}] the error handler of {title} ends the job\n"
            )
        finally:
            hooks.abort(code)
    try:
        state.function(where, code)
    except Exception as error:
        if is_interruption(error):
            raise
        import traceback  # no program but one with such a handler needs it

        traceback.print_exc()


cdef object mpi_error(Handle where, int error_class, str text):
    """Have the error handler of `where` handle an error, and raise it as an exception."""
    handle(where, error_class, text)
    raise MPIException(error_class, text)


def raise_error(where: Any, code: int, text: str) -> None:
    """Have the error handler of `where` handle an error, and raise it as an exception."""
    mpi_error(where, code, text)


def _predefined(name: str) -> Errhandler:
    handler = Errhandler()
    handler.ob = ErrhandlerState()
    return constant(handler, name)


ERRHANDLER_NULL = constant(Errhandler(), "ERRHANDLER_NULL")
ERRORS_RETURN = _predefined("ERRORS_RETURN")
ERRORS_ABORT = _predefined("ERRORS_ABORT")
ERRORS_ARE_FATAL = _predefined("ERRORS_ARE_FATAL")
_for_new = (<Handle> ERRORS_RETURN).ob
