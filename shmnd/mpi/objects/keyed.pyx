# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Objects that carry attributes and a name."""

from collections.abc import Callable
from typing import Any

from shmnd.mpi.objects.handle cimport Handle, State

from shmnd.mpi import constants
from shmnd.mpi.objects import attributes
from shmnd.mpi.objects.errors import Exception as MPIException


cdef class Keyed(Handle):
    """A handle to an object with attributes and a name."""

    _null_error = constants.ERR_ARG

    def Get_attr(self, keyval: int) -> int | Any | None:
        """Retrieve attribute value by key."""
        self._require(self._null_error, "Get_attr")
        built_in = self._built_in(keyval)
        if built_in is not NotImplemented:
            return built_in
        attributes.key(self._family, keyval, "Get_attr")
        held = None if self.ob.attrs is None else self.ob.attrs.get(keyval)
        return None if held is None else held[1]

    def _built_in(self, keyval: int) -> Any:
        """Return the value of an attribute that MPI sets itself, or NotImplemented."""
        return NotImplemented

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        """Store attribute value associated with a key."""
        self._require(self._null_error, "Set_attr")
        key = attributes.key(self._family, keyval, "Set_attr")
        if key.freed:
            raise MPIException(
                constants.ERR_KEYVAL, f"{self._family}.Set_attr({keyval}): the key was freed"
            )
        if key.nopython:
            attrval = int(attrval)
        cdef dict attrs = self.ob.attrs
        if attrs is None:
            attrs = self.ob.attrs = {}
        if keyval in attrs:
            before, value = attrs[keyval]
            attributes.dropped(before, self, keyval, value)
        attrs[keyval] = key, attrval

    def Delete_attr(self, keyval: int) -> None:
        """Delete attribute value associated with a key."""
        self._require(self._null_error, "Delete_attr")
        attributes.key(self._family, keyval, "Delete_attr")
        cdef dict attrs = self.ob.attrs
        if attrs is None or keyval not in attrs:
            raise MPIException(
                constants.ERR_KEYVAL, f"{self._family}.Delete_attr({keyval}): it holds no value"
            )
        key, value = attrs.pop(keyval)
        attributes.deleted(key, self, keyval, value)

    @classmethod
    def Create_keyval(
        cls,
        copy_fn: Callable[[Any, int, Any], Any] | bool | None = None,
        delete_fn: Callable[[Any, int, Any], None] | bool | None = None,
        nopython: bool = False,
    ) -> int:
        """Create a new attribute key."""
        return attributes.create(cls._family, copy_fn, delete_fn, nopython)

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """Free an attribute key."""
        return attributes.free(cls._family, keyval)

    def _copy_attrs_to(self, new: State) -> None:
        """Copy the attributes to the state of a duplicate, by the functions of their keys."""
        if not self.ob.attrs:
            return
        copies = {}
        for keyval, (key, value) in list(self.ob.attrs.items()):
            there, copy = attributes.copied(key, self, keyval, value)
            if there:
                copies[keyval] = key, copy
        (<State?> new).attrs = copies

    def _drop_attrs(self) -> None:
        """Delete all attributes, the last one first, by the functions of their keys."""
        cdef dict attrs = self.ob.attrs
        while attrs:
            keyval = next(reversed(attrs))
            key, value = attrs.pop(keyval)
            attributes.dropped(key, self, keyval, value)

    def Get_name(self) -> str:
        """Get the print name for this object."""
        if self.ob is None:
            return f"MPI_{self._family.upper()}_NULL"
        return self.ob.name or ""

    def Set_name(self, name: str) -> None:
        """Set the print name for this object."""
        self._require(self._null_error, "Set_name")
        if not isinstance(name, str):
            raise TypeError(f"{self._family}.Set_name({name!r}): expected a str")
        self.ob.name = name[: constants.MAX_OBJECT_NAME]

    @property
    def name(self) -> str:
        """The print name for this object."""
        return self.Get_name()

    @name.setter
    def name(self, value: str) -> None:
        self.Set_name(value)
