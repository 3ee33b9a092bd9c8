# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Handles, and what they refer to.

A program holds handles: small objects that are equal where they refer to the same object of MPI,
and null after that was freed through them. The object itself is a `State`. Freeing one handle
does not disturb another one to the same state, and a state lives as long as anything refers to it.

Each state has a number, for programs that carry handles as integers. A state whose number has been
read stays known by it until it is freed, as MPI's own handles do.
"""

from typing import Any, Self

from shmnd.mpi.objects.errors import Exception as MPIException

cdef long _next = 1
cdef dict _exported = {}
cdef dict _constants = {}
cdef dict _kept = {}


cdef class State:
    """The object of MPI that handles refer to."""

    def __init__(self) -> None:
        global _next
        self.handle = _next
        _next += 1

    def title(self) -> str:
        """Return its name for a message; '' where it has none."""
        return self.name or self.label or ""


cdef int _export(BareHandle handle) except -1:
    """Let the state be found by its number, as one of the family of the handle."""
    _exported[handle.ob.handle] = handle._family, handle.ob
    return 0


def constant(handle: BareHandle, name: str, predefined: bool = True) -> BareHandle:
    """Make `handle` the constant of that name, for pickles and for `free`; return it."""
    _constants[id(handle)] = name
    _kept[name] = handle
    if (<BareHandle?> handle).ob is not None and predefined:
        (<BareHandle> handle).ob.predefined = True
        if (<BareHandle> handle).ob.label is None:
            (<BareHandle> handle).ob.label = name
            _export(handle)
    return handle


def constant_of(handle: BareHandle) -> str | None:
    """Return the name under which `handle` is a constant, or None."""
    return _constants.get(id(handle))


cdef State referred(BareHandle new, tuple args, dict kwargs):
    """Return the state of the handle that a new one is made from."""
    family = new._family
    name = family.lower()
    if len(args) + len(kwargs) > 1 or (kwargs and name not in kwargs):
        raise TypeError(f"{type(new).__name__}() takes one argument, {name}, or none")
    other = args[0] if args else kwargs[name]
    if other is None:
        return None
    if not isinstance(other, BareHandle) or other._family != family:
        raise TypeError(
            f"{type(new).__name__}({other!r}): expected a {family}, not {type(other).__name__}"
        )
    return (<BareHandle> other).ob


cdef int make_null(BareHandle handle) except -1:
    """Make the handle null and forget the number of its state."""
    cdef State state = handle.ob
    handle.ob = None
    if state is not None and state.handle and not state.predefined:
        _exported.pop(state.handle, None)
    return 0


cdef class BareHandle:
    """A handle without what makes it from another one: to gather keywords takes a dict each time.

    Requests stand on it. Handles of two kinds are never equal.
    """

    _family = "Handle"

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, BareHandle):
            return NotImplemented
        if self.ob is None and (<BareHandle> other).ob is None:
            return self._family == other._family
        return self.ob is (<BareHandle> other).ob

    def __ne__(self, other: object, /) -> bool:
        if not isinstance(other, BareHandle):
            return NotImplemented
        return not (self == other)

    def __bool__(self) -> bool:
        return self.ob is not None

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = _constants.get(id(self))
        if name is not None:
            return name
        if self.ob is None:
            return (type(self), ())
        if self.ob.label is not None:
            return (type(self), (_kept[self.ob.label],))
        raise ValueError(
            f"cannot pickle {type(self).__name__} {self.ob.handle}: only constants, null handles "
            "and what can be built anew elsewhere are pickled"
        )

    @property
    def handle(self) -> int:
        """The number of the handle."""
        if self.ob is None:
            return 0
        _export(self)
        return self.ob.handle

    @classmethod
    def fromhandle(cls, handle: int) -> Self:
        """Create an object from the number of a handle."""
        self = cls()
        if handle:
            family, state = _exported.get(handle, ("", None))
            if family != cls._family:  # its methods take their state for one of theirs
                raise ValueError(
                    f"{cls.__name__}.fromhandle({handle}): no {cls._family} has this number; it is "
                    "that of `handle` of an object that was not freed"
                )
            self._refer(state)
        return self

    def _refer(self, state: State) -> None:
        """Let the handle refer to `state`; classes that take only some states check here."""
        self.ob = state

    def toint(self) -> int:
        """Translate the handle to an integer."""
        return self.handle

    @classmethod
    def fromint(cls, arg: int, /) -> Self:
        """Translate an integer to a handle."""
        return cls.fromhandle(arg)

    def py2f(self) -> int:
        """Translate the handle to an integer of Fortran."""
        return self.handle

    @classmethod
    def f2py(cls, arg: int) -> Self:
        """Translate an integer of Fortran to a handle."""
        return cls.fromhandle(arg)

    def free(self) -> None:
        """Call `Free` unless the handle is null or refers to a constant."""
        if self.ob is None:
            return
        if self.ob.predefined:
            if id(self) not in _constants:
                self.ob = None
            return
        self.Free()

    def _release(self) -> None:
        """Make the handle null and forget the number of its state."""
        make_null(self)

    def _require(self, error: int, call: str) -> None:
        """Raise Exception(error) where the handle is null."""
        if self.ob is None:
            raise MPIException(error, f"{self._family}.{call}: the handle is null")

    def _require_own(self, error: int, call: str) -> None:
        """Raise Exception(error) where the handle is null or refers to a constant."""
        self._require(error, call)
        if self.ob.predefined:
            which = self.ob.label or f"this {self._family.lower()}"  # one of Create_f90_real
            raise MPIException(error, f"{self._family}.{call}: {which} is predefined")


cdef class Handle(BareHandle):
    """A reference to an object of MPI; several may refer to one, and null to none.

    The classes of MPI stand on it.
    """

    def __cinit__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            self.ob = referred(self, args, kwargs)
