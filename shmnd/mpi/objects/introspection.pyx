# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Sizes, addresses and numbers of handles, for programs that use them beyond Python."""

from typing import Any

from cpython.object cimport PyObject

from shmnd.mpi.objects.handle cimport BareHandle
from shmnd.mpi.point_to_point.status cimport Status


cdef object _kind(object arg, str call):
    kind = arg if isinstance(arg, type) else type(arg)
    if issubclass(kind, (BareHandle, Status)):
        return kind
    raise TypeError(f"{call}({arg!r}): expected an object of MPI")


def _sizeof(arg: Any) -> int:
    """Return the bytes of the object behind a handle, or of a status."""
    if issubclass(_kind(arg, "_sizeof"), Status):
        return 3 * sizeof(int) + sizeof(bint) + sizeof(long long)
    return sizeof(PyObject *)


def _addressof(arg: Any) -> int:
    """Return the address of a handle, or of the fields of a status."""
    _kind(arg, "_addressof")
    if isinstance(arg, Status):
        return <size_t> &(<Status> arg).c_source
    return <size_t> <PyObject *> <BareHandle?> arg


def _handleof(arg: Any) -> int:
    """Return the number of a handle, or the address of a status."""
    _kind(arg, "_handleof")
    if isinstance(arg, Status):
        return <size_t> &(<Status> arg).c_source
    return (<BareHandle?> arg).handle
